"""Answers that mean the same are equal for the kit, whatever their patches look like."""

from __future__ import annotations

import pytest

from admission_gateway_conformance.answers import difference
from admission_gateway_worker.pb import worker_pb2 as pb

REQUEST = b'{"object":{"list":[{"a":1},{"a":2}],"n":9007199254740993}}'
APPENDED = b'[{"op":"add","path":"/list/2","value":{"b":1,"a":3}}]'
LEFT = b'{"list":[{"a":1},{"a":2},{"a":3,"b":1}],"n":9007199254740993}'


def found(patch: bytes, request: bytes = REQUEST) -> tuple[str, str] | None:
    """Compare an answer with *patch* with one that appends an item."""
    answer, expected = (pb.ReviewResponse(allowed=True, patch=text) for text in (patch, APPENDED))
    return difference(answer, expected, request)


@pytest.mark.parametrize(
    "patch",
    [
        APPENDED,
        APPENDED.replace(b":", b" : "),
        b'[{"path":"/list/-","op":"add","value":{"a":3,"b":1}}]',
        b'[{"op":"replace","path":"","value":' + LEFT + b"}]",
        b'[{"op":"copy","from":"/list/0","path":"/list/-"},{"op":"replace","path":"/list/2","value":{"b":1,"a":3}}]',
    ],
)
def test_patches_that_lead_to_the_same_object_are_equal(patch: bytes) -> None:
    assert found(patch) is None


@pytest.mark.parametrize(
    ("patch", "object_text"),
    [
        (b"", '{"list":[{"a":1},{"a":2}],'),
        (APPENDED.replace(b"3", b"3.0"), '{"a":3.0,"b":1}'),
        (APPENDED.replace(b"/2", b"/0"), '{"list":[{"a":3,"b":1},'),
        (b'[{"op":"replace","path":"","value":' + LEFT.replace(b"993", b"992") + b"}]", "9007199254740992"),
        (APPENDED.replace(b"/2", b"/4"), "the patch does not apply"),
        (b"{}", "the patch does not apply"),
    ],
)
def test_patches_that_lead_to_other_objects_differ(patch: bytes, object_text: str) -> None:
    differing = found(patch)
    assert differing is not None
    answer, expected = differing
    assert answer.startswith("object ")
    assert expected.startswith("object ")
    assert object_text in answer.replace('\\"', '"')


def test_a_patch_of_a_malformed_request_has_no_meaning() -> None:
    assert found(b"[]", b"{") is None

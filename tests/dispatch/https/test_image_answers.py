"""Verdicts of answers to ImageReviews, and which responses are followed by a retry, without sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.steps import finish
from gateway.engine.dispatch.https.connection import HttpResponse
from gateway.engine.dispatch.https.image_review import read_answer
from gateway.engine.dispatch.https.response import is_transient
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied, Failed

if TYPE_CHECKING:
    from gateway.pure.core.verdict import Verdict

OF_IMAGES = {"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1"}
PLAIN = "one or more images rejected by webhook backend"
DENIED = "image policy webhook backend denied one or more images: "


def judged(review: dict[str, Any]) -> Verdict:
    return finish(read_answer(json.dumps(review).encode()))


def denied(message: str = PLAIN, *annotations: tuple[str, str]) -> Denied:
    return Denied(403, "Forbidden", message, audit_annotations=annotations)


@pytest.mark.parametrize(
    ("review", "verdict"),
    [
        # Absent and null members have their zero value, and an absent kind is the expected one.
        ({}, denied()),
        ({"kind": None, "apiVersion": None, "status": None}, denied()),
        ({"kind": "ImageReview", "status": {"allowed": True}}, ALLOWED),
        ({"apiVersion": OF_IMAGES["apiVersion"], "status": {"allowed": True}}, ALLOWED),
        (OF_IMAGES, denied()),
        ({**OF_IMAGES, "status": {}}, denied()),
        ({**OF_IMAGES, "status": {"allowed": None}}, denied()),
        ({**OF_IMAGES, "status": {"allowed": False, "reason": None}}, denied()),
        ({**OF_IMAGES, "status": {"allowed": True, "reason": None, "auditAnnotations": None}}, ALLOWED),
        ({**OF_IMAGES, "status": {"allowed": True, "reason": "x"}}, ALLOWED),
        (
            {**OF_IMAGES, "status": {"allowed": True, "auditAnnotations": {"b": None, "a": "x"}}},
            Allowed(audit_annotations=(("a", "x"), ("b", ""))),
        ),
        (
            {**OF_IMAGES, "status": {"reason": "no", "auditAnnotations": {"a": None}}},
            denied(f"{DENIED}no", ("a", "")),
        ),
        # Other members of a wrong type do not turn a denial into a failure.
        ({**OF_IMAGES, "status": {"allowed": False, "reason": 5}}, denied()),
        ({**OF_IMAGES, "status": {"reason": "no", "auditAnnotations": []}}, denied(f"{DENIED}no")),
        ({**OF_IMAGES, "status": {"reason": "no", "auditAnnotations": {"a": 1}}}, denied(f"{DENIED}no")),
        ({**OF_IMAGES, "metadata": 5, "spec": [], "status": {"reason": "no"}}, denied(f"{DENIED}no")),
    ],
)
def test_answers_are_read_as_by_the_api_server(review: dict[str, Any], verdict: Verdict) -> None:
    assert judged(review) == verdict


@pytest.mark.parametrize(
    ("written", "read"),
    [(rb"a\ud800b", "a\ufffdb"), (b"caf\xe9", "caf\ufffd"), (rb"\ud83d\ude00", "\U0001f600")],
)
def test_a_denial_with_invalid_unicode_is_a_denial(written: bytes, read: str) -> None:
    assert finish(read_answer(b'{"status":{"allowed":false,"reason":"%b"}}' % written)) == denied(
        f"{DENIED}{read}"
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["reason", "auditAnnotations", "x"]), json_values),
    st.sampled_from([{}, {"allowed": None}, {"allowed": False}]),
    st.dictionaries(st.sampled_from(["metadata", "spec", "x"]), json_values),
)
def test_a_denial_is_a_denial_whatever_else_is_in_it(
    status: dict[str, Any], allowed: dict[str, Any], rest: dict[str, Any]
) -> None:
    assert isinstance(judged({**rest, **OF_IMAGES, "status": {**status, **allowed}}), Denied)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"kind":"Status","apiVersion":"v1"}',
        b'{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1","status":{"allowed":true}}',
        b'{"status":[]}',
        b'{"status":{"allowed":"true"}}',
        b'{"status":{"allowed":true,"reason":5}}',
        b'{"status":{"allowed":true,"auditAnnotations":{"a":1}}}',
        b'{"kind":' + b"[" * 100_000,
    ],
)
def test_other_bodies_are_failures(body: bytes) -> None:
    verdict = finish(read_answer(body))
    assert isinstance(verdict, Failed)
    assert verdict.cause.startswith("failed to call webhook: the answer cannot be decoded: ")


def test_the_text_of_a_failure_is_bounded() -> None:
    verdict = judged({"kind": "x" * 100_000})
    assert isinstance(verdict, Failed)
    assert len(verdict.cause) < 1100


@pytest.mark.parametrize(("allowed", "kind"), [(True, Failed), (False, Denied)])
def test_an_answer_with_very_many_annotations_is_not_read_whole(allowed: bool, kind: type) -> None:
    annotations = {str(number): "" for number in range(100_000)}
    verdict = judged({"status": {"allowed": allowed, "reason": "no", "auditAnnotations": annotations}})
    assert isinstance(verdict, kind)
    assert verdict == denied(f"{DENIED}no") or isinstance(verdict, Failed)


def failure(code: int = 0, reason: str | None = None, **details: int) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**status, "details": details or None}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "is_retried"),
    [
        (200, {}, b"", False),
        (200, {"content-type": "/"}, b"", True),
        (400, {}, b"", False),
        (400, {"retry-after": "1"}, b"", True),
        (400, {"retry-after": "0"}, b"", False),
        (408, {}, b"", False),
        (429, {}, b"", True),
        (500, {}, b"{}", True),
        (501, {}, b"", True),
        (502, {}, b"", True),
        (503, {}, b"", False),
        (503, {"retry-after": "soon"}, b"", False),
        (503, {"retry-after": "5"}, b"", True),
        (504, {}, b"", True),
        (505, {}, b"", True),
        # A Status in the body takes the place of the status code.
        (500, {}, failure(403, "Forbidden"), False),
        (500, {}, failure(500), True),
        (500, {}, failure(), False),
        (403, {}, failure(500, "InternalError"), True),
        (403, {}, failure(504, "Timeout"), True),
        (403, {}, failure(429, "Forbidden"), True),
        (503, {}, failure(503, "ServiceUnavailable"), False),
        (503, {}, failure(503, "ServiceUnavailable", retryAfterSeconds=1), True),
        (403, {}, failure(500, "ServerTimeout", retryAfterSeconds=0), True),
        (403, {}, failure(500, "ServerTimeout"), False),
        (403, {}, failure(500, "Overworked"), True),
        (403, {}, failure(504, "Overworked"), True),
        (403, {}, failure(502, "Overworked"), False),
        (500, {}, failure(500, "Conflict"), False),
    ],
)
def test_the_same_responses_are_retried_as_by_the_api_server(
    status: int, headers: dict[str, str], body: bytes, is_retried: bool
) -> None:
    assert is_transient(HttpResponse(status, headers, body)) is is_retried

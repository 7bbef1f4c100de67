"""Decoding of AdmissionReviews: recorded bodies, forms of JSON, wrong members."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import MalformedReview, ReviewError, UnsupportedReview
from gateway.pure.core.review import OPERATIONS, V1, V1BETA1, AdmissionRequest, decode
from tests.core.build import REVIEWS, body, document, request, resource

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = sorted(REVIEWS.glob("*.json"))


def known(decoded: AdmissionRequest) -> dict[str, Any]:
    """All decoded values; the JSON as its value, since its spacing varies."""
    members = {name: getattr(decoded, name) for name in decoded.__slots__ if name != "json"}
    return {**members, "json": orjson.loads(decoded.json)}


def test_the_recorded_reviews_are_there() -> None:
    assert len(RECORDED) == 45


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_recorded_review_decodes_to_its_values(path: Path) -> None:
    recorded = json.loads(path.read_text())["request"]
    decoded = decode(path.read_bytes())
    assert decoded.api_version == V1
    assert decoded.uid == recorded["uid"]
    assert decoded.operation == recorded["operation"]
    assert decoded.resource == tuple(recorded["resource"][part] for part in ("group", "version", "resource"))
    asked_for = recorded.get("requestResource", recorded["resource"])
    assert decoded.request_resource == tuple(asked_for[part] for part in ("group", "version", "resource"))
    kind = recorded.get("requestKind", recorded["kind"])
    assert decoded.kind == tuple(kind[part] for part in ("group", "version", "kind"))
    assert decoded.sub_resource == recorded.get("subResource", "")
    assert decoded.request_sub_resource == recorded.get("requestSubResource", "")
    assert decoded.namespace == recorded.get("namespace", "")
    assert decoded.dry_run is recorded["dryRun"]
    assert decoded.object == recorded["object"]
    assert decoded.old_object == recorded["oldObject"]
    assert decoded.document == recorded


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_workers_get_the_bytes_of_the_api_server(path: Path) -> None:
    review = path.read_bytes().rstrip()
    assert decode(review).json == review[review.index(b'"request":') + len(b'"request":') : -1]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_any_spacing_and_order_gives_the_same_request(path: Path) -> None:
    written = path.read_bytes()
    review = json.loads(written)
    expected = known(decode(written))
    for other in (
        json.dumps(review, indent=2),
        json.dumps(review, indent="\t", ensure_ascii=False),
        json.dumps({name: review[name] for name in ("request", "apiVersion", "kind")}),
        json.dumps({**review, "response": None, "unknown": {"request": 1}}),
        written.decode() + " \r\n\t",
        "\n " + written.decode(),
        written.decode().replace('"request":', '"request": \n', 1),
        written.decode().rstrip()[:-1] + "\n}",
    ):
        assert known(decode(other.encode())) == expected


SPACES = st.text(" \t\r\n", max_size=2)


@given(gaps=st.lists(SPACES, min_size=1, max_size=9), version=st.sampled_from([V1, V1BETA1]))
@settings(deadline=None, derandomize=True)
def test_spaces_between_tokens_are_ignored(gaps: list[str], version: str) -> None:
    written = body(document(), version).decode()
    spaced, inside, count = "", False, 0
    for before, char in zip("\0" + written, written, strict=False):
        if char == '"' and before != "\\":
            inside = not inside
        if not inside and char in '{}[],:"':
            spaced += char + gaps[count % len(gaps)]
            count += 1
        else:
            spaced += char
    assert known(decode(spaced.encode())) == known(decode(written.encode()))


def test_v1beta1_is_decoded_and_kept() -> None:
    decoded = decode(body(document(), V1BETA1))
    assert decoded.api_version == V1BETA1
    assert known(decoded) == {**known(request()), "api_version": V1BETA1}


def test_defaults_of_absent_members() -> None:
    short = document()
    for member in ("namespace", "object", "oldObject", "dryRun"):
        del short[member]
    decoded = decode(body(short))
    assert (decoded.namespace, decoded.object, decoded.old_object, decoded.dry_run) == ("", None, None, False)
    assert decoded.request_resource == decoded.resource == ("", "v1", "pods")
    assert (decoded.sub_resource, decoded.request_sub_resource) == ("", "")
    assert decoded.kind == ("", "v1", "Pod")


def test_requested_and_sent_resource_are_both_decoded() -> None:
    decoded = request(
        resource=resource("apps/v1/deployments"),
        subResource="scale",
        requestResource=resource("extensions/v1beta1/deployments"),
        requestKind={"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
    )
    assert decoded.resource == ("apps", "v1", "deployments")
    assert decoded.request_resource == ("extensions", "v1beta1", "deployments")
    assert decoded.kind == ("extensions", "v1beta1", "Deployment")
    assert (decoded.sub_resource, decoded.request_sub_resource) == ("scale", "")


def test_without_a_request_resource_the_subresource_is_that_of_the_resource() -> None:
    assert request(subResource="exec", requestSubResource=None).request_sub_resource == "exec"


WRONG: list[tuple[str, tuple[object, ...], str]] = [
    ("uid", (None, "", 0, 5, [], {}), "a non-empty string"),
    ("operation", (None, "", "create", "GET", "*", 1, ["CREATE"], {}), "CREATE, UPDATE, DELETE or CONNECT"),
    (
        "resource",
        (None, "", "pods", 0, [], {}, {"group": "", "version": "v1"}, resource("/v1/pods") | {"group": None}),
        "{group, version, resource} as strings",
    ),
    (
        "kind",
        (None, "Pod", 0, [], {}, {"group": "", "kind": "Pod"}, {"group": "", "version": 1, "kind": "Pod"}),
        "{group, version, kind} as strings",
    ),
    (
        "requestResource",
        ("", "pods", 0, False, [], {}, resource("/v1/pods") | {"version": 1}),
        "{group, version, resource} as strings",
    ),
    ("requestKind", ("", "Pod", 0, False, [], {}, {"group": "", "version": "v1", "kind": None}), "{group"),
    ("subResource", (0, 1, False, [], {}, ["exec"]), "a string"),
    ("namespace", (0, 1, False, [], {}, ["default"]), "a string"),
    ("object", ("", "pod", 0, 1, False, [], [1]), "an object or null"),
    ("oldObject", ("", "pod", 0, 1, False, [], [1]), "an object or null"),
    ("dryRun", ("", "true", 0, 1, [], {}), "true or false"),
]


@pytest.mark.parametrize(
    ("member", "value", "expected"),
    [(member, value, expected) for member, values, expected in WRONG for value in values],
)
def test_an_error_names_the_member_and_the_expected_value(member: str, value: object, expected: str) -> None:
    with pytest.raises(MalformedReview, match=rf"^request\.{member}: found .*, expected ") as caught:
        request(**{member: value})
    assert expected in str(caught.value)


@pytest.mark.parametrize("value", [0, 1, False, [], {}])
def test_a_request_subresource_of_the_wrong_type_is_named(value: object) -> None:
    with pytest.raises(MalformedReview, match=r"^request\.requestSubResource: found .*, expected a string"):
        request(requestResource=resource("/v1/pods"), requestSubResource=value)


@pytest.mark.parametrize("member", ["uid", "operation", "resource", "kind"])
def test_a_missing_member_is_named(member: str) -> None:
    short = document()
    del short[member]
    with pytest.raises(MalformedReview, match=rf"^request\.{member}: found nothing, expected "):
        decode(body(short))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (7, "found 7"),
        ("x" * 70, f'found "{"x" * 70}"'),
        ("x" * 100, "found a value that is too long to show"),
        (["x"], "found an array"),
        ({"x": 1}, "found an object"),
    ],
)
def test_an_error_shows_a_short_found_value(value: object, shown: str) -> None:
    with pytest.raises(MalformedReview, match=shown):
        request(operation=value)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (b"", MalformedReview, "not JSON"),
        (b"not json", MalformedReview, "not JSON"),
        (b"\xff", MalformedReview, "not JSON"),
        (b"null", MalformedReview, "not an AdmissionReview"),
        (b"[]", MalformedReview, "not an AdmissionReview"),
        (b"{}", MalformedReview, "not an AdmissionReview"),
        (b'{"kind":"Pod","apiVersion":"v1"}', MalformedReview, "not an AdmissionReview"),
        (b'{"kind":"AdmissionReview"}', UnsupportedReview, "apiVersion: found nothing, expected"),
        (
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2","request":{}}',
            UnsupportedReview,
            'found "admission.k8s.io/v2", expected admission.k8s.io/v1 or admission.k8s.io/v1beta1',
        ),
        (b'{"kind":"AdmissionReview","apiVersion":{}}', UnsupportedReview, "found an object"),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}', MalformedReview, "found nothing"),
        (
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}',
            MalformedReview,
            "^request: found nothing, expected an AdmissionRequest",
        ),
        (
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":[{}]}',
            MalformedReview,
            "^request: found an array",
        ),
        (
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{}}',
            MalformedReview,
            r"^request\.uid: found nothing",
        ),
    ],
)
def test_a_body_that_is_not_a_review_is_refused(text: bytes, error: type[ReviewError], message: str) -> None:
    with pytest.raises(error, match=message):
        decode(text)


@pytest.mark.parametrize("spaced", [False, True])
def test_no_prefix_of_a_review_is_a_review(spaced: bool) -> None:
    whole = json.dumps(json.loads(body(document())), indent=1).encode() if spaced else body(document())
    whole = whole.rstrip()
    for length in range(len(whole)):
        with pytest.raises(MalformedReview, match="not JSON"):
            decode(whole[:length])


@pytest.mark.parametrize("tail", [b"x", b"}", b"{}", b",", b"\0", b'"', b"]", b" null", b"\xa0", b"\x0c"])
def test_bytes_after_a_review_are_refused(tail: bytes) -> None:
    with pytest.raises(MalformedReview, match="not JSON"):
        decode(body(document()) + tail)


def test_the_last_of_duplicate_members_counts() -> None:
    once = body(document(uid="first")).rstrip()
    request_json = orjson.dumps(document(uid="second"))
    assert decode(once[:-1] + b',"request":' + request_json + b"}").uid == "second"
    doubled = once.replace(b'"operation":"CREATE"', b'"operation":"CREATE","operation":"DELETE"')
    assert decode(doubled).operation == "DELETE"
    versions = once.replace(b',"request":', b',"apiVersion":"admission.k8s.io/v1beta1","request":', 1)
    assert decode(versions).api_version == V1BETA1


def test_a_review_that_has_to_be_rewritten_and_nests_too_deeply_is_refused() -> None:
    spec: object = 1
    for _ in range(300):
        spec = [spec]
    spaced = json.dumps(
        {"kind": "AdmissionReview", "apiVersion": V1, "request": document(object={"x": spec})}
    )
    with pytest.raises(MalformedReview, match="nested too deeply"):
        decode(spaced.encode())


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3),
    max_leaves=8,
)
MEMBERS = (*tuple(document()), "requestResource", "requestKind", "subResource", "requestSubResource")


@given(members=st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES, max_size=3))
@settings(deadline=None, derandomize=True)
def test_any_value_of_a_member_decodes_or_is_named_in_the_error(members: dict[str, object]) -> None:
    try:
        decoded = request(**members)
    except MalformedReview as error:
        named = str(error).removeprefix("request.").partition(":")[0]
        assert named in members
        return
    assert decoded.document == document(**members)
    assert decoded.operation in OPERATIONS
    assert isinstance(decoded.dry_run, bool)
    for text in (decoded.uid, decoded.sub_resource, decoded.request_sub_resource, decoded.namespace):
        assert isinstance(text, str)
    for triple in (decoded.resource, decoded.request_resource, decoded.kind):
        assert [type(part) for part in triple] == [str, str, str]
    for held in (decoded.object, decoded.old_object):
        assert held is None or isinstance(held, dict)
    hash(decoded.shape)


@given(text=st.binary(max_size=64) | JSON_VALUES.map(orjson.dumps))
@settings(deadline=None, derandomize=True)
def test_any_bytes_are_refused_without_another_exception(text: bytes) -> None:
    with pytest.raises(ReviewError):
        decode(text)
    head = body(document()).partition(b'"request":')[0] + b'"request":'
    for tail in (b"", b"}", b"}}"):
        with pytest.raises(ReviewError):
            decode(head + text + tail)


@pytest.mark.parametrize("member", ["object", "oldObject", "options"])
def test_a_request_that_nests_too_deeply_cannot_be_rewritten(member: str) -> None:
    deep: Any = 0
    for _ in range(300):
        deep = {"a": deep}
    text = json.dumps(document(**{member: {"x": "deep"}})).replace('"deep"', json.dumps(deep))
    as_the_api_server_writes = '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":%s}'
    decoded = decode((as_the_api_server_writes % text).encode())
    assert decoded.json == text.encode()
    assert decoded.document == json.loads(text)
    assert not decoded.can_be_rewritten()
    otherwise = '{"apiVersion":"admission.k8s.io/v1","request":%s,"kind":"AdmissionReview"}'
    with pytest.raises(MalformedReview, match=r"^request: nested too deeply"):
        decode((otherwise % text).encode())


@pytest.mark.parametrize("levels", range(240, 260))
@pytest.mark.parametrize("beside", [0, 300])
def test_a_request_that_can_be_rewritten_can_be_nested_one_level_deeper(levels: int, beside: int) -> None:
    # Brackets that do not nest decide nothing.
    options = b"[" * levels + b"]" * levels + b',"wide":[%b]' % b",".join([b"{}"] * beside)
    text = orjson.dumps(document(options="deep")).replace(b'"deep"', options)
    decoded = decode(b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":%b}' % text)
    try:
        orjson.dumps({"request": decoded.document})
        can_be_written = True
    except TypeError:
        can_be_written = False
    assert decoded.can_be_rewritten() is can_be_written

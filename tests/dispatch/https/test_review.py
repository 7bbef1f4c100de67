"""Verdicts of answer bodies, compared with a table of kube-apiserver's rules, without sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.steps import finish
from gateway.engine.dispatch.https.review import read_answer
from gateway.pure.core.decision import decide
from gateway.pure.core.response import encode
from gateway.pure.core.verdict import Allowed, Denied, Details, Failed
from tests.core.build import request, settle, webhook

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Phase, ReviewVersion

UID = "the-uid"
ABSENT = "ABSENT"
V1 = "admission.k8s.io/v1"
PHASES: list[Phase] = ["mutate", "validate"]
VERSIONS: list[ReviewVersion] = ["v1", "v1beta1"]


def members(**choices: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with one of the given values for each member; ``ABSENT`` leaves it out."""
    drawn = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in choices.items()})
    return drawn.map(lambda made: {name: value for name, value in made.items() if value is not ABSENT})


responses = members(
    uid=[UID, UID, UID, "other", "", None, ABSENT],
    allowed=[True, True, True, False, None, ABSENT],
    patch=["W10=", "", None, ABSENT, ABSENT],
    patchType=["JSONPatch", "", "Merge", None, ABSENT, ABSENT],
    warnings=[["w"], [], None, ABSENT],
)
reviews = st.builds(
    lambda whole, response: whole | ({} if response is ABSENT else {"response": response}),
    members(
        apiVersion=[
            "admission.k8s.io/v1",
            "admission.k8s.io/v1",
            "admission.k8s.io/v1beta1",
            "v1",
            "",
            ABSENT,
        ],
        kind=["AdmissionReview", "AdmissionReview", "Pod", "", ABSENT],
    ),
    st.one_of(responses, responses, responses, st.none(), st.just(ABSENT)),
)


def expected(review: dict[str, Any], phase: Phase, version: ReviewVersion) -> str:
    """The verdict by kube-apiserver's rules; in addition, a denial takes precedence over its patch."""
    wanted = f"admission.k8s.io/{version}"
    api_version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    response = review.get("response")
    rules = [
        (api_version not in ("", wanted) or kind not in ("", "AdmissionReview"), "undecodable"),
        (response is None, "absent"),
    ]
    for is_so, outcome in rules:
        if is_so:
            return outcome
    assert response is not None
    patch, patch_type = response.get("patch"), response.get("patchType")
    is_v1 = version == "v1"
    table = [
        (is_v1 and (response.get("uid") or "") != UID, "response.uid"),
        (is_v1 and (api_version, kind) != (wanted, "AdmissionReview"), "expected webhook response of"),
        (not response.get("allowed"), "denied"),
        (is_v1 and phase == "validate" and bool(patch), "may not return response.patch"),
        (is_v1 and phase == "validate" and patch_type is not None, "may not return response.patchType"),
        (is_v1 and bool(patch) and patch_type is None, "but not response.patchType"),
        (is_v1 and not patch and patch_type is not None, "but not response.patch"),
        (is_v1 and patch_type == "", 'of ""'),
        (is_v1 and patch_type not in (None, "JSONPatch"), "unsupported patch type"),
        (phase == "mutate" and bool(patch), "patched"),
    ]
    return next((outcome for is_so, outcome in table if is_so), "allowed")


@example(
    {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": UID}}, "mutate", "v1"
)
@given(reviews, st.sampled_from(PHASES), st.sampled_from(VERSIONS))
def test_answers_have_the_verdict_of_the_api_server(
    review: dict[str, Any], phase: Phase, version: ReviewVersion
) -> None:
    outcome = expected(review, phase, version)
    verdict = finish(read_answer(json.dumps(review).encode(), phase, version, UID))
    warnings = tuple((review.get("response") or {}).get("warnings") or ())
    match outcome:
        case "allowed":
            assert verdict == Allowed(b"", warnings)
        case "patched":
            assert verdict == Allowed(b"[]", warnings)
        case "denied":
            assert verdict == Denied(warnings=warnings)
        case "undecodable":
            assert isinstance(verdict, Failed)
            assert verdict.cause.startswith("failed to call webhook: the answer cannot be decoded")
        case _:
            assert isinstance(verdict, Failed)
            assert outcome in verdict.cause


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("uid", "allowed", "patch", "patchType", "warnings", "auditAnnotations", "status")


@given(
    st.dictionaries(st.sampled_from(NAMES), json_values),
    st.sampled_from(PHASES),
    st.sampled_from(VERSIONS),
)
def test_a_denial_is_a_denial_whatever_else_is_in_it(
    rest: dict[str, Any], phase: Phase, version: ReviewVersion
) -> None:
    response = rest | {"uid": UID, "allowed": False}
    review = {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "response": response}
    assert isinstance(finish(read_answer(json.dumps(review).encode(), phase, version, UID)), Denied)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()), st.sampled_from(VERSIONS))
@example(b'{"response":{"uid":"the-uid","allowed":true,"patch":"\xff"}}', "v1beta1")
@example(b'{"response":{"uid":"\\ud800"}}', "v1")
def test_other_bodies_are_no_answers(body: bytes, version: ReviewVersion) -> None:
    verdict = finish(read_answer(body, "mutate", version, UID))
    assert isinstance(verdict, Failed)
    assert verdict.code == 503


def denial(status: dict[str, Any], **members: Any) -> Verdict:
    """The verdict of a webhook that denies with *status*."""
    response = {"uid": UID, "allowed": False, "status": status, **members}
    review = {"apiVersion": V1, "kind": "AdmissionReview", "response": response}
    return finish(read_answer(json.dumps(review).encode(), "validate", "v1", UID))


@pytest.mark.parametrize("what", ["warnings", "causes"])
def test_a_denial_with_too_many_parts_is_a_denial(what: str) -> None:
    status: dict[str, Any] = {"message": "no"}
    if what == "causes":
        status["details"] = {"causes": [{"field": "a"}] * 100_000}
    warnings = ["w"] * 100_000 if what == "warnings" else []
    verdict = denial(status, warnings=warnings)
    assert verdict == Denied(400, "", "no")


def test_a_denial_with_very_many_causes_keeps_its_details() -> None:
    details = {"causes": [{"field": "a"}] * 100_000, "name": "web", "retryAfterSeconds": 5}
    verdict = denial({"code": 429, "message": "no", "details": details})
    assert verdict == Denied(429, "", "no", details=Details("web", retry_after_seconds=5))


@pytest.mark.parametrize(
    "unreadable",
    [
        {"details": {"retryAfterSeconds": "5"}},
        {"details": {"retryAfterSeconds": 5.5}},
        {"details": {"retryAfterSeconds": 2**31}},
        {"details": {"retryAfterSeconds": -(2**31) - 1}},
        {"details": {"name": 5}},
        {"details": {"uid": []}},
        {"details": []},
        {"status": 7},
        {"metadata": {"remainingItemCount": "1"}},
        {"metadata": {"remainingItemCount": 2**63}},
        {"details": {"causes": [{"message": 1}], "name": 5}},
    ],
)
def test_a_denial_with_invalid_details_keeps_code_reason_and_message(
    unreadable: dict[str, Any],
) -> None:
    # The API server could not decode such an answer, so the gateway must not pass it on.
    status = {"code": 422, "reason": "Invalid", "message": "no", **unreadable}
    assert denial(status) == Denied(422, "Invalid", "no")


@pytest.mark.parametrize(
    ("unreadable", "read"),
    [
        ({"code": "422"}, Denied(400, "Invalid", "no")),
        ({"code": 422.0}, Denied(400, "Invalid", "no")),
        ({"reason": 5}, Denied(422, "", "no")),
        ({"message": ["no"]}, Denied(422, "Invalid", "Invalid")),
    ],
)
def test_the_valid_members_of_a_denial_are_kept(unreadable: dict[str, Any], read: Denied) -> None:
    assert denial({"code": 422, "reason": "Invalid", "message": "no", **unreadable}) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rb"a\ud800b", "a\ufffdb"),
        (rb"a\uDFFF\ud83d\ude00\ud83d", "a\ufffd\U0001f600\ufffd"),
        (rb"\\ud800 \ud800", "\\ud800 \ufffd"),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_a_denial_with_invalid_unicode_is_a_denial(written: bytes, read: str) -> None:
    # The API server also replaces invalid Unicode by U+FFFD.
    body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"the-uid",'
    body += b'"allowed":false,"status":{"code":403,"message":"%b"}}}' % written
    assert finish(read_answer(body, "validate", "v1", UID)) == Denied(403, "", read)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
int32 = st.integers(-(2**31), 2**31 - 1)


def objects(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that may have each of *members*, or null in its place."""
    return st.fixed_dictionaries({}, optional={name: st.none() | one for name, one in members.items()})


statuses = objects(
    code=st.sampled_from([0, 200, 399, 400, 403, 429, 503, 599, 600, 999]) | int32,
    reason=texts | st.sampled_from(["Invalid", "TooManyRequests"]),
    message=texts,
    status=st.sampled_from(["Success", "Failure", "Odd", ""]),
    metadata=objects(**{"resourceVersion": texts, "continue": texts, "remainingItemCount": int32}),
    details=objects(
        name=texts,
        group=texts,
        kind=texts,
        uid=texts,
        retryAfterSeconds=int32,
        causes=st.lists(objects(reason=texts, message=texts, field=texts), max_size=2),
    ),
)


def as_read(value: Any) -> Any:
    """*value* as the API server encodes it: without null and empty members, except a count of 0."""
    if not isinstance(value, dict):
        return value
    read = {name: as_read(member) for name, member in value.items()}
    return {
        name: member
        for name, member in read.items()
        if member or (name == "remainingItemCount" and member == 0)
    }


@given(statuses)
def test_a_single_denial_keeps_its_whole_status(status: dict[str, Any]) -> None:
    hook = webhook(phase="validate")
    decision = decide(settle([hook], request(), {hook.name: denial(status)}), "None")
    sent = json.loads(encode(V1, "u-1", decision))["response"]["status"]
    expected = as_read(status)
    code = expected.get("code", 0)
    expected["code"] = code if 400 <= code <= 999 else 400
    expected["status"] = expected.get("status", "Failure").replace("Success", "Failure")
    if expected["code"] == 403:
        expected.setdefault("reason", "Forbidden")
    text = expected.get("message") or as_read(status).get("reason") or "denied without explanation"
    expected["message"] = f"{hook.name}: {text}"
    if causes := expected.get("details", {}).get("causes"):
        for cause in causes:
            cause["message"] = f"{hook.name}: {cause.get('message') or ''}"
        expected["details"]["causes"] = [as_read(cause) for cause in causes]
    assert sent == expected


def test_invalid_utf_8_in_a_denial_is_replaced_in_steps() -> None:
    """Also if a character is in two steps. A step has at most 256 KiB."""
    message = b"\xff" + "\u20ac".encode() * 700_000 + b"\xff" * 500_000
    body = (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%b","allowed":false,'
        b'"status":{"code":403,"message":"%b"}}}' % (UID.encode(), message)
    )
    verdicts: list[object] = []

    def judged() -> Generator[None, None, None]:
        verdicts.append((yield from read_answer(body, "validate", "v1", UID)))

    assert len(list(judged())) > len(body) / (256 * 1024)
    assert verdicts == [Denied(403, "", message.decode(errors="replace"))]

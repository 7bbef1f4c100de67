"""What bodies mean, held against a table of kube-apiserver's rules; no socket is needed for that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.verdict import Allowed, Denied, Failed
from gateway.dispatch.https.answers import read_answer
from gateway.turns import finish

if TYPE_CHECKING:
    from gateway.core.webhook import Phase, ReviewVersion

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
    """What kube-apiserver's tables say, and the gateway's contract: a denial comes before its patch."""
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
def test_answers_mean_what_the_api_server_takes_them_for(
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
def test_a_denial_stands_whatever_else_is_said(
    rest: dict[str, Any], phase: Phase, version: ReviewVersion
) -> None:
    response = rest | {"uid": UID, "allowed": False}
    review = {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "response": response}
    assert isinstance(finish(read_answer(json.dumps(review).encode(), phase, version, UID)), Denied)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()), st.sampled_from(VERSIONS))
@example(b'{"response":{"uid":"the-uid","allowed":true,"patch":"\xff"}}', "v1beta1")
@example(b'{"response":{"uid":"\\ud800"}}', "v1")
def test_nothing_else_is_an_answer(body: bytes, version: ReviewVersion) -> None:
    verdict = finish(read_answer(body, "mutate", version, UID))
    assert isinstance(verdict, Failed)
    assert verdict.code == 503


@pytest.mark.parametrize("what", ["warnings", "causes"])
def test_a_denial_with_very_many_parts_stands(what: str) -> None:
    status: dict[str, Any] = {"message": "no"}
    response: dict[str, Any] = {"uid": UID, "allowed": False, "status": status}
    if what == "causes":
        status["details"] = {"causes": [{"field": "a"}] * 100_000}
    else:
        response["warnings"] = ["w"] * 100_000
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    verdict = finish(read_answer(json.dumps(review).encode(), "validate", "v1", UID))
    assert verdict == Denied(400, "", "no")

"""``resource.post`` of Kyverno's policies: reviews of access, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.pure.admission_policies.access_reviews import MAX_CHECKS, AccessReviews
from gateway.pure.admission_policies.params import UnresolvedError
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.conditions import AccessCheck, AccessDecision
from tests.kyverno.documents import mutating, validating
from tests.policies.documents import decided

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Json = dict[str, Any]

VERSION: Final = "authorization.k8s.io/v1"
REVIEW: Final = (
    "{'kind': dyn('SubjectAccessReview'), 'spec': dyn({'user': dyn(request.userInfo.username), "
    "'resourceAttributes': dyn({'verb': 'delete', 'resource': 'namespaces', "
    "'name': string(object.metadata.name)})})}"
)
POST: Final = f"resource.post('{VERSION}', 'subjectaccessreviews', {REVIEW})"
SPEC: Final = {
    "user": "alice",
    "resourceAttributes": {"verb": "delete", "resource": "namespaces", "name": "web"},
}
ALICE: Final = {"userInfo": {"username": "alice"}}


def asked(folder: Path, *validations: str, decision: AccessDecision, **spec: Any) -> tuple[str, list[Json]]:
    """Return the message of a denial by a policy with *validations*, and what the authorizer is asked."""
    specs: list[Json] = []

    def authorize(found: Json) -> AccessDecision:
        specs.append(found)
        return decision

    answer = decided(folder, [validating(*validations, **spec)], ALICE, authorize=authorize)
    status = answer.decision.status
    return "" if status is None else status.message, specs


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        (
            AccessDecision(allowed=True, reason="by a role"),
            "{'allowed': dyn(true), 'reason': dyn('by a role')}",
        ),
        (AccessDecision(), "{'allowed': false}"),
        (
            AccessDecision(denied=True, evaluation_error="no role"),
            "{'allowed': dyn(false), 'denied': dyn(true), 'evaluationError': dyn('no role')}",
        ),
    ],
)
def test_a_review_of_access_is_a_check_of_the_authorizer(
    tmp_path: Path, decision: AccessDecision, status: str
) -> None:
    for expression in (POST, POST.replace("post", "Post"), f"dyn(resource).post({POST.partition('(')[2]}"):
        found = asked(
            tmp_path,
            "variables.found.status == variables.status",
            f"{expression}.spec.user == 'alice' && variables.found.kind == 'SubjectAccessReview'",
            decision=decision,
            variables=[
                {"name": "found", "expression": expression},
                {"name": "status", "expression": status},
            ],
        )
        # All of them are one check, which a review sends once.
        assert found == ("", [SPEC])


def test_a_policy_decides_by_it(tmp_path: Path) -> None:
    for allowed in (True, False):
        message, _ = asked(tmp_path, f"{POST}.status.allowed == true", decision=AccessDecision(allowed))
        assert message == ("" if allowed else "Policy p failed: CEL expression validation failed at index 0")
    change = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'may': string(%s.status.allowed)}}]"
    pod = {"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}, **ALICE}
    documents = [mutating(change % POST)]
    found = decided(tmp_path, documents, pod, phase="mutate", authorize=lambda _: AccessDecision())
    assert found.decision.patch == b'[{"op":"add","path":"/metadata/labels","value":{"may":"false"}}]'


def test_without_a_decision_the_expression_is_an_error(tmp_path: Path) -> None:
    message, _ = asked(tmp_path, f"{POST}.status.allowed == true", decision=AccessDecision(error="no answer"))
    assert message == "Policy p error: error: failed to create resource: no answer"


def test_a_review_that_nests_too_deeply_is_an_error() -> None:
    """Objects of the cluster, of which it can be made, nest deeper than requests."""
    spec: Json = {}
    for _ in range(300):
        spec = {"a": spec}
    with pytest.raises(EvaluationError, match=r"^failed to create resource: spec nests too deeply$"):
        AccessReviews({}).post(VERSION, "subjectaccessreviews", "", {"spec": spec})


def test_a_policy_of_one_namespace_reviews_access_to_that_one(tmp_path: Path) -> None:
    def post(namespace: str) -> str:
        attributes = f"{{'verb': 'get', 'resource': 'pods', 'namespace': '{namespace}'}}"
        spec = f"{{'user': dyn('bob'), 'resourceAttributes': dyn({attributes})}}"
        return f"resource.post('{VERSION}', 'localsubjectaccessreviews', {{'spec': dyn({spec})}})"

    for namespace, expected in (
        ("default", ""),
        ("kube-system", "spec.resourceAttributes.namespace: Invalid value: must match metadata.namespace"),
    ):
        message, specs = asked(
            tmp_path,
            f"{post(namespace)}.status.allowed == true",
            decision=AccessDecision(allowed=True),
            namespace="default",
        )
        assert message.endswith(expected)
        assert len(specs) == (not expected)
        assert bool(message) == bool(expected)


@pytest.mark.parametrize(
    ("post", "problem"),
    [
        ("'v1', 'pods', object", "creates pods of v1"),
        ("'authorization.k8s.io/v1beta1', 'subjectaccessreviews', object", "creates subjectaccessreviews of"),
        (f"'{VERSION}', 'selfsubjectaccessreviews', object", "creates selfsubjectaccessreviews of"),
        ("object.v, 'pods', 'a', object", "creates pods of any version"),
    ],
)
def test_nothing_else_is_created(tmp_path: Path, post: str, problem: str) -> None:
    expected = "expected subjectaccessreviews or localsubjectaccessreviews of authorization.k8s.io/v1"
    with pytest.raises(ConfigError, match=f"{problem}.*{expected}") as error:
        asked(tmp_path, f"resource.Post({post}).status.allowed == true", decision=AccessDecision())
    assert len(error.value.problems) == 1


def test_it_needs_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found resource\.post, which requires a cluster; expected"):
        decided(tmp_path, [validating(f"{POST}.status.allowed == true")])


ALLOWS: Final = AccessDecision(allowed=True)


class _Everything(dict[AccessCheck, AccessDecision]):
    def get(self, key: AccessCheck, default: object = None) -> AccessDecision:
        return ALLOWS


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("v1", "pods", ""), 'permission denied: found "pods" of "v1", expected'),
        ((VERSION, "subjectaccessreviews", "a"), "the server could not find the requested resource"),
        ((VERSION, "localsubjectaccessreviews", ""), "the server could not find the requested resource"),
    ],
)
def test_what_a_constant_did_not_show_is_an_error_of_the_expression(
    arguments: tuple[str, str, str], problem: str
) -> None:
    with pytest.raises(EvaluationError, match=f"failed to create resource: {problem}"):
        AccessReviews(_Everything()).post(*arguments, {})


@pytest.mark.parametrize(
    ("review", "problem"),
    [
        ({"kind": "Pod"}, 'found kind "Pod", expected SubjectAccessReview'),
        ({"apiVersion": "v1"}, 'found apiVersion "v1", expected authorization.k8s.io/v1'),
    ],
)
def test_an_object_of_another_kind_is_no_review(review: Json, problem: str) -> None:
    with pytest.raises(EvaluationError, match=problem):
        AccessReviews(_Everything()).post(VERSION, "subjectaccessreviews", "", review)


ATTRIBUTES: Final = st.dictionaries(
    st.sampled_from(["namespace", "Namespace", "verb"]), st.sampled_from(["a", "b", "", None])
)
SPECS: Final = st.dictionaries(
    st.sampled_from(["resourceAttributes", "nonResourceAttributes", "user"]), ATTRIBUTES | st.none()
)


@given(spec=SPECS)
def test_a_local_review_never_asks_about_another_namespace(spec: Mapping[str, Any]) -> None:
    with pytest.raises((EvaluationError, UnresolvedError)) as found:
        AccessReviews({}).post(VERSION, "localsubjectaccessreviews", "a", {"spec": dict(spec)})
    if isinstance(found.value, UnresolvedError):
        (check,) = found.value.unresolved.checks
        sent = json.loads(check.spec)
        assert sent.get("nonResourceAttributes") is None
        assert (sent.get("resourceAttributes") or {"namespace": "a"})["namespace"] == "a"


def test_checks_are_bounded() -> None:
    reviews = AccessReviews(_Everything())
    for number in (*range(MAX_CHECKS), 0):
        assert reviews.post(VERSION, "subjectaccessreviews", "", {"spec": {"user": f"u{number}"}})
    with pytest.raises(EvaluationError, match=f"found more than {MAX_CHECKS} different reviews"):
        reviews.post(VERSION, "subjectaccessreviews", "", {"spec": {"user": "another"}})


def test_a_long_object_is_no_review(tmp_path: Path) -> None:
    long = f"resource.post('{VERSION}', 'subjectaccessreviews', {{'spec': dyn(lists.range(20000))}})"
    message, _ = asked(tmp_path, f"{long}.status.allowed == true", decision=ALLOWS)
    assert "characters of JSON, expected at most" in message

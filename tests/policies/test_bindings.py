"""The bindings that match a request are those that match one by one, whatever was found out before."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.validating_policy import read_validating_binding
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.bindings import Bindings, included
from gateway.pure.admission_policies.model import ValidatingBinding
from gateway.pure.core.matching import selectors_match
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import AdmissionRequest, decode
from gateway.pure.core.verdict import Failed, FailureReason

LABELS = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), max_size=2)
SELECTORS = st.one_of(
    st.just({}),
    st.builds(lambda labels: {"matchLabels": labels}, LABELS),
    st.just({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
)


def rule(resource: str, operation: str, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"operations": [operation], "apiGroups": ["*"], "apiVersions": ["*"]}
    return {**found, "resources": [resource], **({"resourceNames": names} if names else {})}


RESOURCES = st.sampled_from(["configmaps", "namespaces", "*"])
NAMES = st.lists(st.sampled_from(["x", "y"]), max_size=1)
RULES = st.builds(rule, RESOURCES, st.sampled_from(["CREATE", "*"]), NAMES)
MATCHES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "namespaceSelector": SELECTORS,
        "objectSelector": SELECTORS,
        "resourceRules": st.lists(RULES, max_size=2),
        "excludeResourceRules": st.lists(RULES, max_size=1),
    },
)
SPACES = st.one_of(
    st.none(),
    st.just(Failed(FailureReason.NAMESPACE, "lost", 500)),
    st.builds(lambda labels: Namespace("s", labels, b"{}"), LABELS),
)


def binding(number: int, match: dict[str, Any] | None) -> ValidatingBinding:
    spec: dict[str, Any] = {"policyName": "p", "validationActions": ["Deny"]}
    if match is not None:
        spec["matchResources"] = match
    problems = Problems("test")
    document = {"metadata": {"name": f"b{number:02}"}, "spec": spec}
    found = read_validating_binding(Fields(document, "", problems))
    assert not problems.found, problems.found
    assert isinstance(found, ValidatingBinding)
    return found


def request(kind: str, operation: str, name: str, labels: dict[str, str]) -> AdmissionRequest:
    is_namespace = kind == "Namespace"
    resource = {"group": "", "version": "v1", "resource": "namespaces" if is_namespace else "configmaps"}
    of = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels}}
    review = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": resource,
        "name": name,
        "namespace": name if is_namespace else "s",
        "operation": operation,
        "userInfo": {},
        "object": None if operation == "DELETE" else of,
        "oldObject": of if operation == "DELETE" else None,
    }
    return decode(
        orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review})
    )


REQUESTS = st.builds(
    request,
    st.sampled_from(["ConfigMap", "Namespace"]),
    st.sampled_from(["CREATE", "DELETE"]),
    st.sampled_from(["x", "y"]),
    LABELS,
)


@given(
    st.lists(MATCHES, min_size=1, max_size=12), st.lists(st.tuples(REQUESTS, SPACES), min_size=1, max_size=4)
)
def test_bindings_match_as_one_by_one(
    matches: list[dict[str, Any] | None], reviews: list[tuple[AdmissionRequest, Namespace | Failed | None]]
) -> None:
    bindings = [binding(number, match) for number, match in enumerate(matches)]
    kept = Bindings(bindings)
    for review, space in reviews * 2:
        expected: list[tuple[str, Failed | None]] = []
        for each in bindings:
            selected: bool | Failed = True
            if each.match is not None:
                selected = selectors_match(each.match, review, review.object, space)
                if not included(each.match, review):
                    selected = False
            if selected is not False:
                expected.append((each.name, None if selected is True else selected))
        found = [(each.name, why) for each, why in kept.matching(review, review.object, space)]
        assert found == expected
        if expected:
            assert kept.may_match_rules(review)
        if expected and isinstance(space, Namespace) and not any(why for _, why in expected):
            is_of_space = review.request_resource[2] != "namespaces"
            assert not is_of_space or kept.may_match_namespace(space.labels)

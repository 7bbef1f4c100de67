"""Pods and workloads. The table is the facts of upstream's TestValidatePodAndController."""

from __future__ import annotations

import copy
from typing import Any, Final, NamedTuple

import pytest

from admission_gateway_worker import Denied
from admission_gateway_worker.counters import Counters
from admission_gateway_worker.policies.pod_security import DEFINITIONS, metrics
from tests.library.requests import request, run

(POLICY,) = DEFINITIONS
PREFIX: Final = "pod-security.kubernetes.io/"
PARAMETERS: Final = {
    "exemptions": {"namespaces": ["exempt"], "usernames": ["exempt-user"], "runtimeClasses": ["exempt-class"]}
}

Json = dict[str, Any]

RESTRICTED: Final[Json] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "registry.test/main:1",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
BASELINE: Final[Json] = {"containers": [{"name": "main", "image": "registry.test/main:1"}]}
PRIVILEGED: Final[Json] = {
    "containers": [{"name": "main", "image": "registry.test/main:1", "securityContext": {"privileged": True}}]
}
EXEMPT_CLASS: Final = {**PRIVILEGED, "runtimeClassName": "exempt-class"}
TOLERANT: Final = {**PRIVILEGED, "tolerations": [{"operator": "Exists"}]}


def with_image(spec: Json) -> Json:
    changed = copy.deepcopy(spec)
    changed["containers"][0]["image"] = "registry.test/other:1"
    return changed


NAMESPACES: Final = {
    "exempt": dict.fromkeys(("enforce", "audit", "warn"), "restricted"),
    "implicit": {},
    "privileged": dict.fromkeys(("enforce", "audit", "warn"), "privileged"),
    "baseline": dict.fromkeys(("enforce", "audit", "warn"), "baseline"),
    "baseline-warn": {"warn": "baseline"},
    "baseline-audit": {"audit": "baseline"},
    "restricted": dict.fromkeys(("enforce", "audit", "warn"), "restricted"),
    "invalid": {"enforce": "not-a-valid-level"},
}


class Case(NamedTuple):
    namespace: str
    spec: Json
    reason: str = ""
    """Of the denial of a Pod; workloads are never denied."""
    enforced: str = ""
    warned: str = ""
    audited: str = ""
    exempt: str = ""
    error: bool = False
    others: tuple[tuple[str, Any], ...] = ()
    old: Json | None = None
    workload: bool = True
    """Whether the same holds for a Deployment, except for what is enforced: its updates always count."""


CASES: Final = {
    "ignored subresource": Case("restricted", PRIVILEGED, others=(("subResource", "status"),)),
    "exempt namespace": Case("exempt", PRIVILEGED, exempt="namespace"),
    "exempt user": Case(
        "restricted", PRIVILEGED, exempt="user", others=(("userInfo", {"username": "exempt-user"}),)
    ),
    "exempt runtimeClass": Case("restricted", EXEMPT_CLASS, exempt="runtimeClass"),
    "namespace not found": Case("missing", RESTRICTED, "InternalError", error=True),
    "privileged by default": Case("implicit", PRIVILEGED, enforced="privileged"),
    "privileged by labels": Case("privileged", PRIVILEGED, enforced="privileged"),
    "insignificant update": Case("restricted", TOLERANT, old=PRIVILEGED, workload=False),
    "significant update denied": Case(
        *("restricted", with_image(PRIVILEGED), "Forbidden", "restricted", "restricted", "restricted"),
        old=PRIVILEGED,
    ),
    "significant update allowed": Case(
        "restricted", with_image(RESTRICTED), enforced="restricted", old=RESTRICTED
    ),
    "invalid labels": Case("invalid", BASELINE, "Forbidden", "restricted", error=True),
    "enforce denies": Case("restricted", PRIVILEGED, "Forbidden", "restricted", "restricted", "restricted"),
    "enforce allows": Case("baseline", BASELINE, enforced="baseline"),
    "warn denies": Case("baseline-warn", PRIVILEGED, enforced="privileged", warned="baseline"),
    "audit denies": Case("baseline-audit", PRIVILEGED, enforced="privileged", audited="baseline"),
}


def asked(case: Case, *, workload: bool) -> Json:
    def made(spec: Json) -> Json:
        pod = {"metadata": {"name": "web"}, "spec": spec}
        return {"metadata": {"name": "web"}, "spec": {"template": pod}} if workload else pod

    group, kind, resource = ("apps", "Deployment", "deployments") if workload else ("", "Pod", "pods")
    others = {
        "resource": {"group": group, "version": "v1", "resource": resource},
        "name": "web",
        **dict(case.others),
    }
    old = None if case.old is None else made(case.old)
    return request(group, "v1", kind, made(case.spec), old, namespace=case.namespace, **others)


def namespace(name: str) -> Json | None:
    chosen = NAMESPACES.get(name)
    if chosen is None:
        return None
    return {"metadata": {"name": name, "labels": {PREFIX + key: value for key, value in chosen.items()}}}


def counted(counters: Counters) -> list[tuple[str, ...]]:
    """Return the decision, level and mode of evaluations; the name of other metrics."""
    found: list[tuple[str, ...]] = []
    for family in (metrics._evaluations, metrics._exemptions, metrics._errors):
        for values, count in zip(family.values, counters.values(family), strict=True):
            name = (values[0], values[1], values[3]) if family is metrics._evaluations else (family.name,)
            found += [name] * int(count)
    return sorted(found)


@pytest.mark.parametrize(
    ("name", "workload"),
    [(name, False) for name in CASES] + [(name, True) for name, case in CASES.items() if case.workload],
)
def test_pods_and_workloads(name: str, workload: bool) -> None:
    case = CASES[name]
    review = POLICY.review(
        asked(case, workload=workload), PARAMETERS, namespace_object=namespace(case.namespace)
    )
    counters = Counters(())
    counters.attach_families()
    reason = ""
    try:
        assert POLICY.function(review) is None
    except Denied as denied:
        reason = denied.reason
    enforced = "" if workload else case.enforced
    assert reason == ("" if workload else case.reason)
    # Warnings are only for requests that are allowed.
    warned = "" if reason else case.warned
    assert [warning.partition('"')[2].partition(":")[0] for warning in review.warnings] == [warned] * bool(
        warned
    )
    keys = {
        "enforce-policy": enforced,
        "audit-violations": case.audited,
        "exempt": case.exempt,
        "error": case.error,
    }
    assert set(review.annotations) == {key for key, is_expected in keys.items() if is_expected}
    assert review.annotations.get("exempt", "") == case.exempt
    expected: list[tuple[str, ...]] = []
    if enforced:
        expected.append(("deny" if reason else "allow", enforced, "enforce"))
    expected += [
        ("deny", level, mode) for level, mode in ((warned, "warn"), (case.audited, "audit")) if level
    ]
    expected += [("pod_security_exemptions_total",)] * bool(case.exempt)
    expected += [("pod_security_errors_total",)] * case.error
    assert counted(counters) == sorted(expected)


def test_the_denial_has_upstreams_text() -> None:
    spec = {
        "hostNetwork": True,
        "initContainers": [{"name": "init", "ports": [{"hostPort": 80}, {"hostPort": 443}]}],
        "containers": [{"name": "main", "ports": [{"hostPort": 80}]}],
    }
    case = Case("baseline", spec)
    with pytest.raises(Denied) as denied:
        run(POLICY, asked(case, workload=False), namespace_object=namespace("baseline"))
    found = denied.value
    detail = 'host namespaces (hostNetwork=true), hostPort (containers "init", "main" use hostPorts 443, 80)'
    assert found.message == f'pods "web" is forbidden: violates PodSecurity "baseline:latest": {detail}'
    assert (found.code, found.reason, found.name, found.kind) == (403, "Forbidden", "web", "pods")
    review = run(POLICY, asked(case, workload=True), namespace_object=namespace("baseline"))
    assert review.warnings == [f'would violate PodSecurity "baseline:latest": {detail}']
    assert review.annotations == {"audit-violations": review.warnings[0]}


def test_a_level_for_enforce_holds_for_warn_unless_that_is_set() -> None:
    labels = {"enforce": "restricted", "enforce-version": "v1.30"}
    found = {"metadata": {"labels": {PREFIX + key: value for key, value in labels.items()}}}
    review = run(POLICY, asked(Case("any", BASELINE), workload=True), namespace_object=found)
    assert review.warnings[0].startswith('would violate PodSecurity "restricted:v1.30": ')
    found["metadata"]["labels"][PREFIX + "warn-version"] = "v1.7"
    review = run(POLICY, asked(Case("any", BASELINE), workload=True), namespace_object=found)
    assert review.warnings[0].startswith('would violate PodSecurity "restricted:v1.7": ')
    found["metadata"]["labels"][PREFIX + "warn"] = "privileged"
    review = run(POLICY, asked(Case("any", BASELINE), workload=True), namespace_object=found)
    assert review.warnings == []


@pytest.mark.parametrize(
    ("new", "old", "is_evaluated"),
    [
        ([("a", "1")], [("a", "1")], False),
        ([("a", "2")], [("a", "1")], True),
        ([("a", "1"), ("b", "1")], [("a", "1")], True),
        ([], [("a", "1")], False),
    ],
)
def test_a_changed_or_added_ephemeral_container_is_significant(
    new: list[tuple[str, str]], old: list[tuple[str, str]], is_evaluated: bool
) -> None:
    def spec(found: list[tuple[str, str]]) -> Json:
        return {
            **PRIVILEGED,
            "ephemeralContainers": [{"name": name, "image": image} for name, image in found],
        }

    others = (("subResource", "ephemeralcontainers"),)
    case = Case("baseline", spec(new), old=spec(old), others=others)
    if is_evaluated:
        with pytest.raises(Denied, match="privileged"):
            run(POLICY, asked(case, workload=False), namespace_object=namespace("baseline"))
    else:
        run(POLICY, asked(case, workload=False), namespace_object=namespace("baseline"))


@pytest.mark.parametrize("found", [None, {"kind": "Binding"}])
def test_an_unknown_object_of_pods_is_denied(found: Json | None) -> None:
    document = {**asked(Case("baseline", BASELINE), workload=False), "object": found, "subResource": "new"}
    with pytest.raises(Denied, match=r"^failed to decode pod$") as denied:
        run(POLICY, document, namespace_object=namespace("baseline"))
    assert (denied.value.code, denied.value.reason) == (400, "BadRequest")


def test_a_workload_without_template_is_not_evaluated_and_another_kind_is_noted() -> None:
    case = asked(Case("baseline", PRIVILEGED), workload=True)
    review = run(POLICY, {**case, "object": {"spec": {}}}, namespace_object=namespace("baseline"))
    assert (review.warnings, review.annotations) == ([], {})
    unknown = {"group": "example.test", "version": "v1", "kind": "Robot"}
    review = run(POLICY, {**case, "kind": unknown}, namespace_object=namespace("baseline"))
    assert review.annotations == {
        "error": "failed to extract pod template: unexpected object type: example.test/v1, Kind=Robot"
    }

"""Which parameters a binding has for a request, as documents with a review: of files and of a cluster.

Source of the tables: k8s.io/apiserver pkg/admission/plugin/policy/validating/admission_test.go,
generic/policy_dispatcher_test.go.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.admission_policies.params import FixedObjects
from gateway.pure.cel.paths import Paths, Pruner, joined
from tests.core.build import resource
from tests.policies.documents import CLUSTER, binding, decided, mutating, policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gateway.pure.core.policy import ParamKind
    from tests.policies.documents import Answer

    Json = dict[str, Any]

VERSION = "example.com/v1"
NAME = "replicas-test.example.com"
YES, NO, ELSE = {"doesitmatch": "yes"}, {"doesitmatch": "no"}, {"notaffiliated": "no"}
NAMESPACED_REQUEST = {"namespace": "othernamespace"}
CLUSTER_REQUEST = {"namespace": "", "resource": resource("/v1/nodes")}
NONE_FOUND = (
    "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
)
NO_NAMESPACE = "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
NOT_NAMESPACED = (
    "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
)
UNKNOWN_KIND = "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=BadParamKind'"


def param(
    name: str, namespace: str = "", labels: Json | None = None, kind: str = "Limits", **more: Any
) -> Json:
    metadata = {"name": name, "labels": labels or {}, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, **more}


LIBRARY = [
    *(param(NAME, each, NO) for each in ("default", "mynamespace", "othernamespace")),
    *(param(f"{NAME}1", each, YES) for each in ("default", "mynamespace", "othernamespace")),
    *(param(f"{NAME}2", each, ELSE) for each in ("default", "mynamespace", "othernamespace")),
    param(f"{NAME}3", "default", ELSE),
    *(param(f"{NAME}3", each, YES) for each in ("mynamespace", "othernamespace")),
    *(
        param(f"{NAME}{number}", "", labels, "ClusterLimits")
        for number, labels in (("", YES), ("1", NO), ("2", ELSE), ("3", YES), ("4", NO), ("5", ELSE))
    ),
]


IDENTITY: Paths = frozenset({("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")})


@dataclass(frozen=True)
class Objects:
    """The objects of a cluster that has both kinds, only with what is read of them: a ``Params``."""

    listed: Sequence[Json]

    def of(self, kind: ParamKind, paths: Paths) -> FixedObjects | None:
        pruner = Pruner(joined([paths, IDENTITY]))
        if kind.kind not in ("Limits", "ClusterLimits"):
            return None
        found = FixedObjects(kind.kind == "Limits", {})
        for each in self.listed:
            if each["kind"] == kind.kind:
                metadata = each["metadata"]
                found.by_namespace.setdefault(metadata.get("namespace", ""), {})[metadata["name"]] = (
                    pruner.pruned(each)
                )
        return found


def answered(
    folder: Path,
    place: str,
    documents: Sequence[Json],
    params: Iterable[Json],
    members: Json,
    phase: Any = "validate",
) -> Answer:
    """The answer with *params* in files or in a cluster."""
    if place == "files":
        # A document of a kind that no policy names is an error.
        kinds = [each["spec"]["paramKind"]["kind"] for each in documents if "paramKind" in each["spec"]]
        of_kinds = [each for each in params if each["kind"] in kinds]
        return decided(folder, [*documents, *of_kinds], members, phase=phase)
    return decided(folder, [*documents, CLUSTER], members, phase=phase, params=Objects(list(params)))


def place_of(found: Json) -> str:
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def expected_params(kind: str, ref: Json, namespace: str) -> list[Json]:
    def is_selected(found: Json) -> bool:
        metadata = found["metadata"]
        if kind == "Limits" and metadata["namespace"] != ref.get("namespace", namespace):
            return False
        if "name" in ref:
            return bool(metadata["name"] == ref["name"])
        wanted = ref["selector"].get("matchLabels", {})
        return all(metadata["labels"].get(key) == value for key, value in wanted.items())

    return [found for found in LIBRARY if found["kind"] == kind and is_selected(found)]


CHOICES: dict[str, Json] = {
    "name": {"name": NAME},
    "labels": {"selector": {"matchLabels": YES}},
    "all": {"selector": {}},
}
REFS = [
    (kind, how, namespace, action)
    for kind, how, namespace, action in itertools.product(
        ("Limits", "ClusterLimits"), CHOICES, ("", "mynamespace"), ("Deny", "Allow")
    )
    if not (kind == "ClusterLimits" and namespace)
]
SHOWN = "(has(params.metadata.namespace) ? params.metadata.namespace : '') + '/' + params.metadata.name"


@pytest.mark.parametrize("place", ["files", "cluster"])
@pytest.mark.parametrize("policies", ["validating", "mutating"])
@pytest.mark.parametrize(("kind", "how", "namespace", "action"), REFS)
def test_references(
    tmp_path: Path, place: str, policies: str, kind: str, how: str, namespace: str, action: str
) -> None:
    ref = {
        **CHOICES[how],
        **({"namespace": namespace} if namespace else {}),
        "parameterNotFoundAction": action,
    }
    param_kind = {"apiVersion": VERSION, "kind": kind}
    if policies == "validating":
        made = policy(validations=[{"expression": "false", "messageExpression": SHOWN}], paramKind=param_kind)
        documents = [made, binding(paramRef=ref)]
    else:
        change = f'[JSONPatch{{op: "add", path: "/seen/-", value: {SHOWN}}}]'
        documents = list(mutating("p", change, paramKind=param_kind, binding={"paramRef": ref}))

    def seen(params: Sequence[Json], request: Json) -> tuple[list[str], list[str]]:
        """The parameters that were evaluated, and errors."""
        members = {**request, "object": {"metadata": {"name": "x"}, "seen": []}}
        if policies == "mutating":
            answer = answered(tmp_path, place, documents, params, members, "mutate")
            changed: Any = answer.evaluation.final_object
            return changed["seen"], answer.denials
        denials = answered(tmp_path, place, documents, params, members).denials
        return [one for one in denials if "/" in one], [one for one in denials if "/" not in one]

    both: list[Json] = []
    for request in (NAMESPACED_REQUEST, CLUSTER_REQUEST):
        if kind == "Limits" and not namespace and request is CLUSTER_REQUEST:
            assert seen(LIBRARY, request) == ([], [NO_NAMESPACE])
            continue
        found = expected_params(kind, ref, str(request["namespace"]))
        assert found
        assert seen(LIBRARY, request) == (sorted(map(place_of, found)), [])
        both += found
    rest = [each for each in LIBRARY if each not in both]
    if place == "files" and all(each["kind"] != kind for each in rest):
        return  # Without any object in files, the kind is one of the cluster.
    for request in (NAMESPACED_REQUEST, CLUSTER_REQUEST):
        if kind == "Limits" and not namespace and request is CLUSTER_REQUEST:
            assert seen(rest, request) == ([], [NO_NAMESPACE])
        else:
            assert seen(rest, request) == ([], [NONE_FOUND] if action == "Deny" else [])


LIMITS = {"apiVersion": VERSION, "kind": "Limits"}
USES = policy(validations=[{"expression": "params.n > 3", "message": "denied"}], paramKind=LIMITS)
BY_NAME = {"name": NAME, "namespace": "default", "parameterNotFoundAction": "Deny"}
SMALL, LARGE = param(NAME, "default", n=1), param(NAME, "default", n=9)
OTHER = param("other", "default", n=1)


@pytest.mark.parametrize("place", ["files", "cluster"])
@pytest.mark.parametrize(
    ("failure_policy", "actions"),
    [("Fail", ["Deny"]), ("Fail", ["Warn"]), ("Fail", ["Audit"]), ("Ignore", ["Deny"])],
)
@pytest.mark.parametrize(
    ("kind", "ref", "error"),
    [
        ("BadParamKind", BY_NAME, UNKNOWN_KIND),
        ("Limits", {**BY_NAME, "name": "none"}, NONE_FOUND),
        ("ClusterLimits", {**BY_NAME, "namespace": "mynamespace"}, NOT_NAMESPACED),
    ],
)
def test_errors_of_the_configuration_are_not_softened_by_actions(
    tmp_path: Path, place: str, kind: str, ref: Json, error: str, failure_policy: str, actions: list[str]
) -> None:
    made = policy(paramKind={"apiVersion": VERSION, "kind": kind}, failurePolicy=failure_policy)
    bound = binding(paramRef=ref, validationActions=actions)
    answer = answered(tmp_path, place, [made, bound], LIBRARY, {})
    assert not answer.decision.warnings
    if failure_policy == "Fail":
        assert (answer.status, answer.denials) == ((422, "Invalid"), [error])
    else:
        assert not answer.denials
        (ignored,) = answer.failures
        assert error.partition(": ")[2] in ignored


@pytest.mark.parametrize("place", ["files", "cluster"])
def test_a_name_is_looked_up_in_the_namespace_of_the_request(tmp_path: Path, place: str) -> None:
    found = [param(NAME, each, value=each) for each in ("default", "mynamespace", "othernamespace")]
    made = policy(
        validations=[
            {"expression": "false", "messageExpression": "string(params.value) + ' ' + params.kind"}
        ],
        paramKind=LIMITS,
    )
    documents = [made, binding(paramRef={"name": NAME, "parameterNotFoundAction": "Deny"})]
    for namespace in ("default", "mynamespace", "othernamespace", "default"):
        answer = answered(tmp_path, place, documents, found, {"namespace": namespace})
        assert answer.denials == [f"{namespace} Limits"]


@pytest.mark.parametrize("place", ["files", "cluster"])
@pytest.mark.parametrize(
    ("documents", "params", "denials"),
    [
        # Documents and parameters change: only those of the moment count.
        ([USES, binding(paramRef=BY_NAME)], [SMALL], ["denied"]),
        ([USES, binding(paramRef=BY_NAME)], [LARGE], []),
        ([USES, binding(paramRef={**BY_NAME, "name": "other"})], [SMALL], [NONE_FOUND]),
        ([USES, binding(paramRef={**BY_NAME, "name": "other"})], [LARGE, OTHER], ["denied"]),
        ([USES, binding("b", paramRef={**BY_NAME, "name": "other"}), binding("c", paramRef=BY_NAME)], [SMALL, OTHER], ["denied"] * 2),
        ([USES], [SMALL], []),
        ([USES, policy("q", validations=["true"]), binding(of="q")], [SMALL], []),
        # No reference: params is null. No paramKind: the reference does not count.
        ([policy(validations=["params != null"], paramKind=LIMITS), binding()], [SMALL], ["failed expression: params != null"]),
        ([policy(), binding()], [SMALL], ["failed expression: false"]),
        ([policy(), binding(paramRef=BY_NAME), USES | {"metadata": {"name": "q"}}], [LARGE], ["failed expression: false"]),
        # Policies share a kind, until one of them does without.
        ([USES, binding(paramRef=BY_NAME), policy("q", validations=["params.n > 5"], paramKind=LIMITS), binding("q", "q", paramRef=BY_NAME)], [SMALL], ["denied", "failed expression: params.n > 5"]),
        ([USES, binding(paramRef=BY_NAME), policy("q"), binding("q", "q")], [SMALL], ["denied", "failed expression: false"]),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_documents(
    tmp_path: Path, place: str, documents: Sequence[Json], params: Sequence[Json], denials: list[str]
) -> None:
    assert answered(tmp_path, place, documents, params, {}).denials == denials


def test_a_namespace_has_the_parameters_that_are_in_it(tmp_path: Path) -> None:
    bound = binding(paramRef={"name": NAME, "parameterNotFoundAction": "Deny"})
    members = {
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "resource": resource("/v1/namespaces"),
        "name": "mynamespace",
        "namespace": "mynamespace",
    }
    for namespace, denials in (("mynamespace", ["denied"]), ("othernamespace", [NONE_FOUND])):
        found = param(NAME, namespace, n=1)
        assert decided(tmp_path, [USES, bound, found], members).denials == denials


def test_a_binding_without_its_policy_has_no_effect(tmp_path: Path) -> None:
    assert not decided(tmp_path, [binding(), policy("q")]).denials


def test_conditions_of_each_parameter_count_for_it_alone(tmp_path: Path) -> None:
    made = policy(
        validations=[{"expression": "false", "messageExpression": "string(params.metadata.name)"}],
        matchConditions=[{"name": "c", "expression": "params.n < 5"}],
        paramKind=LIMITS,
    )
    ref = {"selector": {}, "parameterNotFoundAction": "Deny"}
    params = [param("a", "default", n=1), param("b", "default", n=9), param("c", "default", n=2)]
    assert decided(tmp_path, [made, binding(paramRef=ref), *params]).denials == ["a", "c"]

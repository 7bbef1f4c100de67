"""Makes ClusterPolicies and Policies in Kyverno's own language, and scenarios of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.compare import Operation
from tests.e2e.engine_scenarios import Scenario
from tests.e2e.objects import pod, within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Json = dict[str, Any]


MAPS: Final = within("configmaps")
RBAC: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class WorkerScenario(Scenario):
    """A scenario with objects that its rules read."""

    objects: tuple[Json, ...] = ()
    """They exist before the policies: the worker has them as documents if it does not ask the cluster."""
    labels: Mapping[str, str] | None = None
    """Of its namespace."""


def rule(name: str, *kinds: str, **members: Any) -> Json:
    """Return a rule for *kinds*, by default Pods, unless *members* has ``match``."""
    return {"name": name, "match": {"any": [{"resources": {"kinds": list(kinds or ("Pod",))}}]}, **members}


def validate(name: str, *kinds: str, match: Json | None = None, **members: Any) -> Json:
    """Return a rule that enforces, unless *members* of ``validate`` say something else."""
    of_rule: Json = {
        key: members.pop(key) for key in ("preconditions", "context", "exclude") if key in members
    }
    if match is not None:
        of_rule["match"] = match
    return rule(name, *kinds, **of_rule, validate={"failureAction": "Enforce", **members})


def deny(*conditions: Json, join: str = "any") -> Json:
    """Return ``deny``."""
    return {"conditions": {join: list(conditions)}}


def condition(key: Any, operator: str, value: Any, **members: Any) -> Json:
    """Return a condition."""
    return {"key": key, "operator": operator, "value": value, **members}


NO_AUTOGEN: Final = {"pod-policies.kyverno.io/autogen-controllers": "none"}
ALWAYS: Final = deny(condition("a", "Equals", "a"))
"""Refuses whatever the rule matches."""


def policy(name: str, *rules: Json, inside: str = "", annotations: Json | None = None, **spec: Any) -> Json:
    """Return a ClusterPolicy, or a Policy if it is *inside* a namespace."""
    metadata: Json = {"name": name}
    if inside:
        metadata["namespace"] = inside
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if inside else "ClusterPolicy",
        "metadata": metadata,
        "spec": {"background": False, **spec, "rules": list(rules)},
    }


def exception(name: str, of: str, *rules: str, **spec: Any) -> Json:
    """Return a PolicyException for Pods, or for what ``match`` in *spec* says."""
    match = {"any": [{"resources": {"kinds": ["Pod", "Deployment"], "names": ["excepted*"]}}]}
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"match": match, "exceptions": [{"policyName": of, "ruleNames": list(rules)}], **spec},
    }


def scenario(
    name: str,
    documents: list[Json],
    *operations: Operation,
    objects: Sequence[Json] = (),
    labels: Mapping[str, str] | None = None,
    awaited: Mapping[int, int] | None = None,
) -> WorkerScenario:
    """Return a scenario whose policies match its namespace, and have names that begin with its own."""
    for document in documents:
        document["metadata"]["name"] = f"{name}-{document['metadata']['name']}"
        if document["kind"] == "PolicyException":
            for each in document["spec"]["exceptions"]:
                each["policyName"] = f"{name}-{each['policyName']}"
        elif document["kind"] == "ClusterPolicy":
            for each in document["spec"]["rules"]:
                each["match"] = _confined(each["match"], name)
    return WorkerScenario(
        name, tuple(documents), operations, dict(awaited or {}), objects=tuple(objects), labels=labels
    )


_SCOPELESS: Final = {"Namespace", "ClusterRole"}
"""Kinds without a namespace: rules for them select by name."""


def _confined(match: Json, namespace: str) -> Json:
    return {
        join: [
            {**block, "resources": {"namespaces": [namespace], **block["resources"]}}
            if "resources" in block and not _SCOPELESS & set(block["resources"].get("kinds", ()))
            else block
            for block in blocks
        ]
        for join, blocks in match.items()
    }


def delete(path: str) -> Operation:
    """Delete an object."""
    return Operation("DELETE", path)


def container(name: str = "main", image: str = "registry.test/main:1", **members: Any) -> Json:
    """Return a container."""
    return {"name": name, "image": image, **members}


def made_of(name: str, *containers: Json, **spec: Any) -> Json:
    """Return a Pod with *containers*."""
    return pod(name, containers=list(containers), **spec)


def limited(name: str, **limits: str) -> Json:
    """Return a Pod whose container has *limits*."""
    return made_of(name, container(resources={"limits": limits}))


def mutate(name: str, *kinds: str, match: Json | None = None, **members: Any) -> Json:
    """Return a rule that changes objects."""
    of_rule: Json = {
        key: members.pop(key) for key in ("preconditions", "context", "exclude") if key in members
    }
    if match is not None:
        of_rule["match"] = match
    return rule(name, *kinds, **of_rule, mutate=members)


def merge(name: str, patch: Json, *kinds: str, **members: Any) -> Json:
    """Return a rule with a strategic merge patch."""
    return mutate(name, *kinds, patchStrategicMerge=patch, **members)


def json6902(name: str, *operations: Json, kinds: Sequence[str] = (), **members: Any) -> Json:
    """Return a rule with a JSON Patch."""
    return mutate(name, *kinds, patchesJson6902=json.dumps(operations), **members)


def labels_of(**labels: str) -> Json:
    """Return an object with *labels*."""
    return {"metadata": {"labels": labels}}

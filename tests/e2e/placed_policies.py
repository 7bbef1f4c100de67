"""The scenarios of policies that may move, with the objects that the gateway writes into the API server."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.merge.load import load
from gateway.pure.admission_policies.placing import BINDINGS, Write
from gateway.server.kubernetes.placed_objects import PlacedObjects
from gateway.server.kubernetes.placement import placing_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.admission_policies.placing import Target
    from tests.e2e.policy_comparison import Scenario
    from tests.e2e.policy_subjects import Subject

Json = dict[str, Any]

INSTALLATION: Final = "kube-system/gateway"
_OUTSIDE: Final = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
_NOT_IDEMPOTENT: Final = frozenset(
    (
        *("apply-replicas", "apply-concatenation", "generated-68", "apply-concat-typed-struct"),
        *("apply-concat-struct-typed", "list-concat-of-a-pod"),
        *("custom-apply-1", "custom-apply-2", "custom-apply-3"),
    )
)
"""Scenarios of a policy that would be applied twice with ``IfNeeded``, to another outcome."""


def movable(scenario: Scenario) -> Scenario:
    """Return *scenario* with policies that do not match kube-system, and ``IfNeeded`` in an idempotent one.

    Its operations have the same outcomes.
    """
    is_alone = sum(one["kind"] in BINDINGS for one in scenario.documents) == 1
    sees_changes = is_alone and scenario.name not in _NOT_IDEMPOTENT

    def changed(document: Json) -> Json:
        if document["kind"] not in BINDINGS:
            return document
        spec = document["spec"]
        selector = spec["matchConstraints"].get("namespaceSelector") or {}
        selector = {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), _OUTSIDE]}
        again = {"reinvocationPolicy": "IfNeeded"} if sees_changes and "reinvocationPolicy" in spec else {}
        match = {**spec["matchConstraints"], "namespaceSelector": selector}
        return {**document, "spec": {**spec, "matchConstraints": match, **again}}

    return replace(scenario, documents=tuple(map(changed, scenario.documents)))


def placed(scenario: Scenario, version: str) -> Scenario | None:
    """Return *scenario* with the objects that the gateway writes; None if one of its policies stays.

    It is judged alone: the order of mutating policies would keep most of them in the gateway. Parameters are
    in the cluster, which has Kubernetes *version*.
    """
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": {},
        "kubernetesVersion": version,
        "policies": {"placement": "APIServer", "installation": INSTALLATION},
    }
    items = [gateway, *scenario.documents]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
        file.flush()
        placing = placing_of(load([Path(file.name)]), int(version.partition(".")[2]))
    assert placing is not None
    policies = [one["kind"] for one in scenario.documents if one["kind"] in BINDINGS]
    if len(placing.targets) < len(policies):
        return None
    return replace(scenario, documents=tuple(asyncio.run(_written(*placing.targets.values()))))


def moved(subject: Subject, version: str) -> Iterator[tuple[Scenario, Scenario]]:
    """Yield the scenarios of *subject* that may move to Kubernetes *version*: as written by the user, and as
    by the gateway.
    """
    text = json.dumps([one.documents for one in subject.scenarios]).replace("{namespace}", subject.name)
    for scenario, documents in zip(subject.scenarios, json.loads(text), strict=True):
        wanted = movable(replace(scenario, documents=tuple(documents)))
        if (found := placed(wanted, version)) is not None:
            yield wanted, found


async def _written(*targets: Target) -> list[Json]:
    api: Any = _Api()
    objects = PlacedObjects(KubernetesSettings(), INSTALLATION, "")
    for target in targets:
        for key, spec in target.specs.items():
            await objects.write(api, Write(key, spec, target.digest, None, is_correction=False))
    documents: list[Json] = api.documents
    return documents


class _Api:
    def __init__(self) -> None:
        self.documents: list[Json] = []

    async def write(self, method: str, path: str, document: Json) -> Json:
        assert method == "POST", path
        self.documents.append(document)
        return {**document, "metadata": {**document["metadata"], "uid": "", "resourceVersion": ""}}

"""Kubewarden's ClusterAdmissionPolicy and AdmissionPolicy: entries that call a worker with their modules.

The gateway reads which requests they are for. Module, settings and what the module may read are the worker's.

Source: github.com/kubewarden/kubewarden-controller api/policies/v1/{policy,clusteradmissionpolicy}_types.go,
internal/controller/policy_subreconciler_webhook.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of, shown
from gateway.config.kinds.matching import compiled_conditions
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_rollout import (
    ROLLOUT,
    path_of,
    read_policy_rollout,
    require_denial,
    uses_shadow,
)
from gateway.config.loaders.cluster_worker import DENY, selector_of
from gateway.config.loaders.kubewarden_spec import ClusterSpec, Spec
from gateway.config.loaders.part import Loader, MadeEntries, Part
from gateway.config.yaml.fields import child
from gateway.pure.core.webhook import PolicyRollout, Rollout, Webhook, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.config.kinds.engine_settings import EngineEntry
    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.conditions.match_conditions import CompiledConditions

GROUP: Final = "policies.kubewarden.io"
VERSIONS: Final = ("v1", "v1alpha2")
CLUSTER_WIDE: Final = "ClusterAdmissionPolicy"
NAMESPACED: Final = "AdmissionPolicy"
_KINDS: Final = (CLUSTER_WIDE, NAMESPACED)
_SERVER: Final = "PolicyServer"
_GROUPS: Final = tuple(f"{kind}Group" for kind in _KINDS)
_NO_ENGINE: Final = (
    "a worker evaluates its module: name its pool in policies.engines.kubewarden of the GatewayConfiguration"
)
_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class ReadPolicy(Part):
    """One policy."""

    document: Document
    kind: str
    id: str
    namespace: str
    """Empty for a ClusterAdmissionPolicy."""
    rollout: PolicyRollout | None
    """That of the annotations. None without them."""
    spec: Spec
    conditions: CompiledConditions | None
    made: MadeEntries = field(default_factory=MadeEntries)

    @property
    def needs_cluster(self) -> Sequence[tuple[str, str]]:
        """See ``Part``."""
        if self.conditions is None or not self.conditions.needs_authorizer:
            return ()
        found = "found authorizer, which requires a cluster"
        path = child(child(self.document.path, "spec"), "matchConditions")
        return [(path, f"{found}; expected GatewayConfiguration.kubernetes to name one")]

    def entry(self, engine: EngineEntry) -> Webhook:
        """Return the entry that calls the worker of *engine*."""
        spec, rollout, parameters = self.spec, self.rollout, DENY
        if rollout is None:
            is_audit = spec.mode == "monitor"
            rollout = PolicyRollout(Rollout("Audit" if is_audit else "Enforce"))
            parameters = DENY if is_audit else b""
        of_labels = spec.namespace_selector if isinstance(spec, ClusterSpec) else selector_of(self.namespace)
        entry = Webhook(
            phase="mutate" if spec.mutating else "validate",
            configuration=self.id,
            name=self.id,
            client=WorkerRef(engine.pool, self.id, parameters, kind=self.kind),
            rules=tuple(each.rule for each in spec.rules),
            namespace_selector=of_labels,
            object_selector=spec.object_selector,
            failure_policy=engine.failure_policy or spec.failure_policy,
            match_policy=spec.match_policy,
            side_effects=spec.side_effects,
            timeout_s=engine.timeout_seconds or spec.timeout_seconds or _TIMEOUT_S,
            match_conditions=self.conditions,
            namespace=self.namespace,
            document=f"{self.kind}/{self.id}",
        )
        return rollout.applied_to(entry)


class KubewardenDocuments(Loader[ReadPolicy]):
    """The documents of Kubewarden in one configuration."""

    @staticmethod
    def read(document: Document, fields: Fields, kind: str) -> ReadPolicy | None:
        """See ``Loader``."""
        version = str(fields.content.get("apiVersion")).rpartition("/")[2]
        fields.problems.null_is_empty = True
        if kind in _GROUPS:
            instead = "write its members as policies of their own, or its expression as a policy of a worker"
            fields.problem("kind", f"found {kind}, which the gateway cannot run: {instead}")
        elif kind == _SERVER:
            effect = "the pool in policies.engines.kubewarden takes its place"
            fields.problems.warn(document.path, f"has no effect: {effect}")
        elif kind not in _KINDS:
            expected = one_of((*_KINDS, _SERVER))
            fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {expected}")
        elif version not in VERSIONS:
            fields.problem("apiVersion", f"found {shown(version)}, expected {one_of(VERSIONS)}")
        else:
            return _read_policy(document, fields, kind)
        return None

    def entries(self, part: ReadPolicy, params: FixedParams) -> Sequence[Webhook]:
        """See ``Loader``."""
        engine = self.engines.kubewarden

        def make() -> Iterator[Webhook]:
            if engine is None:
                path = child(child(part.document.path, "spec"), "module")
                part.document.problems.add_for_gateway(path, _NO_ENGINE)
            elif not part.document.problems.found:
                yield part.entry(engine)

        return part.made.of(part.document, (engine,), make)


def _read_policy(document: Document, fields: Fields, kind: str) -> ReadPolicy:
    """Return the policy of *kind* behind *fields*; apiVersion and kind are read already."""
    is_namespaced = kind == NAMESPACED
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=True)
    namespace = metadata.namespace
    path = child(fields.at("metadata"), "namespace")
    if is_namespaced and metadata.name and not namespace:
        fields.problems.add(path, f"is required: an {NAMESPACED} is for the requests of one namespace")
    elif namespace and not is_namespaced:
        fields.problems.warn(path, "has no effect: the kind is cluster-scoped, and API servers remove it")
        namespace = ""
    rollout = read_policy_rollout(fields, metadata)
    fields.accept("status")
    of_kind: type[Spec] = Spec if is_namespaced else ClusterSpec
    source = fields.required_group("spec")
    fields.finish()
    spec = of_kind.read(source)
    if spec.mode == "monitor":
        require_denial(rollout, source, "mode", "found monitor, expected protect")
    if rollout is not None and rollout.needs_denial and uses_shadow(rollout) and spec.side_effects != "None":
        message = f"found Shadow, which requires sideEffects: None; found {spec.side_effects}"
        fields.problems.add(path_of(fields, ROLLOUT), message)
    name = f"{namespace}/{metadata.name}" if namespace else metadata.name
    conditions = compiled_conditions(spec.match_conditions)
    return ReadPolicy(document, kind, name, namespace, rollout, spec, conditions)

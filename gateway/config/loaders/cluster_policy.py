"""Kyverno's ClusterPolicy and Policy with rules in CEL (``kyverno.io``), and their exceptions.

Source: github.com/kyverno/kyverno api/kyverno/v1/{spec,rule,common}_types.go, api/kyverno/v2beta1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of, shown
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_rollout import read_policy_rollout, require_denial
from gateway.config.kinds.policy_spec import spec_json
from gateway.config.loaders.cluster_exception import KIND as EXCEPTION
from gateway.config.loaders.cluster_exception import ClusterException, ExceptionsOfRules, read_exception
from gateway.config.loaders.cluster_native import policy_of
from gateway.config.loaders.cluster_spec import NO_ENGINE, Spec
from gateway.config.loaders.cluster_worker import RESERVED, WorkerPolicy
from gateway.config.loaders.global_context import KIND as ENTRY
from gateway.config.loaders.global_context import VERSIONS as ENTRY_VERSIONS
from gateway.config.loaders.global_context import ReadEntry, read_entry
from gateway.config.loaders.part import Loader, MadeEntries, Part
from gateway.config.yaml.fields import Fields, child
from gateway.pure.kyverno.cluster_autogen import (
    ANNOTATION,
    CONTROLLERS,
    unknown_controllers,
)
from gateway.pure.kyverno.cluster_policy import KyvernoClusterPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    from gateway.config.kinds.metadata import Metadata
    from gateway.config.yaml.documents import Document
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import PolicyRollout, Webhook
    from gateway.pure.kyverno.cluster_rules import CelRule, ClusterPolicy

    Json = dict[str, Any]

CLUSTER_POLICY_KIND: Final = "ClusterPolicy"
POLICY_KIND: Final = "Policy"
_VERSIONS: Final = {
    CLUSTER_POLICY_KIND: ("v1", "v2beta1"),
    POLICY_KIND: ("v1", "v2beta1"),
    EXCEPTION: ("v2", "v2beta1"),
    ENTRY: ENTRY_VERSIONS,
}
_INSTEAD: Final = {
    "CleanupPolicy": "it deletes objects by a schedule; use a CronJob or a controller",
    "ClusterCleanupPolicy": "it deletes objects by a schedule; use a CronJob or a controller",
    "UpdateRequest": "it is a task that Kyverno writes for itself",
}
"""Why kinds cannot run, and what to use instead."""


@dataclass(frozen=True, slots=True, eq=False)
class _ReadPolicy(Part):
    """One policy."""

    document: Document
    kind: str
    id: str
    namespace: str
    rollout: PolicyRollout | None
    spec: Spec
    policy: ClusterPolicy | None
    """None after a problem, or if the gateway evaluates none of its rules."""
    for_worker: WorkerPolicy | None = None
    """None after a problem, or if a worker evaluates none of its rules."""
    made: MadeEntries = field(default_factory=MadeEntries)

    @property
    def needs_roles(self) -> bool:
        """See ``Part``."""
        return self.spec.needs_roles

    @property
    def param_kinds(self) -> Collection[ParamKind]:
        """See ``Part``."""
        return self.spec.param_kinds

    @property
    def needs_cluster(self) -> Sequence[tuple[str, str]]:
        """See ``Part``."""
        if self.policy is None or not self.policy.needs_authorizer:
            return ()
        found = "found authorizer, which requires a cluster"
        path = child(self.document.path, "spec")
        return [(path, f"{found}; expected GatewayConfiguration.kubernetes to name one")]


_Read = _ReadPolicy | ClusterException | ReadEntry


class ClusterPolicyDocuments(Loader[_Read]):
    """The documents of ``kyverno.io`` in one configuration."""

    def __init__(self, *, is_custom: bool = False) -> None:
        super().__init__(is_custom=is_custom)
        self._names: set[str] = set()
        self._exceptions: dict[str, list[ClusterException]] = {}
        """By the name of a policy."""

    @staticmethod
    def read(document: Document, fields: Fields, kind: str) -> _Read | None:
        """See ``Loader``."""
        version = str(fields.content.get("apiVersion")).rpartition("/")[2]
        if reason := _INSTEAD.get(kind):
            fields.problem("kind", f"found {kind}, which the gateway cannot run: {reason}")
        elif kind not in _VERSIONS:
            fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {one_of(_VERSIONS)}")
        elif version not in _VERSIONS[kind]:
            fields.problem("apiVersion", f"found {shown(version)}, expected {one_of(_VERSIONS[kind])}")
        elif kind == EXCEPTION:
            return read_exception(document, fields)
        elif kind == ENTRY:
            return read_entry(document, fields)
        else:
            return _read_policy(document, fields, kind)
        return None

    def add(self, part: _Read) -> None:
        """See ``Loader``."""
        super().add(part)
        if isinstance(part, ClusterException):
            for name in dict.fromkeys(name for name, _ in part.rules):
                self._exceptions.setdefault(name, []).append(part)
        elif isinstance(part, _ReadPolicy):
            self._names.add(part.id)

    def entries(self, part: _Read, params: FixedParams) -> Sequence[Webhook]:
        """See ``Loader``."""
        if isinstance(part, ClusterException):
            self._check_exception(part)
            return ()
        if isinstance(part, ReadEntry):
            return ()
        policy = part.policy
        if not part.spec.admission:
            path = child(child(part.document.path, "spec"), "admission")
            part.document.problems.warn(path, "is false: the policy has no effect")
            return ()
        if policy is None and part.for_worker is None:
            return ()
        engine = self.engines.kyverno
        exceptions = [each for each in self._exceptions.get(part.id, []) if not each.of_worker]

        def make() -> Iterator[Webhook]:
            if part.for_worker is not None and engine is None:
                for path, message in part.spec.language_problems():
                    part.document.problems.add_for_gateway(path, message)
                return
            if policy is not None:
                in_force = KyvernoClusterPolicy(
                    part.kind,
                    _with_exceptions(policy, exceptions),
                    params,
                    part.namespace,
                    is_enforced=part.rollout is not None,
                )
                yield in_force.webhook(part.rollout)
            if part.for_worker is not None and engine is not None:
                yield from part.for_worker.entries(engine)

        return part.made.of(part.document, (params, engine, *exceptions), make)

    def _check_exception(self, part: ClusterException) -> None:
        """Report what the gateway cannot evaluate for its own rules, and warn of missing policies."""
        for path, name in part.policies:
            if name not in self._names:
                message = f"there is no ClusterPolicy or Policy {shown(name)}: it has no effect"
                part.document.problems.warn(path, message)
        if not part.of_worker:
            return
        reason = ""
        if self.engines.kyverno is None:
            reason = f"for rules in Kyverno's own language {NO_ENGINE}"
        elif (found := self._own_rule(part)) is not None:
            policy, rule = found
            reason = f"the rule {shown(rule)} of {policy} is in CEL, which the gateway evaluates"
        for path, text in part.of_worker if reason else ():
            part.document.problems.add(path, f"{text}; {reason}")

    def _own_rule(self, part: ClusterException) -> tuple[str, str] | None:
        """Return policy and name of a rule that the gateway evaluates and *part* leaves out, or None."""
        named = {name for name, _ in part.rules}
        for each in self.parts:
            if isinstance(each, _ReadPolicy) and each.id in named and each.policy is not None:
                of_rules = ExceptionsOfRules(each.id, [part])
                for rule in each.policy.all_rules:
                    if rule.name not in each.spec.worker_names and of_rules.of(rule.name):
                        return each.id, rule.name
        return None


def _with_exceptions(policy: ClusterPolicy, exceptions: Sequence[ClusterException]) -> ClusterPolicy:
    """Return *policy* with *exceptions*, which name it."""
    if not exceptions:
        return policy
    of_rules = ExceptionsOfRules(policy.name, exceptions)

    def excepted(rule: CelRule | None) -> CelRule | None:
        found = () if rule is None else of_rules.of(rule.name)
        return replace(rule, exceptions=found) if rule is not None and found else rule

    rules = []
    for each in policy.cel_rules:
        own = excepted(each.own)
        assert own is not None
        made = (excepted(each.for_workloads), excepted(each.for_cron_jobs))
        rules.append(replace(each, own=own, for_workloads=made[0], for_cron_jobs=made[1]))
    return replace(policy, cel_rules=rules)


def _read_policy(document: Document, fields: Fields, kind: str) -> _ReadPolicy:
    """Return the policy of *kind* behind *fields*; apiVersion and kind are read already."""
    is_namespaced = kind == POLICY_KIND
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=True)
    path = child(fields.at("metadata"), "namespace")
    if is_namespaced and metadata.name and not metadata.namespace:
        message = "is required: a Policy is for the requests of one namespace"
        fields.problems.add(path, message)
    elif metadata.namespace and not is_namespaced:
        fields.problems.warn(path, "has no effect: the kind is cluster-scoped, and API servers remove it")
        metadata = replace(metadata, namespace="")
    rollout = read_policy_rollout(fields, metadata)
    fields.accept("status")
    source = fields.required_group("spec")
    fields.finish()
    spec = Spec.read(source)
    annotation = metadata.annotations.get(ANNOTATION)
    _check_autogen(fields, annotation)
    if is_namespaced:
        _check_namespaced(source, spec)
    elif spec.is_together and metadata.name in RESERVED:
        message = f"found {shown(metadata.name)}, expected another name with applyRules: One"
        path = child(fields.at("metadata"), "name")
        fields.problems.add(path, f"{message}: the worker of Kyverno has all rules under this one")
    _check_actions(source, spec, rollout)
    name = _id(metadata)
    policy, for_worker = None, None
    if not document.problems.found:
        policy = policy_of(spec, document, name, annotation)
        if spec.worker_rules:
            for_worker = WorkerPolicy(
                kind=kind,
                id=name,
                namespace=metadata.namespace,
                spec=spec,
                autogen=annotation,
                rollout=rollout,
            )
    if policy is not None:
        decided_by = {"spec": source.content, "autogen": annotation}
        policy = replace(policy, document=spec_json(decided_by))
    return _ReadPolicy(document, kind, name, metadata.namespace, rollout, spec, policy, for_worker)


def _check_autogen(fields: Fields, annotation: str | None) -> None:
    if annotation is None:
        return
    path = child(child(fields.at("metadata"), "annotations"), ANNOTATION)
    for each in unknown_controllers(annotation)[:10]:
        found = f"found {shown(each)}, for which no rules are made"
        fields.problems.warn(path, f"{found}: expected {one_of(CONTROLLERS)} or none, without blanks")


def _check_actions(source: Fields, spec: Spec, rollout: PolicyRollout | None) -> None:
    """Report rules that do not refuse in every namespace, beside a *rollout* that says in which they do."""
    for rule in spec.rules:
        action = spec.action_of(rule)
        if action is not None and (action.has_overrides or not action.is_chosen("", {})):
            found = "overrides by namespace" if action.has_overrides else "the action Audit"
            message = f"found {found} of the rule {shown(rule.name)}, expected Enforce"
            require_denial(rollout, source, "rules", message)


def _check_namespaced(source: Fields, spec: Spec) -> None:
    """Report what a Policy may not have."""
    if spec.validation_failure_action_overrides:
        source.problem("validationFailureActionOverrides", "is only allowed in a ClusterPolicy")
    for rule in spec.rules:
        for name, match in (("match", rule.match), ("exclude", rule.exclude)):
            if match is not None and any(each.resources.namespaces for each in match.blocks):
                rule.source.problem(name, "has namespaces, which are only allowed in a ClusterPolicy")


def _id(metadata: Metadata) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name

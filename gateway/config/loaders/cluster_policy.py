"""Kyverno's ClusterPolicy and Policy with rules in CEL (``kyverno.io``), and their exceptions.

Source: github.com/kyverno/kyverno api/kyverno/v1/{spec,rule,common}_types.go, api/kyverno/v2beta1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

import orjson

from gateway.base.text import one_of, shown
from gateway.config.kinds.metadata import annotated, read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_binding import MODE
from gateway.config.loaders.cluster_exception import KIND as EXCEPTION
from gateway.config.loaders.cluster_exception import ClusterException, read_exception
from gateway.config.loaders.cluster_spec import Spec
from gateway.config.yaml.fields import Fields, child
from gateway.pure.core.webhook import Mode
from gateway.pure.kyverno.cluster_autogen import (
    ANNOTATION,
    CONTROLLERS,
    unknown_controllers,
)
from gateway.pure.kyverno.cluster_policy import KyvernoClusterPolicy
from gateway.pure.kyverno.cluster_rules import CelRule, ClusterPolicy, RuleException

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gateway.config.kinds.metadata import Metadata
    from gateway.config.yaml.documents import Document
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]

CLUSTER_POLICY_KIND: Final = "ClusterPolicy"
POLICY_KIND: Final = "Policy"
_VERSIONS: Final = {
    CLUSTER_POLICY_KIND: ("v1", "v2beta1"),
    POLICY_KIND: ("v1", "v2beta1"),
    EXCEPTION: ("v2", "v2beta1"),
}
_INSTEAD: Final = {
    "CleanupPolicy": "it deletes objects by a schedule; use a CronJob or a controller",
    "ClusterCleanupPolicy": "it deletes objects by a schedule; use a CronJob or a controller",
    "GlobalContextEntry": "no rule in CEL of a ClusterPolicy can read it",
    "UpdateRequest": "it is a task that Kyverno writes for itself",
}
"""Why kinds cannot run, and what to use instead."""
_MODES: tuple[Mode, ...] = get_args(Mode)


class _ReadPolicy(NamedTuple):
    document: Document
    kind: str
    metadata: Metadata
    mode: Mode | None
    spec: Spec
    policy: ClusterPolicy | None
    """None after a problem."""


class ClusterPolicyDocuments:
    """The documents of ``kyverno.io`` in one configuration: a ``Loader``."""

    def __init__(self) -> None:
        self.need_cluster: list[tuple[Document, str, str]] = []
        self._policies: list[_ReadPolicy] = []
        self._exceptions: list[ClusterException] = []
        self._first_of: dict[tuple[str, str], Document] = {}

    @property
    def param_kinds(self) -> Iterator[ParamKind]:
        """See ``Loader``."""
        for each in self._policies:
            yield from each.spec.param_kinds

    def read(self, document: Document, fields: Fields, kind: str) -> None:
        """See ``Loader``."""
        version = str(fields.content.get("apiVersion")).rpartition("/")[2]
        if reason := _INSTEAD.get(kind):
            fields.problem("kind", f"found {kind}, which the gateway cannot run: {reason}")
        elif kind not in _VERSIONS:
            fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {one_of(_VERSIONS)}")
        elif version not in _VERSIONS[kind]:
            fields.problem("apiVersion", f"found {shown(version)}, expected {one_of(_VERSIONS[kind])}")
        elif kind == EXCEPTION:
            exception = read_exception(document, fields)
            self._exceptions.append(exception)
            self._check_first(document, kind, exception.id)
        else:
            self._read_policy(document, fields, kind)

    def webhooks(self, params: FixedParams) -> Iterator[Webhook]:
        """See ``Loader``."""
        names = {_id(each.metadata) for each in self._policies}
        for exception in self._exceptions:
            for path, name in exception.policies:
                if name not in names:
                    message = f"there is no ClusterPolicy or Policy {shown(name)}: it has no effect"
                    exception.document.problems.warn(path, message)
        for each in self._policies:
            if not each.spec.admission:
                path = child(child(each.document.path, "spec"), "admission")
                each.document.problems.warn(path, "is false: the policy has no effect")
            elif each.policy is not None:
                policy = self._with_exceptions(each.policy)
                namespace = each.metadata.namespace
                in_force = KyvernoClusterPolicy(
                    each.kind, policy, params, namespace, is_enforced=each.mode is not None
                )
                yield in_force.webhook(each.mode)

    def _with_exceptions(self, policy: ClusterPolicy) -> ClusterPolicy:
        def excepted(rule: CelRule | None) -> CelRule | None:
            if rule is None:
                return None
            found = [
                RuleException(each.id, each.match, each.content)
                for each in self._exceptions
                if each.names(policy.name, rule.name)
            ]
            return replace(rule, exceptions=tuple(found)) if found else rule

        if not self._exceptions:
            return policy
        rules = []
        for each in policy.cel_rules:
            own = excepted(each.own)
            assert own is not None
            made = (excepted(each.for_workloads), excepted(each.for_cron_jobs))
            rules.append(replace(each, own=own, for_workloads=made[0], for_cron_jobs=made[1]))
        return replace(policy, cel_rules=rules)

    def _read_policy(self, document: Document, fields: Fields, kind: str) -> None:
        is_namespaced = kind == POLICY_KIND
        metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=True)
        path = child(fields.at("metadata"), "namespace")
        if is_namespaced and metadata.name and not metadata.namespace:
            message = "is required: a Policy is for the requests of one namespace"
            fields.problems.add(path, message)
        elif metadata.namespace and not is_namespaced:
            fields.problems.warn(path, "has no effect: the kind is cluster-scoped, and API servers remove it")
            metadata = replace(metadata, namespace="")
        mode = annotated(fields, metadata, MODE, _MODES)
        fields.accept("status")
        source = fields.required_group("spec")
        fields.finish()
        spec = Spec.read(source)
        annotation = metadata.annotations.get(ANNOTATION)
        self._check_autogen(fields, annotation)
        if is_namespaced:
            _check_namespaced(source, spec)
        name = _id(metadata)
        self._check_first(document, kind, name)
        policy = None
        if not document.problems.found:
            policy = spec.policy(document, name, annotation)
            decided_by = {"spec": source.content, "autogen": annotation}
            policy = replace(policy, document=orjson.dumps(decided_by, option=orjson.OPT_SORT_KEYS))
            if policy.needs_authorizer:
                found = "found authorizer, which requires a cluster"
                message = f"{found}; expected GatewayConfiguration.kubernetes to name one"
                self.need_cluster.append((document, source.path, message))
        self._policies.append(_ReadPolicy(document, kind, metadata, mode, spec, policy))

    def _check_autogen(self, fields: Fields, annotation: str | None) -> None:
        if annotation is None:
            return
        path = child(child(fields.at("metadata"), "annotations"), ANNOTATION)
        for each in unknown_controllers(annotation)[:10]:
            found = f"found {shown(each)}, for which no rules are made"
            fields.problems.warn(path, f"{found}: expected {one_of(CONTROLLERS)} or none, without blanks")

    def _check_first(self, document: Document, kind: str, name: str) -> None:
        first = self._first_of.setdefault((kind, name), document)
        if first is not document and name:
            document.repeats(name, first)


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

"""Warnings about policies: expressions that cannot succeed, and bindings that may refuse all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import Problem
from gateway.base.text import shown
from gateway.config.kinds.namespace import KUBE_SYSTEM, NAME_LABEL
from gateway.config.yaml.documents import POLICY_KINDS
from gateway.pure.admission_policies.expression_warnings import kinds_of
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.model import ValidatingPolicy
from gateway.pure.admission_policies.type_checking import type_errors
from gateway.pure.core.matching import checks_authors
from gateway.pure.core.webhook import PolicyRef
from gateway.pure.openapi.documents import built_in_schemas
from gateway.tools.inspection.model import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config
    from gateway.pure.admission_policies.model import MatchResources
    from gateway.pure.openapi.schemas import Schemas

_SCHEMAS_WITHIN_S: Final = 5.0
_KUBE_SYSTEM_LABELS: Final = {NAME_LABEL: KUBE_SYSTEM}


def policy_warnings(config: Config, schemas: Schemas) -> Iterator[Problem]:
    """Yield the warnings about the policies of *config*, with the schemas of the kinds that they match."""
    kinds = kinds_of(schemas)
    for webhook in config.webhooks:
        bound = webhook.policy
        if not isinstance(bound, PolicyInForce) or checks_authors(webhook):
            continue
        kind = bound.kind
        if kind not in POLICY_KINDS:
            continue
        if isinstance(bound.policy, ValidatingPolicy):
            for error in type_errors(bound.policy, schemas, kinds):
                where = f"{kind} {shown(bound.policy.name)}"
                yield Problem(where, error.field, f"cannot succeed on {error.kind}: {error.message}")
        yield from _param_warnings(bound, f"{kind}Binding")


def group_versions(config: Config) -> set[tuple[str, str]]:
    """Return groups and versions of the kinds that the policies of *config* match or have as parameters."""
    found = set()
    for webhook in config.webhooks:
        bound = webhook.policy
        if isinstance(bound, PolicyInForce):
            for rule in webhook.rules:
                found |= {(group, version) for group in rule.api_groups for version in rule.api_versions}
            if bound.policy.param_kind is not None:
                group, _, version = bound.policy.param_kind.api_version.rpartition("/")
                found.add((group, version))
    return {(group, version) for group, version in found if "*" not in (group, version)}


async def policy_findings(files: Config, whole: Config, target: KubernetesSettings) -> list[Finding]:
    """Return findings about the policies of *whole*, by the schemas of the cluster.

    The warnings about *files* by the schemas that come with the gateway were printed.
    """
    if not any(isinstance(each.client, PolicyRef) for each in whole.webhooks):
        return []
    # Imported late: a check without the cluster does not need its client.
    from gateway.server.kubernetes.schemas import ClusterSchemas

    schemas = ClusterSchemas(target)
    try:
        schemas.stage(group_versions(whole))
        await schemas.wait_until_synced(_SCHEMAS_WITHIN_S)
        known = set(policy_warnings(files, built_in_schemas()))
        found = [
            Finding("warning", one.where, f"{one.field}: {one.message}", "correct the policy")
            for one in policy_warnings(whole, schemas.current)
            if one not in known
        ]
        if schemas.warning:
            message = f"{schemas.warning}: expressions are checked by those that come with the gateway"
            found.append(Finding("warning", "cluster", message, "check again"))
        return found
    finally:
        await schemas.close()


def _param_warnings(bound: PolicyInForce[Any, Any], kind: str) -> Iterator[Problem]:
    """Yield a warning for each binding that refuses requests of all namespaces without its parameters."""
    policy = bound.policy
    if policy.rules.failure_policy == "Ignore" or bound.cluster_kind is None:
        return
    for binding in bound.bindings:
        ref = binding.param_ref
        if ref is None or ref.not_found == "Allow":
            continue
        if _includes_kube_system(policy.match) and _includes_kube_system(binding.match):
            message = (
                "is Deny, and failurePolicy of the policy is Fail: while there are no parameters, every "
                f"request that matches is refused, also in {KUBE_SYSTEM}; a namespaceSelector can exclude it"
            )
            where = f"{kind} {shown(binding.name)}"
            yield Problem(where, "spec.paramRef.parameterNotFoundAction", message)


def _includes_kube_system(match: MatchResources | None) -> bool:
    return match is None or match.namespace_selector.matches(_KUBE_SYSTEM_LABELS)

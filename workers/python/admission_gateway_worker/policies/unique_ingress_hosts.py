"""``unique-ingress-hosts``: a host belongs to the Ingresses of one namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.cluster import connect
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import deny, written
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission_gateway_worker import Review

_API_VERSION: Final = "networking.k8s.io/v1"


async def unique_ingress_hosts(review: Review) -> None:
    """Deny hosts that an Ingress has which is elsewhere, as ``review.parameters`` define."""
    if review.operation not in ("CREATE", "UPDATE") or review.sub_resource:
        return
    before = set(_hosts(review.old_object or {}).values())
    wanted = {field: host for field, host in _hosts(review.object).items() if host not in before}
    if not wanted:
        return
    namespace_only: bool = review.parameters
    itself = (review.namespace, review.name)
    owners: dict[str, str] = {}
    # No host may be missed, so an answer from before this review does not do.
    for ingress in await connect().objects(_API_VERSION, "ingresses", max_age_s=0):
        metadata = ingress["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if key != itself and not (namespace_only and key[0] == review.namespace):
            owners.update(dict.fromkeys(_hosts(ingress).values(), "/".join(key)))
    deny(
        Cause(
            f'the host "{host}" belongs to the Ingress {owners[host]}: use another host',
            field,
            "FieldValueDuplicate",
        )
        for field, host in wanted.items()
        if host in owners
    )


def _hosts(ingress: Mapping[str, Any]) -> dict[str, str]:
    """Return the hosts of an Ingress by field; a rule without a host has none."""
    rules = (ingress.get("spec") or {}).get("rules") or ()
    return {
        f"spec.rules[{index}].host": host for index, rule in enumerate(rules) if (host := rule.get("host"))
    }


DEFINITIONS = (
    Definition(
        name="unique-ingress-hosts",
        summary="A host belongs to the Ingresses of one namespace.",
        function=unique_ingress_hosts,
        rules=(written("networking.k8s.io", "ingresses"),),
        users_see='spec.rules[0].host: the host "shop.example.com" belongs to the Ingress shop/web: '
        "use another host",
        topic="networking",
        replaces=(
            Replaced(
                "Kyverno", "unique-ingress-host", "with `scope: Ingress`; an Ingress may have several hosts"
            ),
            Replaced("Gatekeeper", "K8sUniqueIngressHost", "with `scope: Ingress`"),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "scope": {
                    "enum": ["Namespace", "Ingress"],
                    "default": "Namespace",
                    "description": "`Namespace`: several Ingresses of one namespace may share a host. "
                    "`Ingress`: a host belongs to one Ingress.",
                }
            },
        },
        prepare=lambda parameters: parameters.get("scope") != "Ingress",
        notes="- Hosts are compared as texts: `*.example.com` and `a.example.com` are two hosts.\n"
        "- Two Ingresses that are created at the same moment may both pass.\n",
        example={"scope": "Namespace"},
        needs_cluster=True,
        rights="list ingresses.networking.k8s.io",
    ),
)

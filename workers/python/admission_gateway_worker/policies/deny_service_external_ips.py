"""DenyServiceExternalIPs: no new external IPs of Services, with which a user can intercept others' traffic.

Source: kubernetes plugin/pkg/admission/network/denyserviceexternalips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import forbidden, is_for, rule
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("services", "CREATE", "UPDATE"),)
_TEXT: Final = "Use of external IPs is denied by admission control"


def deny_external_ips(review: Review) -> None:
    """Deny external IPs that the Service did not have before."""
    if is_for(review, _RULES) and not _ips(review.object) <= _ips(review.old_object or {}):
        raise forbidden(review, _TEXT)


def _ips(service: dict[str, Any]) -> set[str]:
    return set((service.get("spec") or {}).get("externalIPs") or ())


DEFINITIONS = (
    Definition(
        "deny-service-external-ips",
        "Denies new external IPs of Services (DenyServiceExternalIPs).",
        deny_external_ips,
        rules=_RULES,
        users_see=f'services "web" is forbidden: {_TEXT}',
        topic="networking",
        replaces=(
            Replaced("Kubernetes", "DenyServiceExternalIPs"),
            Replaced(
                "Kyverno", "restrict-external-ips", "an update may keep the addresses that the Service has"
            ),
            Replaced(
                "Gatekeeper",
                "K8sExternalIPs",
                "no list of allowed addresses; an update may keep those of the Service",
            ),
        ),
    ),
)

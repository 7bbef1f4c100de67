"""Compares the registration of a gateway with its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base.errors import GatewayError
from gateway.engine.paths import Paths
from gateway.tools.inspection.certificates import (
    SERVING,
    CertificateSet,
    check_expiry,
    check_trust,
    configured_certificates,
    followed_certificates,
    registered_roots,
)
from gateway.tools.inspection.cluster_checks import check_cluster
from gateway.tools.inspection.entries import check_entries, routes
from gateway.tools.inspection.model import Finding, gateway_entries
from gateway.tools.inspection.namespaces import check_namespaces
from gateway.tools.registration.backend import Backend
from gateway.tools.registration.plan import RegistrationOptions, plan

if TYPE_CHECKING:
    import datetime
    from collections.abc import Collection

    from gateway.config.merge.model import Config
    from gateway.tools.inspection.model import ClusterState


def inspect(
    config: Config,
    seen: ClusterState,
    now: datetime.datetime,
    days: int,
    name: str | None = None,
    accepted: Collection[str] = (),
) -> list[Finding]:
    """Return the findings about *config* and the state *seen* of a cluster, errors first.

    Args:
        config: The gateway's configuration, with custom resources.
        seen: The state of the cluster.
        now: The time at which certificates have to be valid.
        days: How much longer they have to be valid.
        name: Only check registrations of this name.
        accepted: Namespaces that are excluded on purpose.
    """
    entries = gateway_entries(seen.configurations, name)
    if not entries and (config.mutating or config.validating):
        message = "no registration of a gateway was found" + (f" called {name}" if name else "")
        return [Finding("error", "cluster", message, "run admission-gateway manifests --apply")]
    leading, findings = routes(entries, Paths(config))
    findings += check_entries(config, leading, lambda: _planned_conditions(config))
    findings += check_namespaces(config, leading, seen.labels, accepted)
    findings += check_cluster(entries, config, seen)
    held: dict[str, CertificateSet] = {}
    for one in (
        *configured_certificates(config),
        *followed_certificates(seen),
        *registered_roots(entries),
    ):
        if isinstance(one, CertificateSet):
            held[one.place] = one
            findings += check_expiry(one, now, days)
        else:
            findings.append(one)
    serving = next((one for one in held.values() if one.place.startswith(SERVING)), None)
    if serving is None:
        message = "no tls.certFile: cannot check whether the caBundles verify the gateway's certificate"
        findings.append(Finding("warning", "GatewayConfiguration", message, "set it in the configuration"))
    else:
        for entry in entries:
            roots = held.get(f"{entry.place}: caBundle")
            if roots is not None:
                findings += check_trust(entry, roots.certificates, serving.certificates, now)
    return sorted(set(findings))


def _planned_conditions(config: Config) -> set[str]:
    """Return the expressions of the matchConditions that ``manifests`` registers for *config*."""
    try:
        made = plan(config, RegistrationOptions(Backend(service=("a", "b", 443))))
    except GatewayError:
        return set()
    found: set[str] = set()
    for document in made.documents:
        webhooks = document["webhooks"]
        for entry in webhooks if isinstance(webhooks, list) else ():
            found.update(one["expression"] for one in entry.get("matchConditions", ()))
    return found

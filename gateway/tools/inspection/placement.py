"""What ``check`` says about the placement of policies: nothing if all are to stay in the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base import logs
from gateway.base.text import shown
from gateway.config.merge.model import has_policies
from gateway.tools.inspection.model import Finding, gateway_entries
from gateway.tools.inspection.namespaces import excluded_by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.config.merge.model import Config
    from gateway.config.merge.placement import Placement
    from gateway.tools.inspection.model import ClusterState, Severity


def placement_findings(
    config: Config, seen: ClusterState | None = None, name: str | None = None
) -> list[Finding]:
    """Return a finding for each policy of *config* that is to move, or for each reason why it cannot.

    *seen* is the state of the cluster, with the registrations called *name*, or all. Without it the version
    is that of the configuration, and the registration excludes what it does by default.
    """
    if not has_policies(config):
        return []
    # Imported late: it needs the evaluation of expressions.
    from gateway.config.merge.placement import asked_placements, placements

    if seen is None:
        return list(_findings(asked_placements(config)))
    version = None if seen.minor is None else (1, seen.minor)
    entries = gateway_entries(seen.configurations, name)
    if not entries:
        return list(_findings(placements(config, version)))
    excluded = excluded_by_name(entries)
    return list(_findings(placements(config, version, excluded_namespaces=excluded)))


def print_placements(findings: Iterable[Finding]) -> None:
    """Print *findings*: warnings to standard error."""
    for one in findings:
        (logs.print_error if one.severity == "warning" else logs.print_output)(one)


def _findings(found: Iterable[Placement]) -> Iterator[Finding]:
    for one in found:
        place, asked = f"{one.kind} {shown(one.name)}", f"placement {one.wanted}"
        if one.can_move:
            yield Finding("info", place, f"{asked}: the API server evaluates it", "")
        for reason in one.reasons:
            message, _, advice = reason.rpartition("; ")
            severity: Severity = "warning" if one.wanted == "APIServer" else "info"
            yield Finding(severity, place, f"{asked}: the gateway evaluates it: {message}", advice)

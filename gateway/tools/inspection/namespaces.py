"""Checks which webhooks are not called in a namespace because every entry for them excludes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.kinds.namespace import KUBE_SYSTEM, NAME_LABEL
from gateway.tools.inspection.coverage import uncovered
from gateway.tools.inspection.entries import rules_of
from gateway.tools.inspection.model import REGISTER, Finding, Severity
from gateway.tools.registration.coverage_gaps import (
    CoverageGap,
    coverage_gaps,
    how_to_include,
    in_namespaces,
    is_called_in,
    selected,
)
from gateway.tools.registration.exclusions import sendable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.inspection.entries import EntryRoute
    from gateway.tools.inspection.model import RegisteredEntry


def excluded(entries: Sequence[RegisteredEntry]) -> dict[str, bool]:
    """Return the namespaces that *entries* may exclude, and whether each is a gateway's own."""
    own = {entry.service[0] for entry in entries if entry.service is not None}
    return {name: name in own for name in sorted({KUBE_SYSTEM, *own, *excluded_by_name(entries)})}


def excluded_by_name(entries: Iterable[RegisteredEntry]) -> set[str]:
    """Return the namespaces that selectors of *entries* exclude by their names."""
    return {
        name
        for entry in entries
        for one in entry.hook.namespace_selector.requirements
        if one.key == NAME_LABEL and one.operator == "NotIn"
        for name in one.values
    }


def check_namespaces(
    config: Config,
    found: Sequence[EntryRoute],
    labels: Mapping[str, Mapping[str, str]],
    accepted: Collection[str],
) -> Iterator[Finding]:
    """Yield, for each set of namespaces, the webhooks of *config* that are not called there.

    Such a gap is an error unless it is accepted, or in the gateway's own namespace: users who may write there
    can change the gateway itself.

    Args:
        config: The configured webhooks.
        found: The routes from the API server to them.
        labels: Those of the namespaces that are known.
        accepted: Namespaces that are excluded on purpose.
    """
    own = excluded([route.entry for route in found])
    gaps: dict[Severity, list[tuple[str, Webhook, bool]]] = {"error": [], "warning": []}
    for namespace, is_own in own.items():
        for webhook in map(sendable, config.webhooks):
            is_called = is_called_in(webhook, namespace, labels.get(namespace))
            if is_called is not False and _has_gap(webhook, namespace, labels.get(namespace), found):
                is_error = is_called and not is_own and namespace not in accepted
                gaps["error" if is_error else "warning"].append((namespace, webhook, bool(is_called)))
    for severity, several in gaps.items():
        for gap in coverage_gaps(several):
            noun = "namespace" if len(gap.namespaces) == 1 else "namespaces"
            place = f"{noun} {', '.join(gap.namespaces)}"
            yield Finding(
                severity, place, f"excluded by the registration: {gap}", _advice(gap, own, severity)
            )


def _advice(gap: CoverageGap, own: Mapping[str, bool], severity: Severity) -> str:
    ways = " and ".join(how_to_include(name, name if own[name] else None) for name in gap.namespaces)
    advice = f"{REGISTER} {ways}"
    if severity == "error":
        accepting = " ".join(f"--exclude-namespace {name}" for name in gap.namespaces)
        advice += f", or accept it: check --cluster {accepting}"
    return advice


def _has_gap(
    webhook: Webhook, namespace: str, labels: Mapping[str, str] | None, found: Sequence[EntryRoute]
) -> bool:
    """Whether fewer of the namespace's requests reach *webhook* than if no entry excluded it."""
    leading = {route.entry: part for route in found if (part := route.part(webhook)) is not None}
    reaching = {entry for entry in leading if selected(entry.hook, namespace, labels) is not False}
    for rule in webhook.rules if len(reaching) < len(leading) else ():
        bringing = [entry for entry, part in leading.items() if rule in part.rules]
        everywhere, there = rules_of(bringing), rules_of([entry for entry in bringing if entry in reaching])
        for one in in_namespaces(rule):
            if uncovered(one, there) != uncovered(one, everywhere):
                return True
    return False

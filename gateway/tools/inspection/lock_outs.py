"""The lock-outs of a cluster as findings of ``check --cluster``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.tools.deadlocks.collect import collect
from gateway.tools.deadlocks.compute import lock_outs
from gateway.tools.inspection.model import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.tools.deadlocks.model import LockOuts, Refusal, Result
    from gateway.tools.inspection.model import Severity

_SHOWN_OUTAGES: Final = 20
"""Outages that are shown one by one, the most important ones. The rest is counted."""
_SEVERITIES: Final[dict[str, Severity]] = {
    "DEADLOCK": "error",
    "POSSIBLE DEADLOCK": "warning",
    "OUTAGE": "info",
}
_MEANINGS: Final = {
    "DEADLOCK": "and the gateway needs it to start",
    "POSSIBLE DEADLOCK": "and the gateway needs it to start; whether it is refused depends on the request",
    "OUTAGE": "until the gateway is back",
}


async def inspect_lock_outs(
    cluster: KubernetesSettings, configurations: Sequence[dict[str, Any]]
) -> list[Finding]:
    """Return the findings about *cluster*, whose webhook configurations have been read.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    seen = await collect(cluster, configurations)
    found = list(lock_out_findings(lock_outs(seen)))
    if seen.unread:
        found.append(Finding("warning", "rights", f"{seen.unread}: lock-outs may not be seen", "grant it"))
    return found


def lock_out_findings(found: LockOuts) -> Iterator[Finding]:
    """Yield the findings about *found*: a deadlock is an error, an outage a fact."""
    outages = 0
    for one in found.results:
        if one.group == "none":
            continue
        outages += one.group == "OUTAGE"
        if one.group != "OUTAGE" or outages <= _SHOWN_OUTAGES:
            yield _finding(one)
    if outages > _SHOWN_OUTAGES:
        message = f"{outages - _SHOWN_OUTAGES} further workloads cannot start while the gateway is away"
        yield Finding("info", "OUTAGE", message, "")
    seen = set()
    for one, refusal in found.foreign:
        key = (one.subject, refusal.entry)
        if key not in seen:
            seen.add(key)
            certainly = "refuses" if refusal.is_certain else "perhaps refuses"
            message = (
                f"while its own backend is away, it {certainly} {refusal.request.step} for "
                f"{one.subject.title}, which is the gateway"
            )
            yield Finding("warning", refusal.entry.place, message, f"have it {_for_owner(refusal)}")


def _finding(one: Result) -> Finding:
    refusal = one.first
    verb = "is refused" if refusal.is_certain else "is perhaps refused"
    several = f", {one.subject.pods} Pods" if one.subject.pods > 1 else ""
    changes = list(dict.fromkeys(each.change for each in one.refusals if each.request.purpose == "start"))
    meaning = _MEANINGS[one.group]
    if one.group == "POSSIBLE DEADLOCK" and refusal.is_certain:
        meaning = "and perhaps the gateway needs it to start"
    message = (
        f"cannot start while the gateway is away: {refusal.request.step} {verb} by {refusal.entry.place}, "
        f"{meaning}"
    )
    place = f"{one.group} T{one.subject.tier:d} {one.subject.title}{several}"
    advice = " and ".join(changes) if one.group != "OUTAGE" else ""
    return Finding(_SEVERITIES[one.group], place, message, advice)


def _for_owner(refusal: Refusal) -> str:
    if refusal.request.namespace:
        return f"leave out the namespace {refusal.request.namespace}"
    return refusal.change

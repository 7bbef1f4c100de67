"""What cannot start while the gateway is away, and which of that the gateway itself needs.

1. D are the entries with ``failurePolicy: Fail`` whose backend is a gateway. Then each other entry with Fail
   whose backend does not start because of D belongs to D too, until nothing is added.
2. A subject is refused if an entry of D matches a request that its start needs.
3. The graph has an edge from each subject to what it needs: a refused one to the backend that is away, a
   gateway to nodes, control plane, node components and its own namespace. Refused subjects in the strongly
   connected component of a gateway are a DEADLOCK: each waits for the other. Other refused ones are an
   OUTAGE, which ends when the gateway is back.

Laws: fewer entries in D, or requests that fewer of them match, never refuse more; a DEADLOCK is refused.
The time is O(P·W + E) for P subjects, W entries and E edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.workloads.default_rules import part
from gateway.tools.deadlocks.changes import change_for
from gateway.tools.deadlocks.graph import component_of
from gateway.tools.deadlocks.matching import Matcher, fail_entries
from gateway.tools.deadlocks.model import LockOuts, Refusal, Result, Tier
from gateway.tools.deadlocks.subjects import Services, subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.tools.deadlocks.model import FailEntry, Group, Subject
    from gateway.tools.deadlocks.subjects import ClusterObjects

    Refusals = Mapping[Subject, Sequence[Refusal]]
    Graph = dict[object, list[object]]

_GATEWAY: Final = "gateway"
_CONTROL_PLANE: Final = "control plane and nodes"
_COMPONENTS: Final = "node components"
"""Vertices that stand for several subjects, so that the number of edges stays linear."""


def lock_outs(found: ClusterObjects) -> LockOuts:
    """Return what cannot start in the cluster *found* while the gateways are away."""
    every = fail_entries(found.configurations)
    gateways = {one.backend for one in every if one.is_gateway and one.backend is not None}
    all_subjects = subjects(found, sorted(gateways))
    labels = {
        str(part(one, "metadata").get("name")): {
            key: str(value) for key, value in part(one, "metadata", "labels").items()
        }
        for one in found.namespaces
    }
    refusals = _refusals(all_subjects, every, labels)
    behind = _Backends(Services(found.services), all_subjects, every)
    away = _away(every, refusals, behind)
    of_away = {
        subject: [one for one in several if one.entry in away] for subject, several in refusals.items()
    }
    groups = _groups(all_subjects, of_away, refusals, behind)
    results = [Result(one, groups.get(one, "none"), of_away[one]) for one in all_subjects]
    results.sort(key=lambda one: (one.subject.tier, one.subject.title))
    foreign = [
        (one, refusal)
        for one in results
        if one.subject in behind.gateways
        for refusal in refusals[one.subject]
        if not refusal.entry.is_gateway and refusal.request.purpose == "start"
    ]
    return LockOuts(results, foreign, bool(gateways))


def _refusals(
    all_subjects: Iterable[Subject],
    entries: Sequence[FailEntry],
    labels: Mapping[str, Mapping[str, str]],
) -> dict[Subject, list[Refusal]]:
    matcher = Matcher(entries, labels)
    return {
        subject: [
            Refusal(entry, request, is_certain, change_for(entry, request))
            for request in subject.requests
            for entry, is_certain in matcher.refusing(request)
        ]
        for subject in all_subjects
    }


class _Backends:
    """The workloads behind the entries."""

    def __init__(
        self, services: Services, all_subjects: Sequence[Subject], entries: Iterable[FailEntry]
    ) -> None:
        self._of: dict[tuple[str, ...], list[Subject]] = {}
        self.gateways: set[Subject] = set()
        for entry in entries:
            place = entry.backend
            if place is None or len(place) != 2:
                continue
            if place not in self._of:
                self._of[place] = services.chosen(place[0], place[1], all_subjects)
            if entry.is_gateway:
                # Without a selector, everything in its namespace.
                chosen = self._of[place] or [one for one in all_subjects if one.namespace == place[0]]
                self.gateways.update(chosen)

    def of(self, entry: FailEntry) -> list[Subject]:
        """Return the workloads behind *entry*, none if they are not in the cluster."""
        return [] if entry.backend is None else self._of.get(entry.backend, [])


def _away(entries: Iterable[FailEntry], refusals: Refusals, behind: _Backends) -> set[FailEntry]:
    """Return the entries whose backends do not run without the gateway."""
    away = {one for one in entries if one.is_gateway}
    others = [one for one in entries if not one.is_gateway and behind.of(one)]
    while added := [one for one in others if one not in away and _is_down(behind.of(one), refusals, away)]:
        away.update(added)
    return away


def _is_down(workloads: Iterable[Subject], refusals: Refusals, away: set[FailEntry]) -> bool:
    return all(
        any(
            refusal.is_certain and refusal.entry in away and refusal.request.purpose == "start"
            for refusal in refusals[one]
        )
        for one in workloads
    )


def _groups(
    all_subjects: Sequence[Subject], of_away: Refusals, refusals: Refusals, behind: _Backends
) -> dict[Subject, Group]:
    # Where a gateway behind a URL runs is not known: it may be outside of the cluster, and need nothing here.
    certain: frozenset[object] = frozenset()
    if behind.gateways:
        certain = _component(all_subjects, of_away, refusals, behind, also_perhaps=False)
    possible = _component(all_subjects, of_away, refusals, behind, also_perhaps=True)
    found: dict[Subject, Group] = {}
    for subject in all_subjects:
        state = Result(subject, "none", of_away[subject]).state
        if state == "refused":
            in_possible: Group = "POSSIBLE DEADLOCK" if subject in possible else "OUTAGE"
            found[subject] = "DEADLOCK" if subject in certain else in_possible
        elif state == "perhaps":
            found[subject] = "POSSIBLE DEADLOCK" if subject in possible else "none"
    return found


def _component(
    all_subjects: Sequence[Subject],
    of_away: Refusals,
    refusals: Refusals,
    behind: _Backends,
    *,
    also_perhaps: bool,
) -> frozenset[object]:
    edges: Graph = {_GATEWAY: [_CONTROL_PLANE, _COMPONENTS, *behind.gateways], _CONTROL_PLANE: []}
    edges[_COMPONENTS] = []
    for one in all_subjects:
        needs = edges.setdefault(one, [])
        for refusal in of_away[one]:
            if refusal.request.purpose == "start" and (refusal.is_certain or also_perhaps):
                needs += [_GATEWAY] if refusal.entry.is_gateway else behind.of(refusal.entry)
        if one.tier <= Tier.NODES:
            edges[_CONTROL_PLANE].append(one)
            continue
        needs.append(_CONTROL_PLANE)
        if one.tier == Tier.NODE_COMPONENTS:
            edges[_COMPONENTS].append(one)
        elif not one.is_on_host_network:
            needs.append(_COMPONENTS)
        if one.tier == Tier.GATEWAY and behind.gateways:
            edges[_GATEWAY].append(one)
    for one in behind.gateways:
        edges[one] += [
            other
            for refusal in refusals[one]
            if refusal.request.purpose == "start" and not refusal.entry.is_gateway
            for other in behind.of(refusal.entry)
        ]
    return component_of(_GATEWAY, edges)

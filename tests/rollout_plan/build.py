"""Plans, states and evidence for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.pure.rollout_plan.evidence import Evidence, Tally
from gateway.pure.rollout_plan.model import Gates, Group, Plan, Stage
from tests.core.build import labelled

if TYPE_CHECKING:
    from gateway.pure.rollout_plan.evidence import Part
    from gateway.pure.rollout_plan.state import PlanState

START_S = 1_800_000_000.0
HOUR_S = 3600.0
CANARY = Group("canary", labelled("tier", "canary"))
CRITICAL = Group("critical", labelled("tier", "critical"))


def plan(gates: Gates = Gates(max_newly_denied=0), **fields: Any) -> Plan:  # noqa: B008 - is frozen
    """A plan of six stages of one hour, each with *gates*."""
    stages = (
        Stage("Shadow", 0, HOUR_S, gates),
        Stage("Audit", 0, HOUR_S, gates),
        Stage("Warn", 0, HOUR_S, gates, groups=("canary",)),
        Stage("Warn", 5, HOUR_S, gates),
        Stage("Warn", 100, HOUR_S, gates),
        Stage("Enforce", 0, HOUR_S, gates),
    )
    return Plan.of(stages, (CANARY, CRITICAL), **fields)


def good(number: int = 10) -> Part:
    """Evidence without anything that a gate refuses."""
    tally = Tally()
    for index in range(number):
        tally.answered(f"team-{index % 3}", f"user-{index % 5}", 0.004)
    return tally.part()


def newly_denied(owner: str = "ReplicaSet/web", namespace: str = "team-1", number: int = 1) -> Part:
    """Evidence with requests of *owner* that would be refused."""
    tally = Tally()
    for _ in range(number):
        tally.answered(namespace, "user", 0.004, refuses=True, owner=owner)
    return tally.part()


def refused(owners: int, namespaces: int, number: int = 1) -> Part:
    """Evidence with refused requests of *owners* in *namespaces*, each *number* times."""
    tally = Tally()
    for index in range(max(owners, namespaces)):
        for _ in range(number):
            owner = f"ReplicaSet/web-{index % owners}"
            tally.answered(
                f"team-{index % namespaces}", "user", 0.004, refuses=True, is_enforced=True, owner=owner
            )
    return tally.part()


def evidence(state: PlanState, **parts: Part) -> Evidence:
    """The evidence of *parts* for the present step of *state*."""
    return Evidence(state.evidence_window, parts)

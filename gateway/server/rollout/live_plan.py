"""One rollout plan, as far as a process knows: its state, what its gates say, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.rollout_plan.waiting import Waiting, held, waits_for

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.rollout_plan.decide import GateResult
    from gateway.pure.rollout_plan.evidence import Evidence
    from gateway.pure.rollout_plan.model import Plan
    from gateway.pure.rollout_plan.state import PlanState
    from gateway.server.rollout.store import Stored

UNKNOWN: Final = "Unknown"
"""The phase of a plan whose state has not been read."""
HELD: Final = "Held"
"""The phase of a plan that was removed and whose stage holds."""


@dataclass(slots=True)
class LivePlan:
    """One plan, as far as this process knows."""

    name: str
    webhook: Webhook
    plan: Plan
    """If it was removed: the outline that its state has."""
    stored: Stored | None = None
    state: PlanState | None = None
    seen_at: float = 0.0
    """When this version of the state was first seen, by the monotonic clock."""
    written_over: str | None = None
    """The version over which this process has written: nothing is decided until the next one is observed."""
    step: int = 0
    results: list[GateResult] = field(default_factory=list)
    evidence: Evidence | None = None
    """Of all processes, at the last look."""
    processes: int = 0
    """That were there at the last look."""
    fault: str = ""
    is_damaged: bool = False
    """Whether the stored state cannot be read; another version of the gateway may have written it."""
    is_removed: bool = False
    """Whether the configuration does not have the plan any more, and its stage holds."""

    @property
    def phase(self) -> str:
        """The phase of the state, as people see it."""
        if self.is_removed:
            return HELD
        return UNKNOWN if self.state is None else self.state.phase

    @property
    def why_held(self) -> str:
        """What to do about a plan that was removed. Empty if it was not."""
        if not self.is_removed:
            return ""
        return (
            f"the plan was removed, and its {self.where} holds: write rollout.mode, or have it enforced by "
            '"admission-gateway rollout forget"'
        )

    @property
    def where(self) -> str:
        """The stage in force, for people."""
        return f"stage {self.step + 1} of {len(self.stages)} ({self.stages[self.step]})"

    def waiting(self, now_s: float, *, since_s: float) -> Waiting:
        """Return what it waits for; *now_s* and *since_s* are those of ``decide``."""
        state = self.state
        if self.is_removed:
            return Waiting("person", (self.why_held,))
        if state is not None and (found := held(state)) is not None:
            return found
        if self.fault:
            return Waiting("store" if self.is_damaged else "processes", (self.fault,))
        if state is None:
            return Waiting("store", ("its state has not been read",))
        return waits_for(self.plan, state, self.results, now_s, since_s=since_s)

    def waiting_in(self, state: PlanState, now_s: float) -> Waiting:
        """Return what it waits for in *state*, which is being written."""
        return waits_for(self.plan, state, self.results, now_s)

    @property
    def stages(self) -> list[str]:
        """The stages in words."""
        return [str(stage) for stage in self.plan.stages]


class PlanView(NamedTuple):
    """A plan at one moment, for pages."""

    plan: LivePlan
    """A copy."""
    waiting: Waiting

    @classmethod
    def of(cls, plan: LivePlan, waiting: Waiting) -> PlanView:
        """Return the view of *plan*, which may change afterwards."""
        return cls(replace(plan), waiting)

    @property
    def phase(self) -> str:
        """The phase, also without a state."""
        return self.plan.phase

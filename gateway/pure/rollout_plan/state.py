"""The state of a rollout plan: one object, which all replicas read and one of them writes.

A process that writes it says which version it has read (compare and swap). Of two that decide at once, one
loses.
The step in force is the one in the state. No replica computes it from a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from admission_gateway_worker.text import printable
from gateway.base.text import described, rfc3339, seconds_of
from gateway.pure.rollout_plan import outline
from gateway.pure.rollout_plan.evidence import MAX_SOURCES
from gateway.pure.rollout_plan.model import MAX_STAGES
from gateway.pure.rollout_plan.reading import InvalidState, count, items, mapping, one_from, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.rollout_plan.model import Plan, Stage

    Json = dict[str, Any]

Phase = Literal["Progressing", "Paused", "RolledBack", "Complete", "Held", "Forgotten"]
"""Held: the plan was removed, and its stage holds. Forgotten: a person has ended that."""
# fmt: off
Action = Literal[
    "start", "restart", "promote", "complete", "pause", "resume", "approve", "skip", "rollback", "hold",
    "forget",
]
# fmt: on

PHASES: tuple[Phase, ...] = get_args(Phase)
ACTIONS: tuple[Action, ...] = get_args(Action)
MAX_DECISIONS: Final = 20
"""The last decisions that a state keeps."""
MAX_ROLLED_BACK: Final = 8
MAX_WHO: Final = 253
MAX_WHY: Final = 600
MAX_SOURCE: Final = 253
_MAX_SECONDS: Final = 253_402_300_799
"""The last second that RFC 3339 can write."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DIGEST: Final = re.compile(r"[0-9a-f]{16,32}")


@dataclass(frozen=True, slots=True)
class Decision:
    """One change of the state."""

    action: Action
    step: int
    """The step from then on."""
    who: str
    """A user, or empty: the gateway."""
    why: str
    time_s: int
    """When, by the clock of the process that decided."""
    revision: int

    def as_json(self) -> Json:
        """Return it as JSON."""
        return {
            "action": self.action,
            "step": self.step,
            "who": self.who,
            "why": self.why,
            "time": rfc3339(self.time_s),
            "revision": self.revision,
        }


@dataclass(frozen=True, slots=True)
class PlanState:
    """Where a plan is."""

    generation: str
    """The digest of the plan."""
    stage_digests: tuple[str, ...]
    """Those of the plan: how much another plan has in common with it."""
    outline: Plan
    """That of the plan: what is in force in each stage, for processes that do not have the plan."""
    step: int
    phase: Phase
    window: int
    """Evidence of other windows does not count."""
    started_at_s: int
    """When the step began, by the clock of the process that decided."""
    elapsed_s: float = 0.0
    """How long those who decide have watched the step, each by its monotonic clock."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Sources whose evidence of this window has been seen, and how much."""
    rolled_back: tuple[str, ...] = ()
    """Generations that were rolled back and that no person has resumed, the last ones."""
    paused_by: str = ""
    """The person who has paused it, and whose pause holds also if the plan was removed and returns."""
    approved_by: str = ""
    """The person who has approved of the stage after this one."""
    rollbacks: int = 0
    """How often the plan went back by itself since it was complete last."""
    decisions: tuple[Decision, ...] = ()
    """The last ones, the oldest first; never empty."""

    @property
    def evidence_window(self) -> str:
        """What evidence for the present step names."""
        return f"{self.generation}-{self.window}"

    @property
    def revision(self) -> int:
        """How many decisions there were."""
        return self.decisions[-1].revision if self.decisions else 0

    @property
    def is_paused_by_person(self) -> bool:
        """Whether a person has paused it, who has to resume it."""
        return self.phase == "Paused" and self.paused_by != ""

    @property
    def is_of_removed_plan(self) -> bool:
        """Whether no configuration had the plan when it was last decided on."""
        return self.phase in ("Held", "Forgotten")

    @property
    def stage(self) -> Stage:
        """The stage in force, as in the outline."""
        return self.outline.stages[self.step]

    def decided(
        self, action: Action, step: int, phase: Phase, *, why: str, now_s: float, who: str = ""
    ) -> PlanState:
        """Return the state after a decision, with a window, time and evidence of its own."""
        time_s = _second(now_s)
        said = printable(why, MAX_WHY)
        decision = Decision(action, step, printable(who, MAX_WHO), said, time_s, self.revision + 1)
        return replace(
            self,
            step=step,
            phase=phase,
            window=self.window + 1,
            started_at_s=time_s,
            elapsed_s=0.0,
            sources={},
            paused_by="",
            approved_by="",
            decisions=(*self.decisions, decision)[-MAX_DECISIONS:],
        )

    def as_json(self) -> Json:
        """Return it as JSON."""
        return {
            "generation": self.generation,
            "stageDigests": list(self.stage_digests),
            "outline": outline.as_json(self.outline),
            "step": self.step,
            "phase": self.phase,
            "window": self.window,
            "stepStartedAt": rfc3339(self.started_at_s),
            "elapsedSeconds": self.elapsed_s,
            "sources": dict(sorted(self.sources.items())),
            "rolledBack": list(self.rolled_back),
            "pausedBy": self.paused_by,
            "approvedBy": self.approved_by,
            "rollbacks": self.rollbacks,
            "decisions": [one.as_json() for one in self.decisions],
        }

    @classmethod
    def from_json(cls, document: object) -> PlanState:
        """Return the state in *document*.

        Raises:
            InvalidState: *document* is not what ``as_json`` makes.
        """
        found = mapping(document, "the state")
        digests = items(found, "stageDigests", 1, MAX_STAGES)
        rolled_back = items(found, "rolledBack", 0, MAX_ROLLED_BACK)
        state = cls(
            generation=_digest(found.get("generation"), "generation"),
            stage_digests=tuple(_digest(one, "stageDigests") for one in digests),
            outline=outline.from_json(found.get("outline")),
            step=count(found, "step", len(digests) - 1),
            phase=one_from(found, "phase", PHASES),
            window=count(found, "window"),
            started_at_s=_time(found, "stepStartedAt"),
            elapsed_s=_seconds(found, "elapsedSeconds"),
            sources=_sources(found),
            rolled_back=tuple(_digest(one, "rolledBack") for one in rolled_back),
            paused_by=text(found, "pausedBy", MAX_WHO),
            approved_by=text(found, "approvedBy", MAX_WHO),
            rollbacks=count(found, "rollbacks"),
            decisions=tuple(map(_decision, items(found, "decisions", 1, MAX_DECISIONS))),
        )
        if len(state.outline.stages) != len(digests):
            raise InvalidState(f"outline.stages: found {len(state.outline.stages)}, expected {len(digests)}")
        revisions = [one.revision for one in state.decisions]
        if revisions != list(range(revisions[0], revisions[0] + len(revisions))):
            raise InvalidState("decisions: expected revisions one after the other")
        return state


def started(plan: Plan, now_s: float) -> PlanState:
    """Return the state of *plan* at its beginning."""
    state = PlanState(plan.digest, plan.stage_digests, plan.outline, 0, "Progressing", 0, _second(now_s))
    return state.decided("start", 0, "Progressing", why=f"stage 1: {plan.stages[0]}", now_s=now_s)


def _second(now_s: float) -> int:
    return int(min(max(now_s, 0), _MAX_SECONDS))


def _decision(document: object) -> Decision:
    found = mapping(document, "decisions")
    return Decision(
        action=one_from(found, "action", ACTIONS),
        step=count(found, "step", MAX_STAGES - 1),
        who=text(found, "who", MAX_WHO),
        why=text(found, "why", MAX_WHY),
        time_s=_time(found, "time"),
        revision=count(found, "revision"),
    )


def _digest(value: object, name: str) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise InvalidState(f"{name}: found {described(value)}, expected a digest")
    return value


def _seconds(found: Json, name: str) -> float:
    value = found.get(name)
    if type(value) not in (int, float) or not 0 <= value <= _MAX_SECONDS:  # type: ignore[operator]
        raise InvalidState(f"{name}: found {described(value)}, expected seconds")
    return float(value)  # type: ignore[arg-type]


def _time(found: Json, name: str) -> int:
    value = found.get(name)
    if isinstance(value, str) and _TIME.fullmatch(value):
        try:
            return _second(seconds_of(value))
        except ValueError:
            pass
    raise InvalidState(f"{name}: found {described(value)}, expected a time such as 2026-12-01T00:00:00Z")


def _sources(found: Json) -> dict[str, int]:
    sources = mapping(found.get("sources"), "sources")
    if len(sources) > MAX_SOURCES or any(len(name) > MAX_SOURCE for name in sources):
        raise InvalidState(f"sources: expected at most {MAX_SOURCES} names of {MAX_SOURCE} characters")
    return {name: count(sources, name) for name in sources}

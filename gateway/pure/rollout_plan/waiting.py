"""What a rollout plan waits for: in words for people, and as one reason for metrics.

All that shows a plan says it by these functions: ``rollout status``, ``status``, pages and the RolloutState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from gateway.pure.core.durations import format_duration
from gateway.pure.rollout_plan.decide import APPROVAL, LONGEST_LOOK_S, lasts_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.rollout_plan.decide import GateResult
    from gateway.pure.rollout_plan.model import Plan
    from gateway.pure.rollout_plan.state import PlanState

Reason = Literal["nothing", "time", "data", "decision", "person", "gateway", "processes", "store"]
"""``nothing``: it is complete. ``time``: the stage has not lasted its time. ``data``: it has, and a gate is
unknown. ``decision``: all gates pass. ``person``: a person paused it or rolled it back. ``gateway``: the
gateway did. ``processes``: some have another plan. ``store``: the state cannot be read or written."""
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
REMOVED: Final = (
    'the plan was removed: its stage holds until rollout.mode is written, or "rollout forget" has it enforced'
)
_MINUTE_S: Final = 60


class Waiting(NamedTuple):
    """What a plan waits for."""

    reason: Reason
    texts: tuple[str, ...]
    """Empty: for nothing."""


def held(state: PlanState) -> Waiting | None:
    """Return what a plan waits for that does not progress. None if it does."""
    if state.phase == "Progressing":
        return None
    if state.phase in ("Complete", "Forgotten"):
        return Waiting("nothing", ())
    if state.phase == "Held":
        return Waiting("person", (REMOVED,))
    last = state.decisions[-1]
    what = "paused" if state.phase == "Paused" else "rolled back"
    reason: Reason = "person" if last.who else "gateway"
    return Waiting(reason, (f"{what} by {last.who or 'the gateway'}: {last.why}",))


def waits_for(
    plan: Plan, state: PlanState, results: Iterable[GateResult], now_s: float, *, since_s: float = 0.0
) -> Waiting:
    """Return what *plan* waits for in *state*, which is one of it, after *results* of its gates.

    *now_s* and *since_s* are those of ``decide``.
    """
    if (found := held(state)) is not None:
        return found
    wanted_s = lasts_s(plan, state)
    elapsed_s = state.elapsed_s + min(max(since_s, 0.0), LONGEST_LOOK_S)
    left_s = wanted_s - min(elapsed_s, now_s - state.started_at_s)
    texts = [f"for {format_duration(wanted_s)}: {_rounded(left_s)} left"] if left_s > 0 else []
    open_gates = [one for one in results if one.value != "pass"]
    texts += map(str, open_gates)
    if left_s > 0:
        return Waiting("time", tuple(texts))
    if not open_gates:
        return Waiting("decision", ("a decision: all gates pass",))
    if all(one.name == APPROVAL for one in open_gates):
        return Waiting("person", tuple(texts))
    if (wait_s := wanted_s + plan.max_wait_s - elapsed_s) > 0:
        texts.append(f"it pauses in {_rounded(wait_s)} if that stays so")
    return Waiting("data", tuple(texts))


def _rounded(seconds: float) -> str:
    """Return *seconds*, from a minute on rounded up to minutes."""
    minutes, rest = divmod(seconds, _MINUTE_S)
    return format_duration((minutes + (rest > 0)) * _MINUTE_S if minutes else -(-seconds // 1))

"""What a person does to a plan, by command and by page: one function reads, decides and writes.

Neither the command nor the page needs the plan: the state has what the actions read of it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from gateway.base.errors import GatewayError
from gateway.pure.core.webhook import WebhookId
from gateway.pure.rollout_plan import decide
from gateway.server.rollout.documents import read_state, stages_of, state_document, webhook_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.pure.rollout_plan.model import Plan
    from gateway.pure.rollout_plan.state import PlanState
    from gateway.server.rollout.store import PlanStore, Stored

ACTS: Final = {
    "pause": decide.pause,
    "resume": decide.resume,
    "approve": decide.approve,
    "skip": decide.skip,
    "rollback": decide.roll_back,
    "forget": decide.forget,
}
_ATTEMPTS: Final = 4
_WAIT_S: Final = 10.0
_POLL_S: Final = 0.02


class Stale(GatewayError):
    """The plan is not what the person saw who asks."""


@dataclass(frozen=True, slots=True)
class Acted:
    """What an action has led to."""

    webhook: str
    state: PlanState
    stages: list[str]
    """In words."""

    def __str__(self) -> str:
        """``a.example.com: Paused, stage 1 of 3 (Audit), by alice``."""
        return f"{self.webhook}: {where_is(self.state, self.stages)}, by {self.state.decisions[-1].who}"


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the actions read of a plan."""

    digest: str
    last: int


def where_is(state: PlanState, stages: Sequence[str]) -> str:
    """Return the phase of *state*, and what is in force: ``Paused, stage 1 of 3 (Audit)``."""
    if state.phase == "Forgotten":
        return f"{state.phase}, the configuration holds"
    return f"{state.phase}, stage {state.step + 1} of {len(stages)} ({stages[state.step]})"


def seen_of(state: PlanState) -> str:
    """Return what identifies the decisions of *state*: evidence and time may be added to it meanwhile."""
    return f"{state.generation}-{state.revision}"


def possible(state: PlanState) -> list[str]:
    """Return the actions that *state* allows."""
    if state.is_of_removed_plan:
        return ["forget"] if state.phase == "Held" else []
    found = ["pause"] if state.phase == "Progressing" else []
    needs_approval = state.stage.needs_approval and not state.approved_by
    found += ["approve"] if needs_approval and state.phase == "Progressing" else []
    found += ["resume"] if state.phase in ("Paused", "RolledBack") else []
    found += ["skip"] if state.phase != "Complete" else []
    return [*found, "rollback"] if state.step > 0 else found


async def act(
    store: PlanStore,
    choose: Callable[[], Stored],
    action: str,
    *,
    who: str,
    why: str,
    seen: str | None = None,
) -> Acted:
    """Write the state after *action* in place of the one that *choose* returns, by compare and swap.

    *seen* is ``seen_of`` the state that the person saw. None: whatever it is now.

    Raises:
        GatewayError: it is another one (``Stale``), does not allow the action (``ActionRefused``), or cannot
            be read or written (``StoreError``).
    """
    for _ in range(_ATTEMPTS):
        stored = choose()
        state = read_state(stored)
        if seen is not None and seen != seen_of(state):
            last = state.decisions[-1]
            by = last.who or "the gateway"
            raise Stale(f"the plan has changed since you looked: {last.action} by {by}: {last.why}")
        plan = cast("Plan", _Shape(state.generation, len(state.stage_digests) - 1))
        after = ACTS[action](plan, state, who=who, why=why, now_s=time.time())
        kind = stored.document.get("type")
        id_ = WebhookId(
            "mutate" if kind == "mutate" else "validate",
            str(stored.document.get("configuration", "")),
            webhook_of(stored),
        )
        stages = stages_of(stored, state)
        if await store.replace(stored.name, stored, state_document(id_, stages, after)):
            return Acted(id_.name, after, stages)
        # A gateway was faster: what was asked for is asked of the state after that.
        await _wait_for_another(store, stored)
    raise GatewayError("the state changes all the time, try again")


async def _wait_for_another(store: PlanStore, before: Stored) -> None:
    give_up = time.monotonic() + _WAIT_S
    while store.states.get(before.name) == before and time.monotonic() < give_up:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)

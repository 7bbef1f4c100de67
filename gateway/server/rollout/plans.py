"""The rollout plans of one process: puts observed steps in force, writes evidence, and proposes decisions.

1. What is in force is the step of the state as it was last observed. It depends on no clock, and stays
   without contact. Before the first contact it is that of the last file, and without one the first stage.
2. Every process may propose. ``decide`` says what, and a compare and swap which of the proposals counts.
3. A state of another plan is replaced only when all processes that are there have the new plan.
4. Evidence stays as long as its window is that of a state, also that of a process that is gone.
5. Where the plan of a webhook was removed and no mode is given, the stage of its state holds until a person
   says otherwise. A state is removed when no process that is there needs it, which it has to be for a day.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.errors import GatewayError
from gateway.base.private_folder import PrivateFolder, read_small_json
from gateway.observe.telemetry.rollouts import PlanNumbers
from gateway.pure.rollout_plan.decide import VALUES, decide, enforced_from_s, hold, holds, judge
from gateway.pure.rollout_plan.decide import adopted as adopted_by
from gateway.pure.rollout_plan.evidence import Part
from gateway.pure.rollout_plan.model import may_be_held, plan_of, rollout_of
from gateway.pure.rollout_plan.state import started
from gateway.pure.rollout_plan.waiting import Waiting
from gateway.server.rollout import actions
from gateway.server.rollout.documents import (
    evidence_document,
    read_state,
    state_document,
)
from gateway.server.rollout.live_plan import LivePlan, PlanView
from gateway.server.rollout.process_evidence import merged
from gateway.server.rollout.store import (
    EVIDENCE,
    MAX_BYTES,
    STATE,
    Stored,
    StoreError,
    StoreFullError,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from gateway.engine.stages import Stages
    from gateway.pure.core.webhook import Rollout, Webhook, WebhookId
    from gateway.pure.rollout_plan.state import Decision, PlanState
    from gateway.server.rollout.collector import Collector
    from gateway.server.rollout.process_evidence import ProcessEvidence
    from gateway.server.rollout.store import PlanStore

    Decided = Callable[[LivePlan, Decision], None]

log = logging.getLogger(__name__)

NO_STORE: Final = "rolloutPlans of the GatewayConfiguration is absent: plans stay in their first stage"
_HOLDS: Final = "held"
"""What evidence has in place of the generation of a plan: the process needs the state."""
_NO_PLAN: Final = "none"
"""The process has the webhook, without a plan, and needs no state."""
_FILE: Final = "last.json"
_ACT_WITHIN_S: Final = 20.0
"""Less than a supervisor waits for a process."""
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations in seconds."""

    look_s: float = 5.0
    """From one look at the plans to the next, some random part added."""
    publish_s: float = 10.0
    """Evidence that has changed is written after so long."""
    beat_s: float = 30.0
    """Evidence that has not changed, too: it shows that the process is there."""
    live_s: float = 90.0
    """A process whose evidence has not changed for so long is gone, by the clock of who looks."""
    forget_s: float = 600.0
    """Evidence of a process that is gone, and of no present window, is removed after so long."""
    forget_state_s: float = 86_400.0
    """A state that no process needs is removed after so long."""


class RolloutPlans:
    """The plans of one process. Make it on a running event loop."""

    def __init__(
        self,
        stages: Stages,
        collector: Collector,
        process: str,
        *,
        decided: Decided = lambda plan, decision: None,
        folder: Path | None = None,
        pace: Pace | None = None,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """*process* is unique among all starts of all processes. *decided* is called with new decisions.

        *folder* is for the last states, which count after a start without contact; None: nothing is kept.
        """
        self.plans: dict[str, LivePlan] = {}
        """By the name of the state. Those that were removed are there as long as their stage holds."""
        self._without: dict[str, Webhook] = {}
        """The webhooks without a plan, by the name that the state of one would have."""
        self._stages = stages
        self._collector = collector
        self.process = process
        self._decided = decided
        self._folder = None if folder is None else PrivateFolder(folder)
        self._remembered: dict[str, Stored] = {}
        self._pace = pace or Pace()
        self._now = now
        self._wall = wall
        self._store: PlanStore | None = None
        self._task: asyncio.Task[None] | None = None
        self._beat = 0
        self._published: tuple[object, float] = (None, float("-inf"))
        """What was written last, and when."""
        self._beats: dict[str, tuple[str, float]] = {}
        """The version of the evidence of each process, and when it was first seen."""
        self._holding_nothing: dict[str, str] = {}
        """The versions of states that are of no plan, and hold nothing."""
        self._unneeded: dict[str, tuple[str, float]] = {}
        """The version of each state that no process needs, and when that was first seen."""
        self._warned_of = ""

    @property
    def fault(self) -> str:
        """Why plans cannot be promoted now. Empty if they can."""
        if self._store is None:
            return "" if all(one.is_removed for one in self.plans.values()) else NO_STORE
        return f"rollout plans keep their stages: {self._store.fault}" if self._store.fault else ""

    @property
    def faults(self) -> list[str]:
        """Lines about what is wrong."""
        about_all = [
            self.fault,
            "" if self._store is None else self._store.excess,
            f"rollout plans keep their stages for now: {self._warned_of}" if self._warned_of else "",
        ]
        about_one = [
            f"rollout plan of {one.webhook.name}: {line}"
            for one in self.plans.values()
            for line in (one.fault, one.why_held)
            if line
        ]
        return [*filter(None, about_all), *about_one]

    def views(self) -> dict[WebhookId, PlanView]:
        """Return what pages show of each plan, as it is now."""
        return {one.webhook.plan_id: PlanView.of(one, self._waiting(one)) for one in self.plans.values()}

    def _waiting(self, one: LivePlan) -> Waiting:
        found = one.waiting(self._wall(), since_s=self._now() - one.seen_at)
        if self.fault and found.reason not in ("nothing", "person", "gateway"):
            return Waiting("store", (self.fault,))
        return found

    def numbers(self) -> list[PlanNumbers]:
        """Return what metrics show of each plan."""
        return [
            PlanNumbers(
                one.webhook.plan_id,
                one.step + 1,
                one.phase,
                {value: sum(result.value == value for result in one.results) for value in VALUES},
                self._waiting(one).reason,
            )
            for one in self.plans.values()
        ]

    # -- the configuration ----------------------------------------------------------------------------

    async def use_store(self, store: PlanStore | None) -> None:
        """Keep the states in *store* from now on. None: there is none."""
        old, self._store = self._store, store
        if old is not None:
            await old.close()
        self._beats.clear()
        self._published = None, float("-inf")
        if store is not None:
            if self._folder is not None:
                self._remembered = await asyncio.to_thread(_read_last, self._folder)
            await store.start()
        if self._task is None and store is not None:
            self._task = asyncio.create_task(self._run())

    def activate(self, webhooks: Iterable[Webhook]) -> None:
        """Follow the plans of *webhooks* from now on, those of the configuration in force."""
        before, after = self.plans, dict[str, LivePlan]()
        self._without, self._holding_nothing = {}, {}
        for webhook in webhooks:
            name, plan = name_of(webhook), plan_of(webhook)
            known = before.get(name)
            if plan is not None:
                after[name] = LivePlan(name, webhook, plan) if known is None else known
                after[name].webhook, after[name].plan, after[name].is_removed = webhook, plan, False
                continue
            self._without[name] = webhook
            if known is not None:
                known.webhook = webhook
                self._plan_is_gone(known, after)
        self.plans = after
        self.observe()

    def _plan_is_gone(self, one: LivePlan, after: dict[str, LivePlan]) -> None:
        """Keep *one*, which has no plan any more, in *after* if its stage holds, and say what holds."""
        was_removed, where = one.is_removed, one.where
        if one.state is not None and holds(one.webhook, one.state):
            one.is_removed, one.results, one.fault = True, [], ""
            after[one.name] = one
            if not was_removed:
                log.warning("the rollout plan of %s is gone: its %s holds", one.webhook.name, where)
            return
        rollout = one.webhook.rollout
        mode = "Enforce" if rollout is None else rollout.mode
        what = "does not hold any more" if was_removed else "was in force"
        log.warning(
            "the rollout plan of %s is gone: its %s %s, and its mode is %s now",
            one.webhook.name,
            where,
            what,
            mode,
        )

    async def wait_until_synced(self, timeout_s: float) -> None:
        """Wait until the states have been read, for up to *timeout_s* seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._store is not None and not self._store.is_synced:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        self.observe()

    async def close(self) -> None:
        """Say that this process ends, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._store is not None:
            if self._published[0] is not None:
                with suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(2.0):
                        await self._publish(is_ended=True)
            await self._store.close()

    async def act(self, name: str, action: str, *, who: str, why: str, seen: str) -> actions.Acted:
        """Do *action* to the plan *name*, as ``gateway.server.rollout.actions.act`` does.

        Raises:
            GatewayError: see there, and there is no such plan, or no answer in time.
        """
        store = self._store
        if store is None or not store.is_synced or self.fault:
            raise StoreError(self.fault or "the states of plans have not been read yet")

        def choose() -> Stored:
            stored = store.states.get(name)
            if stored is None or name not in self.plans:
                raise StoreError("there is no state of such a plan")
            return stored

        try:
            async with asyncio.timeout(_ACT_WITHIN_S):
                return await actions.act(store, choose, action, who=who, why=why, seen=seen)
        except TimeoutError:
            raise StoreError("no answer in time: look whether the action is among the decisions") from None

    # -- what is in force -----------------------------------------------------------------------------

    def changed(self) -> None:
        """Note a change of the store."""
        self.observe()

    def observe(self) -> None:
        """Put the steps of the observed states in force."""
        store, now = self._store, self._now()
        states = self._remembered if store is None or not store.is_synced else store.states
        self._find_held(states)
        rollouts: dict[WebhookId, Rollout] = {}
        windows: dict[WebhookId, str] = {}
        for one in list(self.plans.values()):
            self._see(one, states.get(one.name), now)
            state = one.state
            if one.is_removed:
                assert state is not None
                if not holds(one.webhook, state):
                    del self.plans[one.name]
                    continue
            one.step = 0 if state is None else self._step(one, state)
            rollouts[one.webhook.plan_id] = replace(
                rollout_of(one.webhook, one.plan.stages[one.step]),
                enforced_from_s=0.0 if one.is_removed else enforced_from_s(one.plan, state),
            )
            is_counted = state is not None and state.generation == one.plan.digest and not one.is_removed
            if is_counted and state is not None and state.phase != "Complete":
                windows[one.webhook.plan_id] = state.evidence_window
        self._stages.put(rollouts)
        self._collector.use(windows)

    def _find_held(self, states: Mapping[str, Stored]) -> None:
        """Add the plans that were removed, and whose stages hold."""
        for name in states.keys() & self._without.keys() - self.plans.keys():
            webhook, stored = self._without[name], states[name]
            if not may_be_held(webhook) or self._holding_nothing.get(name) == stored.version:
                continue
            self._holding_nothing[name] = stored.version
            try:
                state = read_state(stored)
            except StoreError as error:
                # Which stage it would be is not known: the configuration holds.
                log.warning("an earlier rollout plan of %s holds nothing: %s", webhook.name, error)
                continue
            if holds(webhook, state):
                one = LivePlan(name, webhook, state.outline, state=state, step=state.step, is_removed=True)
                self.plans[name] = one
                del self._holding_nothing[name]
                log.warning("rollout plan of %s: %s", webhook.name, one.why_held)

    def _step(self, one: LivePlan, state: PlanState) -> int:
        if one.is_removed or state.generation == one.plan.digest:
            return min(state.step, one.plan.last)
        # Until all processes have this plan: what it would begin with.
        return adopted_by(one.plan, state, 0.0).step

    def _see(self, one: LivePlan, stored: Stored | None, now: float) -> None:
        if stored is None:
            # Who removes a state, or loses the store, does not change what is in force: it is written again.
            one.stored = None
            return
        if one.stored is not None and stored.version == one.stored.version:
            return
        try:
            state = read_state(stored)
        except StoreError as error:
            # What is in force stays: a damaged state must not switch a policy off, or on.
            one.fault, one.is_damaged = str(error), True
            one.stored, one.written_over = stored, None
            return
        before, one.is_damaged = one.state, False
        one.stored, one.state, one.seen_at, one.written_over, one.fault = stored, state, now, None, ""
        if one.is_removed:
            one.plan = state.outline
        for decision in state.decisions:
            if before is not None and decision.revision > before.revision:
                self._decided(one, decision)

    # -- evidence and decisions -----------------------------------------------------------------------

    async def _run(self) -> None:
        remembered: object = None
        while True:
            try:
                await self.look()
                wanted = [(one.name, one.stored.version) for one in self.plans.values() if one.stored]
                if self._folder is not None and wanted != remembered and self.fault == "":
                    await asyncio.to_thread(_write_last, self._folder, self._states())
                    remembered = wanted
                self._warned_of = ""
            except GatewayError as error:
                if str(error) != self._warned_of:
                    self._warned_of = str(error)
                    log.warning("rollout plans keep their stages for now: %s", error)
            except Exception:
                log.exception("rollout plans keep their stages for now: internal error")
            # Replicas look at different times, so that one of them usually is alone.
            pause_s = self._pace.look_s * random.uniform(0.8, 1.2)  # noqa: S311
            await asyncio.sleep(pause_s)

    def _states(self) -> dict[str, Stored]:
        return {one.name: one.stored for one in self.plans.values() if one.stored is not None}

    async def look(self) -> None:
        """Write evidence that is due, and propose what there is to decide.

        Raises:
            StoreError: the store refuses, or gives no answer.
        """
        store = self._store
        if store is None or not store.is_synced or store.fault:
            return
        self.observe()
        # Those that are there then know from ``excess`` that there are others.
        with suppress(StoreFullError):
            await self._publish_if_due()
        live = self._live(store.evidence)
        for one in list(self.plans.values()):
            # Much evidence takes milliseconds of each plan, and reviews are answered meanwhile.
            await asyncio.sleep(0)
            if self.plans.get(one.name) is not one:
                continue
            if one.stored is not None and one.written_over == one.stored.version:
                continue
            if one.is_damaged and one.stored is not None:
                continue
            decides = self._after_removal if one.is_removed else self._proposal
            if (found := decides(store, one, live)) is not None:
                await self._write(store, one, found)
        await self._forget(store)
        await self._forget_states(store, live)

    def _after_removal(
        self, store: PlanStore, one: LivePlan, live: Mapping[str, ProcessEvidence]
    ) -> PlanState | None:
        """Return the state to write of a plan that was removed here, or None."""
        state = one.state
        assert state is not None
        if one.stored is None:
            return state
        others = {found.of(one.name).generation for found in live.values()}
        # A process that still has the plan decides on it, and its decisions hold here too.
        has_plan = others - {_HOLDS, _NO_PLAN, ""}
        return None if state.is_of_removed_plan or has_plan or store.excess else hold(state, self._wall())

    def _proposal(
        self, store: PlanStore, one: LivePlan, live: Mapping[str, ProcessEvidence]
    ) -> PlanState | None:
        """Return the state to write of a plan that the configuration has, or None."""
        state, now_s = one.state, self._wall()
        strangers = [name for name, found in live.items() if found.of(one.name).generation != one.plan.digest]
        if state is None or state.generation != one.plan.digest or state.is_of_removed_plan:
            if strangers or store.excess:
                another = f"processes have another plan, such as {min(strangers)}" if strangers else ""
                one.fault = another or f"it is not known whether all processes have this plan: {store.excess}"
                return None
            one.fault = ""
        if state is None:
            return started(one.plan, now_s)
        evidence = merged(
            state.evidence_window, one.name, store.evidence.values(), is_partial=store.excess != ""
        )
        one.results = judge(one.plan, state, evidence, live)
        one.evidence, one.processes = evidence, len(live)
        since_s = self._now() - one.seen_at
        found = decide(one.plan, state, evidence, now_s, since_s=since_s, expected=live)
        return state if one.stored is None else found

    async def _write(self, store: PlanStore, one: LivePlan, found: PlanState) -> None:
        """Write *found* in place of the state that was read, unless another process was faster."""
        gates = [f"{result.value}: {result}" for result in one.results]
        waiting = one.waiting_in(found, self._wall())
        document = state_document(one.webhook.plan_id, one.stages, found, gates, waiting.texts)
        written_over = None if one.stored is None else one.stored.version
        if await store.replace(one.name, one.stored, document):
            if one.stored is not None and one.stored.version == written_over:
                one.written_over = written_over
        else:
            log.debug("another process was faster to decide on %s", one.webhook.name)
        self.observe()

    def _live(self, evidence: Mapping[str, ProcessEvidence]) -> dict[str, ProcessEvidence]:
        """Return the evidence of the processes that are there now."""
        now, before = self._now(), self._beats
        self._beats = {
            name: before[name] if name in before and before[name][0] == one.version else (one.version, now)
            for name, one in evidence.items()
        }
        return {
            name: one
            for name, one in evidence.items()
            if not one.has_ended and now - self._beats[name][1] < self._pace.live_s
        }

    async def _publish_if_due(self) -> None:
        found, now = self._found(), self._now()
        last, at = self._published
        marks = {name: (generation, window) for name, (generation, window, _) in found.items()}
        known = (
            {name: (generation, window) for name, (generation, window, _) in last.items()}
            if isinstance(last, dict)
            else None
        )
        wait_s = self._pace.beat_s if last == found else 0.0 if marks != known else self._pace.publish_s
        if (found or last is not None) and now - at >= wait_s:
            await self._publish()

    async def _publish(self, *, is_ended: bool = False) -> None:
        store, found = self._store, self._found()
        assert store is not None
        self._beat += 1
        await store.put_evidence(
            self.process, evidence_document(self.process, self._beat, found, is_ended=is_ended)
        )
        self._published = found, self._now()

    def _found(self) -> dict[str, tuple[str, str, Part]]:
        windows = self._collector.windows
        states = {} if self._store is None else self._store.states
        without = {name: (_NO_PLAN, "", Part()) for name in states.keys() & self._without.keys()}
        return without | {
            one.name: (
                _HOLDS if one.is_removed else one.plan.digest,
                windows.get(one.webhook.plan_id, ""),
                self._collector.part(one.webhook.plan_id) if one.webhook.plan_id in windows else Part(),
            )
            for one in self.plans.values()
        }

    async def _forget(self, store: PlanStore) -> None:
        """Remove evidence of processes that are gone, which concerns no present window."""
        now = self._now()
        windows = set[tuple[str, str]]()
        for name, stored in store.states.items():
            with suppress(StoreError):
                windows.add((name, read_state(stored).evidence_window))
        for one in list(store.evidence.values()):
            seen = self._beats.get(one.name)
            if seen is None or one.name == self.process or now - seen[1] < self._pace.forget_s:
                continue
            if not any(one.of(name).window == window for name, window in windows):
                await store.remove(EVIDENCE, one)

    async def _forget_states(self, store: PlanStore, live: Mapping[str, ProcessEvidence]) -> None:
        """Remove states that no process has needed for long: of no plan, and of none that holds."""
        now, before = self._now(), self._unneeded
        needed = self.plans.keys() | {
            name
            for found in live.values()
            for name, said in found.plans.items()
            if said.generation != _NO_PLAN
        }
        states = {} if store.excess else store.states
        unneeded = [one for name, one in states.items() if name not in needed]
        self._unneeded = {
            one.name: before[one.name]
            if before.get(one.name, ("", 0.0))[0] == one.version
            else (one.version, now)
            for one in unneeded
        }
        for one in unneeded:
            if now - self._unneeded[one.name][1] >= self._pace.forget_state_s:
                log.info("the state %s of a rollout plan is removed: no process needs it", one.name)
                await store.remove(STATE, one)


def _read_last(folder: PrivateFolder) -> dict[str, Stored]:
    """Return the states that were in force last; none if they cannot be read."""
    found = None if folder.why_unusable() else read_small_json(folder.path / _FILE, MAX_BYTES)
    if not isinstance(found, dict):
        return {}
    return {name: Stored(name, one, "") for name, one in found.items() if isinstance(one, dict)}


def _write_last(folder: PrivateFolder, states: Mapping[str, Stored]) -> None:
    folder.require()
    folder.write(_FILE, orjson.dumps({name: one.document for name, one in states.items()}))

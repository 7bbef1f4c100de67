"""The rollout plans of one process: puts observed steps in force, writes evidence, and proposes decisions.

1. What is in force is the step of the state as it was last observed. It depends on no clock, and stays
   without contact. Before the first contact it is that of the last file, and without one the first stage.
2. Every process may propose. ``decide`` says what, and a compare and swap which of the proposals counts.
3. A state of another plan is replaced only when all processes that are there have the new plan.
4. Evidence stays as long as its window is that of a state, also that of a process that is gone.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from gateway.base.errors import GatewayError
from gateway.base.private_folder import PrivateFolder, read_small_json
from gateway.observe.telemetry.rollouts import PlanNumbers
from gateway.pure.rollout_plan.decide import VALUES, decide, judge
from gateway.pure.rollout_plan.decide import adopted as adopted_by
from gateway.pure.rollout_plan.evidence import Part
from gateway.pure.rollout_plan.model import at_step, plan_of
from gateway.pure.rollout_plan.state import started
from gateway.pure.rollout_plan.waiting import Waiting, held, waits_for
from gateway.server.rollout.documents import (
    evidence_document,
    has_ended,
    merged,
    of_plan,
    read_state,
    state_document,
)
from gateway.server.rollout.store import MAX_BYTES, Stored, StoreError, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from gateway.engine.stages import Stages
    from gateway.pure.core.webhook import Rollout, Webhook, WebhookId
    from gateway.pure.rollout_plan.decide import GateResult
    from gateway.pure.rollout_plan.evidence import Evidence
    from gateway.pure.rollout_plan.model import Plan
    from gateway.pure.rollout_plan.state import Decision, PlanState
    from gateway.server.rollout.collector import Collector
    from gateway.server.rollout.store import PlanStore

    Decided = Callable[["LivePlan", Decision], None]

log = logging.getLogger(__name__)

UNKNOWN: Final = "Unknown"
"""The phase of a plan whose state has not been read."""
NO_STORE: Final = "rolloutPlans of the GatewayConfiguration is absent: plans stay in their first stage"
_FILE: Final = "last.json"
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


@dataclass(slots=True)
class LivePlan:
    """One plan, as far as this process knows."""

    name: str
    webhook: Webhook
    plan: Plan
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

    def waiting(self, now_s: float, *, since_s: float) -> Waiting:
        """Return what it waits for; *now_s* and *since_s* are those of ``decide``."""
        state = self.state
        if state is not None and (found := held(state)) is not None:
            return found
        if self.fault:
            return Waiting("store" if self.is_damaged else "processes", (self.fault,))
        if state is None:
            return Waiting("store", ("its state has not been read",))
        return waits_for(self.plan, state, self.results, now_s, since_s=since_s)

    @property
    def stages(self) -> list[str]:
        """The stages in words."""
        return [str(stage) for stage in self.plan.stages]


class PlanView(NamedTuple):
    """A plan at one moment, for pages."""

    plan: LivePlan
    """A copy."""
    waiting: Waiting

    @property
    def phase(self) -> str:
        """The phase, also without a state."""
        return UNKNOWN if self.plan.state is None else self.plan.state.phase


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
        """By the name of the state."""
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
        self._warned_of = ""

    @property
    def fault(self) -> str:
        """Why plans cannot be promoted now. Empty if they can."""
        if not self.plans:
            return ""
        if self._store is None:
            return NO_STORE
        return f"rollout plans keep their stages: {self._store.fault}" if self._store.fault else ""

    @property
    def faults(self) -> list[str]:
        """Lines about what is wrong."""
        found = [
            f"rollout plan of {one.webhook.name}: {one.fault}" for one in self.plans.values() if one.fault
        ]
        return [self.fault, *found] if self.fault else found

    def views(self) -> dict[WebhookId, PlanView]:
        """Return what pages show of each plan, as it is now."""
        return {one.webhook.id: PlanView(replace(one), self._waiting(one)) for one in self.plans.values()}

    def _waiting(self, one: LivePlan) -> Waiting:
        found = one.waiting(self._wall(), since_s=self._now() - one.seen_at)
        if self.fault and found.reason not in ("nothing", "person", "gateway"):
            return Waiting("store", (self.fault,))
        return found

    def numbers(self) -> list[PlanNumbers]:
        """Return what metrics show of each plan."""
        return [
            PlanNumbers(
                one.webhook.id,
                one.step + 1,
                UNKNOWN if one.state is None else one.state.phase,
                {value: sum(result.value == value for result in one.results) for value in VALUES},
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
        for webhook in webhooks:
            name, plan = name_of(webhook), plan_of(webhook)
            known = before.get(name)
            if plan is not None:
                after[name] = LivePlan(name, webhook, plan) if known is None else known
                after[name].webhook, after[name].plan = webhook, plan
            elif known is not None:
                log.warning(
                    "the rollout plan of %s is gone: it was in stage %d of %d (%s), and its mode is %s now",
                    webhook.name,
                    known.step + 1,
                    len(known.plan.stages),
                    known.stages[known.step],
                    "Enforce" if webhook.rollout is None else webhook.rollout.mode,
                )
        self.plans = after
        self.observe()

    async def wait_until_synced(self, timeout_s: float) -> None:
        """Wait until the states have been read, for up to *timeout_s* seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.plans and self._store is not None and not self._store.is_synced:  # noqa: ASYNC110
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

    # -- what is in force -----------------------------------------------------------------------------

    def changed(self) -> None:
        """Note a change of the store."""
        self.observe()

    def observe(self) -> None:
        """Put the steps of the observed states in force."""
        store, now = self._store, self._now()
        states = self._remembered if store is None or not store.is_synced else store.states
        rollouts: dict[WebhookId, Rollout] = {}
        windows: dict[WebhookId, str] = {}
        for one in self.plans.values():
            self._see(one, states.get(one.name), now)
            state = one.state
            one.step = 0 if state is None else self._step(one, state)
            rollout = at_step(one.webhook, one.step).rollout
            assert rollout is not None
            rollouts[one.webhook.id] = rollout
            if state is not None and state.generation == one.plan.digest and state.phase != "Complete":
                windows[one.webhook.id] = state.evidence_window
        self._stages.put(rollouts)
        self._collector.use(windows)

    def _step(self, one: LivePlan, state: PlanState) -> int:
        if state.generation == one.plan.digest:
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
        await self._publish_if_due()
        live = self._live(store.evidence)
        for one in list(self.plans.values()):
            if one.stored is not None and one.written_over == one.stored.version:
                continue
            await self._propose(store, one, live)
        await self._forget(store)

    async def _propose(self, store: PlanStore, one: LivePlan, live: Mapping[str, Stored]) -> None:
        state, now_s = one.state, self._wall()
        if one.is_damaged and one.stored is not None:
            return
        strangers = [
            name for name, doc in live.items() if of_plan(doc, one.name).get("generation") != one.plan.digest
        ]
        if state is None or state.generation != one.plan.digest:
            if strangers:
                one.fault = f"processes have another plan, such as {min(strangers)}"
                return
            one.fault = ""
        if state is None:
            found: PlanState | None = started(one.plan, now_s)
        else:
            evidence = merged(state.evidence_window, one.name, store.evidence.values())
            one.results = judge(one.plan, state, evidence, live)
            one.evidence, one.processes = evidence, len(live)
            since_s = self._now() - one.seen_at
            found = decide(one.plan, state, evidence, now_s, since_s=since_s, expected=live)
            if one.stored is None:
                found = state
        if found is not None:
            gates = [f"{result.value}: {result}" for result in one.results]
            waiting = waits_for(one.plan, found, one.results, now_s)
            document = state_document(one.webhook.id, one.stages, found, gates, waiting.texts)
            written_over = None if one.stored is None else one.stored.version
            if await store.replace(one.name, one.stored, document):
                if one.stored is not None and one.stored.version == written_over:
                    one.written_over = written_over
            else:
                log.debug("another process was faster to decide on %s", one.webhook.name)
            self.observe()

    def _live(self, evidence: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return the evidence of the processes that are there now."""
        now, before = self._now(), self._beats
        self._beats = {
            name: before[name] if name in before and before[name][0] == one.version else (one.version, now)
            for name, one in evidence.items()
        }
        return {
            name: one
            for name, one in evidence.items()
            if not has_ended(one) and now - self._beats[name][1] < self._pace.live_s
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
        return {
            one.name: (
                one.plan.digest,
                windows.get(one.webhook.id, ""),
                self._collector.part(one.webhook.id) if one.webhook.id in windows else Part(),
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
            if not any(of_plan(one, name).get("window") == window for name, window in windows):
                await store.remove_evidence(one)


def _read_last(folder: PrivateFolder) -> dict[str, Stored]:
    """Return the states that were in force last; none if they cannot be read."""
    found = None if folder.why_unusable() else read_small_json(folder.path / _FILE, MAX_BYTES)
    if not isinstance(found, dict):
        return {}
    return {name: Stored(name, one, "") for name, one in found.items() if isinstance(one, dict)}


def _write_last(folder: PrivateFolder, states: Mapping[str, Stored]) -> None:
    folder.require()
    folder.write(_FILE, orjson.dumps({name: one.document for name, one in states.items()}))

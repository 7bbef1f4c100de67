"""Rollout plans of several processes with one store: what is in force, and who decides."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest

from gateway.engine.stages import Stages
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.webhook import Rollout
from gateway.pure.rollout_plan.decide import pause, roll_back, skip
from gateway.pure.rollout_plan.model import Gates, Plan, Rollback, Stage
from gateway.pure.rollout_plan.state import started
from gateway.server.rollout import folder_store
from gateway.server.rollout.collector import Collector
from gateway.server.rollout.documents import read_state, state_document
from gateway.server.rollout.folder_store import FolderStore
from gateway.server.rollout.plans import Pace, RolloutPlans
from gateway.server.rollout.store import STATE, name_of
from tests.core.build import webhook
from tests.kit import metric_of
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from gateway.pure.rollout_plan.state import Decision
    from gateway.server.rollout.live_plan import LivePlan

HOUR_S = 3600.0
GATES = Gates(max_newly_denied=0)
PLAN = Plan.of(
    (Stage("Audit", 0, HOUR_S, GATES), Stage("Warn", 50, HOUR_S, GATES), Stage("Enforce", 0, HOUR_S)),
    rollback=Rollback(2, 1),
)


def hook(plan: Plan | None = PLAN, rollout: Rollout | None = None) -> Any:
    if plan is not None:
        rollout = plan.stages[0].rollout
    return webhook("a.policies.test", phase="validate", rollout=rollout, plan=plan)


NAME = name_of(hook())
SERIES = "admission_gateway_rollout_plan_"


class Time:
    """The clocks of all processes of a test."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return 1_800_000_000 + self.seconds


class Process:
    """One process, whose task is not started: the test says when it looks."""

    def __init__(self, folder: Path, time: Time, name: str, plan: Plan | None = PLAN) -> None:
        self.stages = Stages()
        self.said: list[str] = []
        self.store = FolderStore(folder)
        self.collector = Collector(time.now)
        self.plans = RolloutPlans(
            self.stages, self.collector, name, decided=self._say, now=time.now, wall=time.wall
        )
        self.plans._store = self.store
        self.hook = hook(plan)
        self.plans.activate([self.hook])

    def _say(self, plan: LivePlan, decision: Decision) -> None:
        self.said.append(f"{decision.action} {decision.step}")

    async def look(self) -> None:
        await self.store.look()
        await self.plans.look()

    @property
    def rollout(self) -> Rollout:
        return self.stages.in_force[self.hook.id]

    def see(self, *, refuses: bool = False, owner: str = "Pod/a", is_enforced: bool = False) -> None:
        self.collector._windows[self.hook.id].tally.answered(
            "team", "user", 0.004, refuses=refuses, owner=owner, is_enforced=is_enforced
        )


def exposed(process: Process) -> str:
    metrics = Metrics()
    metrics.plans = process.plans.numbers
    return generate_latest(metrics.registry).decode()


async def all_look(*processes: Process, times: int = 2) -> None:
    for _ in range(times):
        for process in processes:
            await process.look()


async def begun(folder: Path, number: int = 2, plan: Plan = PLAN) -> tuple[Time, list[Process]]:
    """Processes that have begun the plan, and know of each other."""
    time = Time()
    processes = [Process(folder / "plans", time, f"p{index}", plan) for index in range(number)]
    await all_look(*processes, times=3)
    return time, processes


async def pass_hours(time: Time, *processes: Process, hours: float = 1.0) -> None:
    """Let time pass in steps in which the processes look, and no process is held to be gone."""
    end = time.seconds + hours * HOUR_S + 120
    while time.seconds < end:
        time.seconds += 60
        await all_look(*processes, times=1)


async def test_good_evidence_of_all_processes_promotes_once(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    assert one.rollout == other.rollout == Rollout("Audit")
    one.see()
    other.see()
    await pass_hours(time, one, other)
    assert one.rollout == other.rollout == PLAN.stages[1].rollout
    assert [said for said in one.said if "promote" in said] == ["promote 1"]
    assert one.said[-1] == other.said[-1] == "promote 1"


async def test_without_requests_nothing_is_promoted(tmp_path: Path) -> None:
    time, processes = await begun(tmp_path)
    await pass_hours(time, *processes, hours=5)
    assert {process.rollout.mode for process in processes} == {"Audit"}
    assert {gate.value for gate in processes[0].plans.plans[NAME].results} == {"unknown"}


async def test_evidence_that_is_too_large_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_store, "MAX_BYTES", 200)
    one = Process(tmp_path / "plans", Time(), "p0")
    one.plans._pace = Pace(look_s=0.001)
    await one.store.look()
    running = asyncio.create_task(one.plans._run())
    await until(lambda: one.plans.faults)
    running.cancel()
    (fault,) = one.plans.faults
    assert fault.startswith("rollout plans keep their stages for now: ")
    assert fault.endswith("expected at most 200")


async def test_names_of_owners_cannot_control_a_terminal(tmp_path: Path) -> None:
    _, (one, _) = await begun(tmp_path)
    one.see(refuses=True, owner="Pod/\x1b[2J\u202e\n")
    one.plans._published = None, float("-inf")
    await all_look(one)
    document = one.store.states[NAME].document
    for text in (document["reason"], document["next"], "".join(document["gates"])):
        assert "Pod/" in text
        assert text.isprintable()


async def test_a_request_that_would_be_refused_pauses_the_plan(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.see()
    other.see(refuses=True)
    await pass_hours(time, one, other)
    state = one.plans.plans[NAME].state
    assert state is not None
    assert (state.step, state.phase) == (0, "Paused")
    assert "Pod/a" in state.decisions[-1].why


async def test_evidence_of_a_process_that_is_gone_still_counts(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    other.see(refuses=True)
    time.seconds += 60
    # It wrote its evidence, and crashed before anybody looked.
    await other.store.look()
    await other.plans._publish()
    one.see()
    await pass_hours(time, one)
    state = one.plans.plans[NAME].state
    assert state is not None
    assert state.phase == "Paused"


async def test_a_process_that_was_away_catches_up(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.see()
    other.see()
    await pass_hours(time, one, other)
    late = Process(tmp_path / "plans", time, "late")
    assert late.rollout == Rollout("Audit")
    await late.store.look()
    late.plans.observe()
    assert late.rollout == PLAN.stages[1].rollout
    assert late.said == []


async def test_a_process_that_lost_its_store_keeps_the_stage(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.see()
    other.see()
    await pass_hours(time, one, other)
    (tmp_path / "plans").chmod(0o777)
    await pass_hours(time, one, other, hours=3)
    assert one.rollout == PLAN.stages[1].rollout
    assert "can be written by other users" in one.plans.fault


async def test_a_state_that_is_removed_is_written_again(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.see()
    other.see()
    await pass_hours(time, one, other)
    (tmp_path / "plans" / "states" / f"{NAME}.json").unlink()
    await all_look(one, other)
    assert one.rollout == other.rollout == PLAN.stages[1].rollout
    assert read_state(one.store.states[NAME]).step == 1


async def test_a_damaged_state_changes_nothing_and_is_named(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.see()
    other.see()
    await pass_hours(time, one, other)
    await one.store.look()
    assert await one.store.replace(NAME, one.store.states[NAME], {"state": {"step": 0}})
    one.see(refuses=True)
    await pass_hours(time, one, hours=0.1)
    assert one.rollout == PLAN.stages[1].rollout
    assert "is not one of a plan" in one.plans.faults[0]
    assert one.plans.numbers()[0].waits_for == "store"
    # Who deletes it has it written again as it was.
    await one.store.remove(STATE, one.store.states[NAME])
    await all_look(one, times=3)
    assert read_state(one.store.states[NAME]).step == 1
    assert one.plans.faults == []


async def test_a_person_pauses_skips_and_rolls_back(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    for act, step, phase in ((skip, 1, "Progressing"), (pause, 1, "Paused"), (roll_back, 0, "RolledBack")):
        await one.store.look()
        stored = one.store.states[NAME]
        found = act(PLAN, read_state(stored), who="jane", why="because", now_s=time.wall())
        assert await one.store.replace(NAME, stored, state_document(one.hook.id, ["a", "b", "c"], found))
        await all_look(one, other)
        assert one.rollout == other.rollout == PLAN.stages[step].rollout
        state = other.plans.plans[NAME].state
        assert state is not None
        assert (state.phase, state.decisions[-1].who) == (phase, "jane")
    assert other.said[-3:] == ["skip 1", "pause 1", "rollback 0"]


async def test_refusals_of_several_owners_go_one_step_back(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.see()
    other.see()
    await pass_hours(time, one, other)
    for owner in ("Pod/a", "Pod/a", "Pod/a"):
        one.see(refuses=True, owner=owner, is_enforced=True)
    await pass_hours(time, one, other, hours=0.1)
    # However often one owner tries.
    assert one.rollout == PLAN.stages[1].rollout
    one.see(refuses=True, owner="Pod/b", is_enforced=True)
    await pass_hours(time, one, other, hours=0.1)
    assert one.rollout == other.rollout == Rollout("Audit")
    assert other.said[-1] == "rollback 0"


async def test_another_plan_waits_for_all_processes(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.see()
    other.see()
    await pass_hours(time, one, other)
    longer = Plan.of((*PLAN.stages[:2], Stage("Warn", 80, HOUR_S, GATES), PLAN.stages[2]))
    one.plans.activate([hook(longer)])
    await all_look(one, other, times=3)
    assert read_state(other.store.states[NAME]).generation == PLAN.digest
    assert one.rollout == other.rollout == PLAN.stages[1].rollout
    other.plans.activate([hook(longer)])
    await all_look(one, other, times=3)
    assert read_state(other.store.states[NAME]).generation == longer.digest
    assert one.rollout == other.rollout == PLAN.stages[1].rollout


async def test_evidence_is_kept_as_long_as_its_window(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    other.see()
    await pass_hours(time, one, other, hours=0.1)
    await pass_hours(time, one, hours=0.5)
    assert set(one.store.evidence) == {"p0", "p1"}
    one.see()
    await pass_hours(time, one, hours=1)
    assert one.rollout == PLAN.stages[1].rollout
    await all_look(one)
    assert set(one.store.evidence) == {"p0"}


async def test_the_last_states_count_at_a_start_without_the_store(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    state = skip(PLAN, started(PLAN, time.wall()), who="jane", why="sure", now_s=time.wall())
    await one.store.look()
    stored = one.store.states[NAME]
    assert await one.store.replace(NAME, stored, state_document(one.hook.id, ["a", "b", "c"], state))
    late = Process(tmp_path / "elsewhere", time, "late")
    late.plans._remembered = dict(one.store.states)
    late.plans.activate([late.hook])
    assert late.rollout == PLAN.stages[1].rollout
    del other


async def test_metrics_have_stage_phase_gates_and_what_a_plan_waits_for(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    assert one.plans.numbers()[0].waits_for == "time"
    other.see(refuses=True)
    await pass_hours(time, one, other)
    (numbers,) = one.plans.numbers()
    assert (numbers.webhook, numbers.stage, numbers.phase) == (one.hook.id, 1, "Paused")
    # Evidence begins again with the decision.
    assert (numbers.gates["fail"], numbers.gates["unknown"]) == (0, 2)
    labels = {"name": one.hook.name, "type": "validating", "configuration": one.hook.configuration}
    text = exposed(one)
    assert metric_of(text, f"{SERIES}stage", labels) == 1
    assert metric_of(text, f"{SERIES}phase", {**labels, "phase": "Paused"}) == 1
    assert metric_of(text, f"{SERIES}gates", {**labels, "value": "unknown"}) == 2
    assert metric_of(text, f"{SERIES}waiting", {**labels, "reason": "gateway"}) == 1


async def test_metrics_tell_plans_of_one_name_apart(tmp_path: Path) -> None:
    _, (one, _) = await begun(tmp_path)
    later = replace(one.hook, document="ValidatingAdmissionPolicyBinding/a")
    one.plans.activate([one.hook, later])
    text = exposed(one)
    for configuration, reason in ((one.hook.configuration, "time"), (later.document, "store")):
        labels = {"name": one.hook.name, "configuration": configuration, "reason": reason}
        assert metric_of(text, f"{SERIES}waiting", labels) == 1

"""Plans that were removed from the configuration: their stages hold until a person says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gateway.pure.core.webhook import Candidate, HttpsClient, Rollout
from gateway.pure.rollout_plan.decide import forget, pause, skip
from gateway.pure.rollout_plan.model import Group, Plan, Stage
from gateway.server.rollout.documents import read_state, state_document
from gateway.server.rollout.plans import Pace
from tests.core.build import labelled
from tests.rollout.test_plans import NAME, PLAN, Process, Time, all_look, begun, hook, pass_hours

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.pure.rollout_plan.state import PlanState

STAGES = (Stage("Audit"), Stage("Warn", 50, groups=("canary",)), Stage("Enforce"))
GROUPS = (Group("canary", labelled("tier", "canary")), Group("critical", labelled("tier", "critical")))
GROUPED = Plan.of(STAGES, GROUPS, salt="pepper")
AUDIT, HALF, ENFORCED = (stage.rollout for stage in PLAN.stages)


@pytest.fixture(autouse=True)
def states_are_forgotten_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.rollout.plans.Pace", lambda: Pace(forget_state_s=600))


async def act(process: Process, action: Callable[..., PlanState], plan: Plan = PLAN) -> None:
    """Change the state as a person does."""
    await process.store.look()
    stored = process.store.states[NAME]
    found = action(plan, read_state(stored), who="jane", why="because", now_s=1e9)
    assert await process.store.replace(NAME, stored, state_document(process.hook.id, ["a", "b", "c"], found))
    await process.look()


async def removed(tmp_path: Path) -> tuple[Time, Process, Process]:
    """Two processes whose plan was removed in its second stage."""
    time, (one, other) = await begun(tmp_path)
    await act(one, skip)
    for process in (one, other):
        process.plans.activate([hook(None)])
    await all_look(one, other)
    return time, one, other


async def test_the_stage_of_a_plan_that_was_removed_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    time, one, other = await removed(tmp_path)
    assert one.rollout == other.rollout == HALF
    assert "is gone: its stage 2 of 3 (Warn, enforced in 50 % of the namespaces) holds" in caplog.text
    await pass_hours(time, one, other, hours=0.1)
    state = read_state(one.store.states[NAME])
    assert (state.phase, state.step) == ("Held", 1)
    assert one.said[-1] == other.said[-1] == "hold 1"
    (view,) = one.plans.views().values()
    assert (view.phase, view.plan.step, view.waiting.reason) == ("Held", 1, "person")
    assert "admission-gateway rollout forget" in one.plans.faults[0]
    (numbers,) = one.plans.numbers()
    assert (numbers.stage, numbers.phase) == (2, "Held")


async def test_it_holds_in_a_process_that_never_had_the_plan(tmp_path: Path) -> None:
    time, (one, _) = await begun(tmp_path, plan=GROUPED)
    await act(one, skip, GROUPED)
    late = Process(tmp_path / "plans", time, "late", None)
    await late.look()
    assert late.rollout == GROUPED.stages[1].rollout
    assert late.said == []
    # The processes that have the plan decide on it all the same.
    await act(one, skip, GROUPED)
    await late.look()
    assert not late.stages.in_force
    assert not late.plans.faults


async def test_it_holds_without_contact(tmp_path: Path) -> None:
    time, one, _ = await removed(tmp_path)
    late = Process(tmp_path / "elsewhere", time, "late", None)
    late.plans._remembered = dict(one.store.states)
    late.plans.activate([late.hook])
    assert late.rollout == HALF
    (tmp_path / "plans").chmod(0o777)
    await pass_hours(time, one)
    assert one.rollout == HALF
    one.plans.activate([hook(None)])
    assert one.rollout == HALF


async def test_it_is_written_again_if_the_state_is_removed(tmp_path: Path) -> None:
    _, one, other = await removed(tmp_path)
    (tmp_path / "plans" / "states" / f"{NAME}.json").unlink()
    await all_look(one, other)
    assert one.rollout == HALF
    assert read_state(one.store.states[NAME]).phase == "Held"


@pytest.mark.parametrize("mode", [Rollout("Enforce"), Rollout("Warn")])
async def test_a_mode_that_is_written_holds_instead(tmp_path: Path, mode: Rollout) -> None:
    _, one, other = await removed(tmp_path)
    one.plans.activate([hook(None, mode)])
    assert not one.stages.in_force
    assert not one.plans.plans
    assert other.rollout == HALF


async def test_a_candidate_stays_and_says_no_mode(tmp_path: Path) -> None:
    _, one, _ = await removed(tmp_path)
    candidate = Candidate(HttpsClient("https://a.test/"))
    one.plans.activate([hook(None, Rollout(candidate=candidate, is_mode_given=False))])
    assert one.rollout == replace(HALF, candidate=candidate)


async def test_a_webhook_with_side_effects_does_not_become_a_shadow(tmp_path: Path) -> None:
    shadow = Plan.of((Stage("Shadow"), Stage("Enforce")))
    _, (one, _) = await begun(tmp_path, plan=shadow)
    one.plans.activate([replace(hook(None), side_effects="NoneOnDryRun")])
    assert one.rollout == Rollout("Audit")
    one.plans.activate([hook(None)])
    assert one.rollout == Rollout("Shadow")


async def test_a_person_ends_it(tmp_path: Path) -> None:
    _, one, other = await removed(tmp_path)
    await act(one, forget)
    await all_look(one, other)
    assert not one.stages.in_force
    assert not other.stages.in_force
    assert one.said[-1] == other.said[-1] == "forget 1"
    # A plan that comes afterwards begins at its first stage.
    for process in (one, other):
        process.plans.activate([hook()])
    await all_look(one, other)
    assert one.rollout == other.rollout == AUDIT
    assert one.said[-1] == "restart 0"


async def test_a_plan_that_returns_continues_where_it_was(tmp_path: Path) -> None:
    _, one, other = await removed(tmp_path)
    one.plans.activate([hook()])
    await all_look(one, other)
    assert one.rollout == other.rollout == HALF
    assert read_state(one.store.states[NAME]).phase == "Held"
    assert "processes have another plan" in one.plans.faults[0]
    other.plans.activate([hook()])
    await all_look(one, other)
    state = read_state(one.store.states[NAME])
    assert (state.phase, state.step) == ("Progressing", 1)


async def test_the_pause_of_a_person_holds_over_a_removal(tmp_path: Path) -> None:
    _, (one, other) = await begun(tmp_path)
    await act(one, pause)
    for plan in (None, PLAN):
        for process in (one, other):
            process.plans.activate([hook(plan)])
        await all_look(one, other)
    state = read_state(one.store.states[NAME])
    assert (state.phase, state.decisions[-1].who) == ("Paused", "jane")
    assert state.is_paused_by_person


async def test_a_stage_that_is_enforced_everywhere_needs_no_state(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    await act(one, skip)
    await act(one, skip)
    await all_look(one, other)
    for process in (one, other):
        process.plans.activate([hook(None)])
    await all_look(one, other)
    assert not one.plans.faults
    await pass_hours(time, one, other, hours=0.1)
    assert NAME in one.store.states
    await pass_hours(time, one, other, hours=0.2)
    assert NAME not in one.store.states


async def test_a_state_stays_as_long_as_a_process_needs_it(tmp_path: Path) -> None:
    time, (one, other) = await begun(tmp_path)
    one.plans.activate([hook(None, Rollout("Enforce"))])
    await pass_hours(time, one, other, hours=0.5)
    assert NAME in one.store.states
    other.plans.activate([])
    await pass_hours(time, one, other, hours=0.3)
    assert NAME not in one.store.states


async def test_a_damaged_state_of_a_removed_plan_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    time, one, _ = await removed(tmp_path)
    assert await one.store.replace(NAME, one.store.states[NAME], {"state": {"step": 0}})
    await one.look()
    assert one.rollout == HALF
    assert "is not one of a plan" in one.plans.faults[0]
    late = Process(tmp_path / "plans", time, "late", None)
    await late.look()
    assert not late.stages.in_force
    assert "an earlier rollout plan of a.policies.test holds nothing" in caplog.text

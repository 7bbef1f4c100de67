"""What a plan decides from its state and the evidence of one step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.rollout_plan.decide import (
    ActionRefused,
    adopted,
    approve,
    decide,
    enforced_from_s,
    forget,
    hold,
    judge,
    pause,
    resume,
    roll_back,
    skip,
)
from gateway.pure.rollout_plan.evidence import Evidence, Tally
from gateway.pure.rollout_plan.model import Gates, Plan, Rollback, Stage
from gateway.pure.rollout_plan.state import PlanState, started
from gateway.pure.rollout_plan.waiting import waits_for
from tests.rollout_plan.build import HOUR_S, START_S, evidence, good, newly_denied, plan, refused

if TYPE_CHECKING:
    from gateway.pure.rollout_plan.evidence import Part

PERSON: dict[str, Any] = {"who": "ann", "why": "a test", "now_s": START_S}


def after(
    state: PlanState, hours: float, found: Evidence, made: Plan | None = None, **more: object
) -> PlanState:
    """The state once *found* has been seen every five minutes for so many *hours*, or until a decision."""
    window, now_s = state.window, state.started_at_s + state.elapsed_s
    for _ in range(round(hours * 12)):
        now_s += 300
        state = decide(made or plan(), state, found, now_s, since_s=300, **more) or state  # type: ignore[arg-type]
        if state.window != window:
            break
    return state


def at(step: int, made: Plan | None = None) -> PlanState:
    state = started(made or plan(), START_S)
    for _ in range(step):
        state = skip(made or plan(), state, **PERSON)
    return state


def test_the_earliest_time_of_more_enforcement_is_never_after_the_promotion() -> None:
    state = started(plan(), START_S)
    expected = [2, 1, 1, 1, 1, 0]
    for step, hours in enumerate(expected):
        state = at(step)
        assert enforced_from_s(plan(), state) == (state.started_at_s + hours * HOUR_S if hours else 0)
    earliest = enforced_from_s(plan(), at(1))
    promoted = after(at(1), 3, evidence(at(1), a=good()))
    assert (promoted.step, promoted.started_at_s >= earliest) == (2, True)


def test_the_time_of_a_plan_that_does_not_go_on_by_itself_is_not_set() -> None:
    assert enforced_from_s(plan(), None) == 0
    assert enforced_from_s(plan(), pause(plan(), at(1), **PERSON)) == 0
    assert enforced_from_s(plan(salt="another"), at(1)) == 0


def test_a_plan_is_promoted_after_its_time_if_all_gates_pass() -> None:
    state = started(plan(), START_S)
    found = evidence(state, a=good())
    assert after(state, 0.9, found).step == 0
    promoted = after(state, 1, found)
    assert (promoted.step, promoted.phase, promoted.decisions[-1].action) == (1, "Progressing", "promote")
    assert promoted.decisions[-1].why == "all gates passed for 1h"
    assert promoted.decisions[-1].time_s == START_S + HOUR_S


def test_the_last_stage_ends_in_complete() -> None:
    state = at(5)
    done = after(state, 1, evidence(state, a=good()))
    assert (done.step, done.phase) == (5, "Complete")
    assert decide(plan(), done, evidence(done, a=newly_denied()), START_S + 9e6, since_s=600) is None


@pytest.mark.parametrize(
    ("gates", "part", "why"),
    [
        (
            Gates(max_newly_denied=1),
            newly_denied(number=2),
            "maxNewlyDenied: 2, such as team-1 ReplicaSet/web, expected at most 1",
        ),
        (
            Gates(max_newly_denied_owners=0),
            newly_denied(),
            "maxNewlyDeniedOwners: 1, such as team-1 ReplicaSet/web, expected at most 0",
        ),
        (Gates(max_denied=5), refused(3, 2, 3), "maxDenied: 9, such as team-0 ReplicaSet/web-0"),
        (Gates(max_denied_owners=2), refused(5, 5), "maxDeniedOwners: 5, such as team-0 ReplicaSet/web-0"),
    ],
)
def test_a_gate_that_fails_pauses_the_plan_at_once_and_says_why(gates: Gates, part: Part, why: str) -> None:
    made = plan(gates)
    state = at(3, made)
    paused = decide(made, state, evidence(state, a=good(), b=part), START_S + 1, since_s=1)
    assert paused is not None
    assert (paused.step, paused.phase, paused.decisions[-1].who) == (3, "Paused", "")
    assert paused.decisions[-1].why.startswith(why)
    assert decide(made, paused, evidence(paused, a=good()), START_S + 9e6, since_s=600) is None


def test_failures_differences_exceptions_and_slow_calls_are_gates() -> None:
    tally = Tally()
    for index in range(200):
        tally.answered("a", "u", 0.9 if index < 3 else 0.001, is_failure=index < 3)
        tally.compared(is_different=index < 4)
    tally.excepted()
    gates = Gates(max_failures=2, max_differences=3, max_exception_uses=0, max_p99_ms=250)
    made = plan(gates)
    state = at(0, made)
    paused = decide(made, state, evidence(state, a=tally.part()), START_S, since_s=0)
    assert paused is not None
    assert paused.decisions[-1].why == (
        "maxDifferences: 4, expected at most 3; maxFailures: 3, expected at most 2; maxExceptionUses: 1, "
        "expected at most 0; maxP99Milliseconds: more than 800 ms, expected at most 250 ms"
    )


@pytest.mark.parametrize(
    ("gates", "part", "unknown"),
    [
        (Gates(), Tally().part(), "minReviews: 0 reviews, expected at least 1"),
        (Gates(min_namespaces=4), good(), "minNamespaces: 3 namespaces, expected at least 4"),
        (Gates(min_users=6), good(), "minUsers: 5 users, expected at least 6"),
        (Gates(max_differences=0), good(), "maxDifferences: 0, expected at most 0"),
        (Gates(max_p99_ms=10), good(99), "maxP99Milliseconds: too few calls, expected at most 10 ms"),
    ],
)
def test_a_gate_without_data_waits_and_then_pauses(gates: Gates, part: Part, unknown: str) -> None:
    made = plan(gates, max_wait_s=HOUR_S)
    state = started(made, START_S)
    assert after(state, 1.9, evidence(state, a=part), made).phase == "Progressing"
    paused = after(state, 2, evidence(state, a=part), made)
    assert (paused.step, paused.phase) == (0, "Paused")
    assert paused.decisions[-1].why == f"no data for 2h: {unknown}"


def test_evidence_of_another_window_is_none() -> None:
    state = at(1)
    old = Evidence(started(plan(), START_S).evidence_window, {"a": good()})
    assert after(state, 3, old).phase == "Progressing"


def test_a_source_that_is_gone_or_has_not_said_anything_stops_a_promotion() -> None:
    state = started(plan(), START_S)
    seen = after(state, 0.5, evidence(state, a=good(), b=good()))
    assert set(seen.sources) == {"a", "b"}
    assert after(seen, 5, evidence(state, a=good())).step == 0
    assert after(seen, 5, evidence(state, a=good(), b=good(3))).step == 0
    assert after(state, 5, evidence(state, a=good()), expected=("a", "c")).step == 0
    assert after(state, 5, evidence(state, a=good()), expected=("a",)).step == 1


def test_a_part_that_is_gone_does_not_hide_a_failure() -> None:
    state = started(plan(), START_S)
    seen = after(state, 0.5, evidence(state, a=good(), b=good()))
    paused = decide(plan(), seen, evidence(state, a=newly_denied()), START_S, since_s=0)
    assert paused is not None
    assert paused.phase == "Paused"


def test_time_counts_only_if_both_clocks_say_so() -> None:
    state = started(plan(), START_S)
    found = evidence(state, a=good())
    for now_s, since_s in ((START_S + 1e9, 60.0), (START_S - 1e9, 600.0), (START_S + 1e9, -5.0)):
        seen = decide(plan(), state, found, now_s, since_s=since_s)
        assert seen is None or seen.step == 0
    watched = replace(state, elapsed_s=HOUR_S)
    assert decide(plan(), watched, found, START_S + HOUR_S - 1, since_s=10) is not None
    assert decide(plan(), watched, found, START_S + HOUR_S - 1, since_s=10).step == 0  # type: ignore[union-attr]
    assert decide(plan(), watched, found, START_S + HOUR_S, since_s=10).step == 1  # type: ignore[union-attr]


def test_a_long_look_counts_ten_minutes() -> None:
    state = started(plan(), START_S)
    seen = decide(plan(), state, evidence(state, a=good()), START_S + 9e6, since_s=9e6)
    assert seen is not None
    assert (seen.step, seen.elapsed_s) == (0, 600)


SHARES = Gates(max_newly_denied_percent=5, max_denied_percent=12.5, min_reviews=20)


def answered(number: int, refused: int, *, is_enforced: bool = False) -> Part:
    """*number* reviews, of which *refused* are, or would be."""
    tally = Tally()
    for index in range(number):
        tally.answered("a", "u", refuses=index < refused, is_enforced=is_enforced, owner="Pod/a")
    return tally.part()


@pytest.mark.parametrize(
    ("elsewhere", "enforced", "found"),
    [
        ((100, 5), (40, 5), {"maxNewlyDeniedPercent": "pass", "maxDeniedPercent": "pass"}),
        ((100, 6), (40, 6), {"maxNewlyDeniedPercent": "fail", "maxDeniedPercent": "fail"}),
        ((19, 19), (19, 19), {"maxNewlyDeniedPercent": "unknown", "maxDeniedPercent": "unknown"}),
        ((20, 0), (0, 0), {"maxNewlyDeniedPercent": "pass", "maxDeniedPercent": "unknown"}),
    ],
)
def test_a_percentage_is_that_of_the_reviews_that_could_be_denied_so(
    elsewhere: tuple[int, int], enforced: tuple[int, int], found: dict[str, str]
) -> None:
    made = plan(SHARES)
    state = at(3, made)
    seen = evidence(state, a=answered(*elsewhere), b=answered(*enforced, is_enforced=True))
    assert {one.name: one.value for one in judge(made, state, seen) if one.name in found} == found
    # With a part missing, a share is not known.
    values = {one.value for one in judge(made, state, seen, ["c"]) if one.name in found}
    assert values == {"unknown"}


APPROVED = Plan.of(replace(stage, needs_approval=index == 0) for index, stage in enumerate(plan().stages))


def test_a_stage_that_requires_approval_waits_for_a_person_without_an_end() -> None:
    state = started(APPROVED, START_S)
    found = evidence(state, a=good())
    waiting = after(state, 300, found, APPROVED)
    assert (waiting.step, waiting.phase) == (0, "Progressing")
    assert waits_for(APPROVED, waiting, judge(APPROVED, waiting, found), START_S + 1e7) == (
        "person",
        ("approval: a person has to approve",),
    )
    approved = approve(APPROVED, waiting, **PERSON)
    assert (approved.window, approved.elapsed_s) == (waiting.window, waiting.elapsed_s)
    promoted = after(approved, 1, found, APPROVED)
    assert (promoted.step, promoted.approved_by) == (1, "")
    assert promoted.decisions[-2].who == "ann"


def test_an_approval_is_no_gate_and_is_for_one_stage_of_one_plan() -> None:
    approved = approve(APPROVED, started(APPROVED, START_S), **PERSON)
    # It does not shorten the stage, and takes no gate's place.
    assert after(approved, 0.9, evidence(approved, a=good()), APPROVED).step == 0
    assert after(approved, 2, evidence(approved, a=newly_denied()), APPROVED).phase == "Paused"
    assert resume(APPROVED, pause(APPROVED, approved, **PERSON), **PERSON).approved_by == "ann"
    assert adopted(plan(), approved, START_S).approved_by == ""
    assert skip(APPROVED, approved, **PERSON).approved_by == ""


def test_each_rollback_of_its_own_doubles_the_time_of_stages_up_to_eight_times() -> None:
    state = at(3, AUTO)
    for hours in (2, 4, 8, 8):
        back = decide(AUTO, state, evidence(state, a=refused(9, 9)), START_S, since_s=0)
        assert back is not None
        resumed = resume(AUTO, back, **PERSON)
        found = evidence(resumed, a=good())
        assert after(resumed, hours - 0.1, found, AUTO).step == 2
        state = after(resumed, hours, found, AUTO)
        assert state.step == 3
    assert roll_back(AUTO, at(3, AUTO), **PERSON).rollbacks == 0
    assert skip(AUTO, replace(state, step=AUTO.last), **PERSON).rollbacks == 0


AUTO = plan(Gates(), rollback=Rollback(5, 3))


def test_a_plan_goes_back_by_itself_only_for_enough_owners_in_enough_namespaces() -> None:
    state = at(3, AUTO)
    for part in (refused(4, 3, 1000), refused(5, 2, 1000), newly_denied(number=1000)):
        seen = decide(AUTO, state, evidence(state, a=good(), b=part), START_S, since_s=0)
        assert seen is not None
        assert (seen.step, seen.phase) == (3, "Progressing")
    back = decide(AUTO, state, evidence(state, a=refused(5, 3)), START_S, since_s=0)
    assert back is not None
    assert (back.step, back.phase) == (2, "RolledBack")
    assert back.decisions[-1].why == (
        "requests of 5 owners in 3 namespaces were refused, such as team-0 ReplicaSet/web-0, "
        "team-0 ReplicaSet/web-3, team-1 ReplicaSet/web-1 and 2 more"
    )
    assert AUTO.stages[back.step].rollout == AUTO.stages[2].rollout


@pytest.mark.parametrize("made", [plan(Gates()), plan(Gates(), rollback=Rollback(1, 1), is_critical=True)])
def test_a_critical_plan_or_one_that_does_not_ask_for_it_never_goes_back_by_itself(made: Plan) -> None:
    state = at(3, made)
    seen = decide(made, state, evidence(state, a=refused(100, 100)), START_S, since_s=0)
    assert seen is not None
    assert (seen.step, seen.phase) == (3, "Progressing")


def test_after_a_rollback_only_a_person_continues_even_if_another_plan_was_there() -> None:
    state = at(3, AUTO)
    back = decide(AUTO, state, evidence(state, a=refused(9, 9)), START_S, since_s=0)
    assert back is not None
    assert after(back, 5, evidence(back, a=good()), AUTO) == back
    other = adopted(plan(), back, START_S)
    assert (other.step, other.phase) == (0, "Progressing")
    again = adopted(AUTO, other, START_S)
    assert (again.step, again.phase) == (0, "RolledBack")
    resumed = resume(AUTO, again, **PERSON)
    assert after(resumed, 2, evidence(resumed, a=good()), AUTO).step == 1
    assert adopted(AUTO, adopted(plan(), resumed, START_S), START_S).phase == "Progressing"


def test_a_pause_of_a_person_keeps_what_has_been_seen_and_that_of_a_gate_does_not() -> None:
    state = started(plan(), START_S)
    seen = after(state, 0.5, evidence(state, a=good()))
    resumed = resume(plan(), pause(plan(), seen, **PERSON), **PERSON)
    assert (resumed.window, resumed.elapsed_s, resumed.sources) == (seen.window, 1800, seen.sources)
    paused = decide(plan(), seen, evidence(state, a=newly_denied(number=99)), START_S, since_s=1)
    assert paused is not None
    resumed = resume(plan(), paused, **PERSON)
    assert (resumed.elapsed_s, resumed.sources) == (0, {})
    assert resumed.window > seen.window


def test_persons_go_one_step_and_are_named() -> None:
    state = at(2)
    assert (skip(plan(), state, **PERSON).step, roll_back(plan(), state, **PERSON).step) == (3, 1)
    decision = roll_back(plan(), state, **PERSON).decisions[-1]
    assert (decision.who, decision.why, decision.action) == ("ann", "a test", "rollback")
    assert skip(plan(), at(5), **PERSON).phase == "Complete"


@pytest.mark.parametrize(
    ("action", "state", "message"),
    [
        (roll_back, at(0), "cannot roll back: the plan is in its first stage"),
        (resume, at(0), "cannot resume: the plan is Progressing, expected Paused or RolledBack"),
        (skip, skip(plan(), at(5), **PERSON), "cannot skip: the plan is Complete, expected Progressing or"),
        (approve, at(0), "cannot approve: stage 1 requires no approval"),
        (
            approve,
            replace(at(0), outline=APPROVED.outline, approved_by="eve"),
            "cannot approve: eve has approved already",
        ),
        (forget, at(0), "cannot forget: a process still has the plan, which is Progressing"),
        (skip, hold(at(0), START_S), "cannot skip: the plan is Held, expected"),
        (pause, replace(at(0), generation="0" * 32), "cannot pause: the state is that of another plan"),
    ],
)
def test_what_a_person_cannot_do_is_said(action: object, state: PlanState, message: str) -> None:
    with pytest.raises(ActionRefused, match=message):
        action(plan(), state, **PERSON)  # type: ignore[operator]


def test_another_plan_begins_where_it_differs() -> None:
    stages = plan().stages
    longer = Plan.of([*stages[:3], replace(stages[3], percent_of_namespaces=10), *stages[4:]], plan().groups)
    assert [adopted(longer, at(step), START_S).step for step in range(6)] == [0, 1, 2, 2, 2, 2]
    shorter = Plan.of(stages[:2], plan().groups)
    assert adopted(shorter, at(4), START_S).step == 1
    other = Plan.of([Stage("Warn", 0, 5.0), Stage("Enforce")])
    assert adopted(other, at(4), START_S).step == 0
    assert decide(other, at(4), evidence(at(4)), START_S, since_s=0) == adopted(other, at(4), START_S)


def test_another_plan_leaves_a_pause_of_a_person_and_completion_alone() -> None:
    slower = plan(max_wait_s=5.0)
    assert adopted(slower, pause(plan(), at(2), **PERSON), START_S).phase == "Paused"
    again = adopted(plan(), adopted(slower, pause(plan(), at(2), **PERSON), START_S), START_S)
    assert (again.phase, again.is_paused_by_person) == ("Paused", True)
    done = skip(plan(), at(5), **PERSON)
    assert (adopted(slower, done, START_S).phase, adopted(slower, done, START_S).step) == ("Complete", 5)

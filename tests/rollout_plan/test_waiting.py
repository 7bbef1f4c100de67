"""What a plan waits for: in every state one reason, and words unless it is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.rollout_plan import decide
from gateway.pure.rollout_plan.evidence import Evidence
from gateway.pure.rollout_plan.model import Gates, Plan, Stage
from gateway.pure.rollout_plan.state import started
from gateway.pure.rollout_plan.waiting import held, waits_for
from tests.rollout_plan.build import HOUR_S, START_S, good, newly_denied

if TYPE_CHECKING:
    from gateway.pure.rollout_plan.evidence import Part
    from gateway.pure.rollout_plan.waiting import Waiting

GATES = Gates(max_newly_denied_owners=0, min_reviews=10)
PLAN = Plan.of((Stage("Audit", 0, 24 * HOUR_S, GATES), Stage("Enforce")), max_wait_s=48 * HOUR_S)
STATE = started(PLAN, START_S)


def waiting(part: Part, hours: float) -> Waiting:
    results = decide.judge(PLAN, STATE, Evidence(STATE.evidence_window, {"p": part}))
    state = STATE.__class__.from_json({**STATE.as_json(), "elapsedSeconds": hours * HOUR_S})
    return waits_for(PLAN, state, results, START_S + hours * HOUR_S)


def test_a_stage_waits_for_its_time_and_for_its_gates() -> None:
    found = waiting(good(4), 11)
    assert found.reason == "time"
    assert found.texts == ("for 24h: 13h left", "minReviews: 4 reviews, expected at least 10")
    found = waiting(newly_denied(number=10), 11.99)
    assert found.texts[0] == "for 24h: 12h1m left"
    assert found.texts[1].startswith("maxNewlyDeniedOwners: 1, such as team-1 ReplicaSet/web")


def test_after_its_time_it_waits_for_data_or_for_a_decision() -> None:
    found = waiting(good(4), 25)
    assert (found.reason, found.texts[1]) == ("data", "it pauses in 47h if that stays so")
    found = waiting(good(10), 25)
    assert (found.reason, found.texts) == ("decision", ("a decision: all gates pass",))


def test_what_is_held_says_by_whom_and_why() -> None:
    paused = decide.pause(PLAN, STATE, who="alice", why="holidays", now_s=START_S)
    assert waits_for(PLAN, paused, [], START_S) == ("person", ("paused by alice: holidays",))
    evidence = Evidence(STATE.evidence_window, {"p": newly_denied()})
    failed = decide.decide(PLAN, STATE, evidence, START_S, since_s=0)
    assert failed is not None
    found = held(failed)
    assert found is not None
    assert found.reason == "gateway"
    assert found.texts[0].startswith("paused by the gateway: maxNewlyDeniedOwners: 1, such as")
    skipped = decide.skip(PLAN, STATE, who="alice", why="now", now_s=START_S)
    assert held(skipped) is None
    complete = decide.skip(PLAN, skipped, who="alice", why="now", now_s=START_S)
    assert held(complete) == ("nothing", ())


@given(st.integers(0, 20), st.floats(0, 100), st.floats(0, 100))
def test_a_plan_waits_for_nothing_only_when_it_is_promoted(
    reviews: int, hours: float, by_clock: float
) -> None:
    """What is said agrees with what is decided: ``decision`` is said exactly when it is made."""
    state = STATE.__class__.from_json({**STATE.as_json(), "elapsedSeconds": hours * HOUR_S})
    evidence = Evidence(state.evidence_window, {"p": good(reviews)} if reviews else {})
    now_s = START_S + by_clock * HOUR_S
    found = waits_for(PLAN, state, decide.judge(PLAN, state, evidence), now_s)
    after = decide.decide(PLAN, state, evidence, now_s, since_s=0)
    is_promoted = after is not None and after.step == 1
    assert (found.reason == "decision") == is_promoted
    assert found.texts

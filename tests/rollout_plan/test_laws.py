"""The laws of rollout plans, for seeds: replicas that die, late writes, wrong clocks, evidence that is lost.

A failure names its seed: ``World(SEED)`` is the same each time.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.matching import Selection
from gateway.pure.core.modes import modes_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.rollout_plan.decide import decide, judge
from gateway.pure.rollout_plan.evidence import Evidence, names_of, namespaces_of
from gateway.pure.rollout_plan.model import enforced_in, problems
from gateway.pure.rollout_plan.state import PlanState, started
from tests.core.build import request, webhook
from tests.rollout_plan.build import START_S, evidence, good, newly_denied, plan, refused
from tests.rollout_plan.world import World, Write, some_plan

SEEDS = 500
"""In each of four parts, which run at the same time."""
TURNS = 40


def check_decision(write: Write, before: PlanState, after: PlanState) -> None:
    """Check a decision against what the one who made it knew."""
    assert after.revision == before.revision + 1
    decision, made = after.decisions[-1], write.plan
    is_person = decision.who != ""
    match decision.action:
        case "promote" | "complete":
            assert after.step == before.step + (decision.action == "promote")
            if not is_person:
                assert before.phase == "Progressing"
                check_promotion(write, before)
        case "skip":
            assert is_person
            assert after.step == before.step + 1
        case "rollback":
            assert after.step == before.step - 1
            assert after.phase == "RolledBack"
            if not is_person:
                found = write.known.total.denied_owners
                assert made.rollback is not None
                assert not made.is_critical
                assert len(names_of(found)) >= made.rollback.min_owners
                assert len(namespaces_of(found)) >= made.rollback.min_namespaces
        case "pause" | "resume":
            assert after.step == before.step
            assert is_person or decision.action == "pause"
        case "approve":
            assert is_person
            assert (after.step, after.phase) == (before.step, "Progressing")
            assert not before.approved_by
        case "hold":
            assert (after.step, after.phase, is_person) == (before.step, "Held", False)
            assert after.stage.rollout == made.stages[before.step].rollout
        case "forget":
            assert (before.phase, after.phase, is_person) == ("Held", "Forgotten", True)
        case "restart":
            assert after.generation != before.generation or before.is_of_removed_plan
            assert after.step <= before.step
            assert after.step == 0 or before.phase != "Forgotten"
            assert after.phase == "RolledBack" or after.generation not in before.rolled_back
            assert after.phase in ("Paused", "RolledBack") or not before.paused_by
            assert after.step == 0 or (
                after.stage_digests[: after.step + 1] == before.stage_digests[: after.step + 1]
            )
        case action:
            raise AssertionError(action)
    if after.window != before.window:
        # An approval is for one stage. Nothing but a person takes a rollback back.
        assert after.approved_by == ""
    assert is_person or set(before.rolled_back[-7:]) <= set(after.rolled_back)


def check_promotion(write: Write, before: PlanState) -> None:
    """Check that all gates passed by all the evidence that had been seen, in words of its own."""
    stage, known = write.plan.stages[before.step], write.known
    gates = stage.gates
    assert before.approved_by or not stage.needs_approval
    assert known.window == before.evidence_window
    assert known.parts.keys() >= before.sources.keys() | set(write.expected)
    assert all(known.parts[one].sequence >= number for one, number in before.sources.items())
    parts = known.parts.values()
    assert sum(part.reviews for part in parts) >= gates.min_reviews
    assert len({one for part in parts for one in part.namespaces.items}) >= gates.min_namespaces
    for most, number in (
        (gates.max_newly_denied, sum(part.newly_denied for part in parts)),
        (gates.max_failures, sum(part.failures for part in parts)),
        (gates.max_denied_owners, len({one for part in parts for one in part.denied_owners.items})),
    ):
        assert most is None or number <= most
    enforced = sum(part.enforced for part in parts)
    reviews = sum(part.reviews for part in parts)
    for percent, number, seen in (
        (gates.max_newly_denied_percent, sum(part.newly_denied for part in parts), reviews - enforced),
        (gates.max_denied_percent, sum(part.denied for part in parts), enforced),
    ):
        assert percent is None or (seen >= gates.min_reviews and number / seen <= percent / 100)


def check(world: World) -> None:
    """Check all that was written in *world*."""
    began_s, paused_s, paused_at = 0.0, 0.0, None
    promoted: set[tuple[str, int]] = set()
    for write in world.writes[1:]:
        before, after = write.before, write.after
        assert before is not None
        if after.revision == before.revision:
            # Only what has been watched was written down.
            assert (after.step, after.phase, after.window, after.generation) == (
                *(before.step, before.phase, before.window, before.generation),
            )
            assert after.elapsed_s >= before.elapsed_s
            assert after.sources.keys() >= before.sources.keys()
            continue
        check_decision(write, before, after)
        decision = after.decisions[-1]
        if decision.action in ("promote", "complete") and not decision.who:
            # No time is counted twice, whoever counts it and however its clock goes.
            # After rollbacks it lasts longer.
            least_s = write.plan.stages[before.step].for_s * (1, 2, 4, 8)[before.rollbacks]
            assert write.true_s - began_s - paused_s >= least_s - 1e-6
            key = after.generation, before.step
            assert key not in promoted
            promoted.add(key)
        if decision.who or decision.action in ("rollback", "restart"):
            promoted -= {key for key in promoted if key[1] >= after.step}
        if before.phase in ("Paused", "RolledBack", "Complete"):
            # Only a person, or another plan or none, ends these.
            assert decision.who or decision.action in ("restart", "hold")
        if before.is_of_removed_plan:
            assert decision.action in ("restart", "forget")
        if after.window == before.window:
            if after.phase == "Paused":
                paused_at = write.true_s
        else:
            began_s, paused_s, paused_at = write.true_s, 0.0, None
        if after.phase == "Progressing" and paused_at is not None:
            paused_s, paused_at = paused_s + write.true_s - paused_at, None


def check_seeds(seeds: range) -> dict[str, int]:
    """Check the worlds of *seeds*, and return how often each action happened."""
    actions: dict[str, int] = {}
    for seed in seeds:
        world = World(seed)
        try:
            for _ in range(TURNS):
                world.turn()
            check(world)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        for _, _, after in world.decisions():
            name = f"{after.decisions[-1].action} by {'a person' if after.decisions[-1].who else 'itself'}"
            actions[name] = actions.get(name, 0) + 1
    return actions


@pytest.mark.parametrize("part", range(4))
def test_the_laws_hold_for_all_seeds(part: int) -> None:
    actions = check_seeds(range(part * SEEDS, (part + 1) * SEEDS))
    # What never happens proves nothing.
    for name in ("promote by itself", "complete by itself", "pause by itself", "rollback by itself"):
        assert actions[name] > 3, actions
    for name in ("skip by a person", "resume by a person", "rollback by a person", "restart by itself"):
        assert actions[name] > 3, actions
    for name in ("hold by itself", "approve by a person"):
        assert actions[name] > 3, actions
    assert actions["forget by a person"] > 0, actions


def test_a_plan_with_only_passing_data_completes_without_a_step_back() -> None:
    for seed in range(200):
        world = World(seed, faults=False)
        for _ in range(2000):
            if world.state.phase == "Complete":
                break
            world.turn()
        assert world.state.phase == "Complete", seed
        assert world.state.step == world.plan.last
        check(world)


def test_a_late_write_changes_nothing() -> None:
    late = 0
    for seed in range(100):
        world = World(seed)
        for _ in range(TURNS):
            world.turn()
            one = world.chance.choice(world.replicas)
            if one.pending is not None and one.pending[0] != world.version:
                state = world.state
                world.write(one)
                assert world.state is state
                late += 1
    assert late > 3


PARTS = st.sampled_from([good(), good(3), newly_denied(), refused(3, 3), newly_denied(number=9)])
SOURCES = st.dictionaries(st.sampled_from("abcd"), PARTS, min_size=1)


@given(sources=SOURCES, gone=st.sets(st.sampled_from("abcd")), seed=st.integers(0, 999))
def test_evidence_that_is_gone_never_makes_pass_out_of_another_value(
    sources: dict[str, object], gone: set[str], seed: int
) -> None:
    made = some_plan(random.Random(seed))
    first = started(made, START_S)
    full = evidence(first, **sources)  # type: ignore[arg-type]
    seen = decide(made, first, full, START_S, since_s=0)
    state = seen if seen is not None and seen.phase == "Progressing" and seen.step == 0 else first
    fewer = Evidence(full.window, {one: part for one, part in full.parts.items() if one not in gone})
    all_values = {one.name: one.value for one in judge(made, state, full, full.parts)}
    for one in judge(made, state, fewer, full.parts):
        if fewer.parts != full.parts:
            assert one.value != "pass"
        if one.value == "fail":
            assert all_values[one.name] == "fail"


@given(seed=st.integers(0, 10_000), names=st.lists(st.text("abcdef", min_size=1), min_size=1, max_size=20))
def test_a_later_stage_is_enforced_in_the_same_namespaces_and_perhaps_in_more(
    seed: int, names: list[str]
) -> None:
    made = some_plan(random.Random(seed)) if seed % 2 else plan()
    assert not [*problems(made.stages, made.groups)]
    tiers = ("canary", "critical", "other")
    before: set[str] = set()
    for stage in made.stages:
        hook = webhook("a.policies.test", rollout=stage.rollout)
        enforced = set()
        for index, name in enumerate(names):
            namespace = Namespace(name, {"tier": tiers[index % 3]}, b"")
            given_request = request(namespace=name)
            if 0 not in modes_of(Selection("validate", [hook]), given_request, namespace, 0.0):
                enforced.add(f"{name} {index % 3}")
                assert enforced_in(hook.name, stage, {name: namespace.labels}) == [name]
            else:
                assert enforced_in(hook.name, stage, {name: namespace.labels}) == []
        assert before <= enforced
        before = enforced
    assert len(before) == len({f"{name} {index % 3}" for index, name in enumerate(names)})


@given(seed=st.integers(0, 10_000))
def test_a_state_has_what_is_in_force_in_each_stage(seed: int) -> None:
    made = some_plan(random.Random(seed)) if seed % 2 else plan()
    read = PlanState.from_json(started(made, START_S).as_json())
    assert [one.rollout for one in read.outline.stages] == [one.rollout for one in made.stages]
    assert [str(one) for one in read.outline.stages] == [str(one) for one in made.stages]


@pytest.mark.parametrize("step", range(1, 6))
def test_a_rollback_puts_exactly_the_stage_before_in_force(step: int) -> None:
    from gateway.pure.rollout_plan.decide import roll_back

    made = plan()
    state = started(made, START_S)
    state = PlanState.from_json({**state.as_json(), "step": step})
    back = roll_back(made, state, who="ann", why="", now_s=START_S)
    assert made.stages[back.step].rollout == made.stages[step - 1].rollout

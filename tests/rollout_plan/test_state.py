"""State and evidence as JSON: what is written is read again, and whatever else there is becomes an error."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.rollout_plan.decide import decide, pause, roll_back, skip
from gateway.pure.rollout_plan.evidence import InvalidEvidence, Part, Tally
from gateway.pure.rollout_plan.model import MAX_CONDITIONS, MAX_SALT, Group, Plan, Stage
from gateway.pure.rollout_plan.reading import InvalidState
from gateway.pure.rollout_plan.state import MAX_DECISIONS, PlanState, started
from tests.rollout_plan.build import START_S, evidence, good, newly_denied, plan

STAGE = {"mode": "Warn", "percentOfNamespaces": 0, "groups": [], "needsApproval": False}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def some_state() -> PlanState:
    state = skip(plan(), started(plan(), START_S), who="ann\n", why="because\x1b[31m" * 99, now_s=START_S)
    seen = decide(plan(), state, evidence(state, a=good(), b=good(3)), START_S, since_s=61.5)
    assert seen is not None
    return roll_back(plan(), pause(plan(), seen, who="b", why="", now_s=1e18), who="c", why="x", now_s=-1)


@pytest.mark.parametrize("state", [started(plan(), START_S), some_state()])
def test_a_state_is_read_as_it_was_written(state: PlanState) -> None:
    assert PlanState.from_json(json.loads(json.dumps(state.as_json()))) == state


def test_the_state_of_the_largest_plan_is_read() -> None:
    values = frozenset(map(str, range(MAX_CONDITIONS - 1)))
    group = Group("many", Selector((Requirement("team", "In", values),)))
    largest = Plan.of((Stage("Warn", groups=("many",)), Stage("Enforce")), (group,), salt="~" * MAX_SALT)
    state = started(largest, START_S)
    assert PlanState.from_json(json.loads(json.dumps(state.as_json()))).outline == largest.outline


def test_the_last_decisions_are_kept() -> None:
    state = started(plan(), START_S)
    for _ in range(30):
        state = roll_back(plan(), skip(plan(), state, who="a", why="", now_s=0), who="a", why="", now_s=0)
    assert len(state.decisions) == MAX_DECISIONS
    assert state.revision == 61
    assert PlanState.from_json(state.as_json()) == state


def changed(document: Any, path: list[int], value: object) -> Any:
    """*document* with *value* at a place that the numbers of *path* choose."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    first, *rest = path
    if isinstance(document, dict):
        key = sorted(document)[first % len(document)]
        return {**document, key: changed(document[key], rest, value)}
    at = first % len(document)
    return [*document[:at], changed(document[at], rest, value), *document[at + 1 :]]


@given(path=st.lists(st.integers(0, 20), max_size=4), value=JSON)
def test_any_other_json_is_an_error_and_no_crash(path: list[int], value: object) -> None:
    with contextlib.suppress(InvalidState):
        found = PlanState.from_json(changed(some_state().as_json(), path, value))
        assert PlanState.from_json(found.as_json()) == found
    with contextlib.suppress(InvalidEvidence):
        part = Part.from_json(changed(newly_denied().as_json(), path, value))
        assert Part.from_json(part.as_json()) == part


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("step", 6, "step: found the number 6, expected a number from 0 to 5"),
        ("step", True, "step: found true, expected a number from 0 to 5"),
        ("phase", "Done", 'phase: found "Done", expected Progressing, Paused, RolledBack, Complete, '),
        ("phase", [], r"phase: found \[\]"),
        ("outline", {}, "groups: found null, expected a list of 0 to 16"),
        ("outline", {"stages": [STAGE], "groups": [], "salt": ""}, "outline.stages: found 1, expected 6"),
        (
            "outline",
            {"stages": [STAGE | {"groups": ["a"]}], "groups": [], "salt": ""},
            r'outline.stages\[0\].groups\[0\]: found "a", expected the name of one of plan.groups',
        ),
        ("generation", "x", 'generation: found the string "x", expected a digest'),
        ("elapsedSeconds", float("nan"), "elapsedSeconds: found the number NaN, expected seconds"),
        ("stepStartedAt", "2026-13-01T00:00:00Z", "stepStartedAt: found .*, expected a time such as"),
        ("stageDigests", [], "stageDigests: found a list, expected a list of 1 to 20"),
        ("decisions", [], "decisions: found a list, expected a list of 1 to 20"),
        ("sources", {"a": -1}, "a: found the number -1"),
    ],
)
def test_an_error_names_the_field(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidState, match=message):
        PlanState.from_json({**some_state().as_json(), name: value})


def test_a_full_part_says_that_there_is_more_and_is_read_again() -> None:
    tally = Tally()
    for index in range(300):
        tally.answered(f"n{index}", f"u{index}", 60.0, refuses=True, owner="Pod/" + "x" * 400)
    part = tally.part()
    assert (len(part.namespaces), part.namespaces.has_more, part.newly_denied) == (201, True, 300)
    assert Part.from_json(json.loads(json.dumps(part.as_json()))) == part
    assert len(json.dumps(part.as_json())) < 100_000

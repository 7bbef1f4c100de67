"""Laws of what differs between two objects, and of webhooks that overwrite each other."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core.conflicts import Writers
from gateway.pure.core.decision import decide
from gateway.pure.core.disputes import Disputes
from gateway.pure.core.field_changes import field_changes
from gateway.pure.core.stages import conflicts_of
from tests.core.build import add, patch, request, settle, webhook
from tests.properties.examples import Examples
from tests.properties.strategies import objects

PATHS = ("/metadata/labels/a", "/metadata/labels/b", "/metadata/annotations/c", "/spec/d")
VALUES = ("1", "2", "3")
writes = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(VALUES), max_size=3)

PAIRS = Examples(200, before=objects, after=objects)
WRITERS = Examples(200, one=writes, other=writes)
OBJECT = {"metadata": {"name": "x", "labels": {}, "annotations": {}}, "spec": {}}


@PAIRS.law
def test_equal_objects_do_not_differ_and_what_differs_is_not_equal(before: Any, after: Any) -> None:
    assert field_changes(before, copy.deepcopy(before)) == []
    if field_changes(before, after):
        assert not same(before, after)


@PAIRS.law
def test_the_same_fields_differ_in_both_directions(before: Any, after: Any) -> None:
    there, back = field_changes(before, after), field_changes(after, before)
    assert {one.path for one in there} == {one.path for one in back}


@PAIRS.law
def test_a_webhook_has_no_conflict_with_itself(before: Any, after: Any) -> None:
    writers, own = Writers(is_secret=False), webhook()
    assert writers.note(own, before, after) == writers.note(own, after, before) == []


@PAIRS.law
def test_what_another_takes_back_is_found_field_by_field(before: Any, after: Any) -> None:
    writers = Writers(is_secret=False)
    writers.note(webhook("a.policies.test"), before, after)
    found = writers.note(webhook("b.policies.test"), after, before)
    assert {one.path for one in found} == {one.path for one in field_changes(before, after)}
    assert all(one.is_undone for one in found)


def _in_conflict(first: dict[str, str], second: dict[str, str]) -> set[str]:
    hooks = [webhook("a.policies.test"), webhook("b.policies.test")]
    verdicts = {
        hook.name: patch(*(add(path, value) for path, value in own.items()))
        for hook, own in zip(hooks, (first, second), strict=True)
    }
    evaluation = settle(hooks, request(object=OBJECT), verdicts)
    strict = settle(hooks, request(object=OBJECT), verdicts, rejects_conflicts=True)
    assert decide(strict, "None").allowed is (not conflicts_of(evaluation))
    return {"/" + "/".join(map(str, one.path)) for one in conflicts_of(evaluation)}


@WRITERS.law
def test_writers_of_other_values_are_found_in_both_orders(one: Any, other: Any) -> None:
    expected = {path for path in one.keys() & other.keys() if one[path] != other[path]}
    assert _in_conflict(one, other) == _in_conflict(other, one) == expected


UPDATES = Examples(
    60,
    mutator=writes,
    requests=st.lists(writes, min_size=1, max_size=12),
)


@UPDATES.law
def test_a_mutator_at_rest_is_never_named_whatever_clients_do(mutator: Any, requests: Any) -> None:
    """It sets fields that have no value, so it changes only what a request takes away."""
    state, number = Disputes(), 0
    stored: dict[str, str] = {}
    for fields in requests:
        wanted = {**stored, **fields}
        change = {path: value for path, value in mutator.items() if path not in wanted}
        new = {**wanted, **change}
        documents = [_object(values, number) for values in (stored, wanted)]
        verdict = patch(*(add(path, value) for path, value in change.items()))
        evaluation = settle(
            [webhook()],
            request(operation="UPDATE", object=documents[1], oldObject=documents[0]),
            {webhook().name: verdict} if change else {},
        )
        if evaluation.has_changed:
            assert finish(state.note(evaluation, float(number))) == []
        stored, number = new, number + 1
    assert state.found == {}


def _object(values: dict[str, str], version: int) -> dict[str, Any]:
    found: dict[str, Any] = copy.deepcopy(OBJECT)
    found["metadata"]["resourceVersion"] = str(version)
    for path, value in values.items():
        place: Any = found
        *parents, last = path.split("/")[1:]
        for part in parents:
            place = place[part]
        place[last] = value
    return found

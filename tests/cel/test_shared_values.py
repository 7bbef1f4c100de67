"""Values whose parts are shared: 2^n leaves at a cost of n. No operation walks them to the end.

An operation that did would not end, or would take all memory of the machine: these tests pass by ending.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel import meter
from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.equality import equal, is_equal
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.meter import BRIEF_LIMIT, EXCEEDED, EXPRESSION_LIMIT, METER, start
from gateway.pure.cel.sizes import json_bytes
from gateway.pure.cel.values import Optional, Struct, Timestamp, Uint
from gateway.pure.conditions.cache_key import CompiledKey
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.conditions import ConditionInput, Unresolved
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVELS = 60
LIMITS: dict[float, int] = {BRIEF_LIMIT: 2_000_000, EXPRESSION_LIMIT: 1_000_000_000}
"""The allowance of steps for each budget: on the event loop, and in another thread."""


def doubled(value: str, levels: int = LEVELS) -> str:
    """An expression for a list of one value with so many levels, each with the one below twice."""
    maps = "".join(f".map(v{n}, dyn({{'x': v{n}, 'y': v{n}}}))" for n in range(levels))
    return f"[dyn({value})]{maps}"


def judge(expression: str, current: Any = None) -> object:
    conditions = CompiledConditions([compile_condition("c", expression)])
    result = conditions.evaluate(ConditionInput({}, current, current), {})
    assert isinstance(result, Unresolved), "it is not left to the event loop"
    assert result.evaluation is not None
    return result.evaluation()


@pytest.mark.parametrize(
    "use",
    [
        "{0}.all(z, z == z)",
        "{0}.all(z, [z, z] == [z, z])",
        "{0} == {0}",
        "{0}.all(z, optional.of(z) == optional.of(z))",
        "{0}.all(z, !(z in [z.x, z]))",
        "{0}.all(z, [z, z].indexOf(z.x) < 0)",
        "{0}.all(z, [z.x, z].lastIndexOf(z) == 1)",
        "{0}.all(z, sets.contains([z], [z]))",
        "{0}.all(z, sets.equivalent([z], [z]))",
        "{0}.all(z, sets.intersects([z.x, z], [z]))",
        "{0}.all(z, [z, z].distinct().size() == 1)",
        "{0}.all(z, '%s'.format([z]) == '')",
        "{0}.all(z, [dyn('a'), z].join() == '')",
        "{0}.all(z, [z].includes(z))",
    ],
)
def test_an_operation_on_a_shared_value_ends_at_the_limit(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_STEPS", 20_000_000)
    result = judge(use.format(doubled("{'a': 1}")))

    assert isinstance(result, Failed)
    assert result.cause.endswith(EXCEEDED)


def test_a_key_of_the_cache_is_not_a_shared_value() -> None:
    assert CompiledKey(doubled("{'a': 1}")).digest(ConditionInput({}, None, None)) == b""
    assert CompiledKey(doubled("{'a': 1}", 3)).digest(ConditionInput({}, None, None)) != b""


def test_the_keys_of_a_review_share_the_time_of_the_event_loop() -> None:
    key = CompiledKey("[" + "1, " * 700 + "2].all(x, isIP('1.2.3.' + string(x)))")
    seen = ConditionInput({}, None, None)
    found = [key.digest(seen) for _ in range(100)]
    kept = [each for each in found if each]
    assert 1 < len(kept) < 100
    assert found == [kept[0]] * len(kept) + [b""] * (100 - len(kept))


def test_the_expressions_of_a_webhook_share_the_allowance_of_steps() -> None:
    """Each of them alone is within the limit."""
    numbers = {"l": list(range(100_000))}
    expression = "(object.l + object.l).size() > 0"
    conditions = CompiledConditions([compile_condition(f"c{n}", expression) for n in range(60)])
    result = conditions.evaluate(ConditionInput({}, numbers, None), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    assert isinstance(result.evaluation(), Failed)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, 1.0, 0.5, "", "a", "b" * 2_000, b"a", Uint(1), Timestamp(1)]),
)


@st.composite
def shared(draw: st.DrawFn, kinds: Sequence[str] = ("list", "map", "struct", "patch", "optional")) -> Any:
    """A value of which each part may occur many times, with up to 2^60 leaves."""
    made: list[Any] = [draw(SCALARS)]
    for _ in range(draw(st.integers(0, 30))):
        parts = [made[-1], *draw(st.lists(st.sampled_from(made[-4:]), max_size=3))]
        kind = draw(st.sampled_from(kinds))
        members = dict(zip("abcd", parts, strict=False))
        made.append(
            {
                "list": parts,
                "map": members,
                "struct": Struct("Object", members),
                "patch": Struct("JSONPatch", {"op": "add", "value": parts}),
                "optional": Optional(parts[-1]),
            }[kind]
        )
    return made[-1]


def leaves(value: object) -> int:
    """The number of leaves of *value*, each shared part counted as often as it occurs."""
    known: dict[int, int] = {}

    def count(one: object) -> int:
        if id(one) not in known:
            parts: list[object] = []
            if isinstance(one, dict):
                parts = list(one.values())
            elif isinstance(one, list):
                parts = one
            elif isinstance(one, Struct):
                parts = list(one.fields.values())
            elif isinstance(one, Optional):
                parts = [one.value]
            known[id(one)] = sum(map(count, parts)) if parts else 1
        return known[id(one)]

    return count(value)


@given(shared(), st.sampled_from(sorted(LIMITS)))
def test_a_comparison_touches_no_more_leaves_than_the_allowance_has(value: Any, budget: float) -> None:
    start(budget)
    limit = 2_000_000
    METER.steps = LIMITS[budget] - limit
    touched = leaves(value)
    try:
        assert equal(value, deepcopy(value))
        # A leaf in a list or map takes 50 steps, or another one five times as many.
        assert touched * 50 <= limit * 5
    except CostExceeded:
        assert touched * 25 * 50 * 4 > limit
    assert METER.steps - (LIMITS[budget] - limit) <= limit + 1_000_000


@given(shared(), shared())
def test_values_with_different_leaves_differ(left: Any, right: Any) -> None:
    """And equality is symmetric."""
    try:
        start(BRIEF_LIMIT)
        same = is_equal(left, right)
        start(BRIEF_LIMIT)
        assert is_equal(right, left) is same
    except CostExceeded:
        return
    if same:
        assert leaves(left) == leaves(right)


@given(shared(kinds=("list", "map")), st.sampled_from([100, 10_000]))
def test_the_size_of_a_value_is_found_without_writing_it(value: Any, limit: int) -> None:
    start(BRIEF_LIMIT)
    try:
        found = json_bytes(value, limit)
    except (CostExceeded, TypeError, EvaluationError):
        return
    assert found >= min(leaves(value), limit)

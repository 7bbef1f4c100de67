"""No expression and no object makes an evaluation long or large."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel import meter
from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.indexing import find
from gateway.pure.cel.meter import BRIEF_LIMIT, cost_so_far
from gateway.pure.cel.operators import is_in
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.conditions import ConditionInput, Excluded, Unresolved
from gateway.pure.core.verdict import Failed

TEXT = "a" * 1_000_000
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
EXCEEDED = "operation cancelled: actual cost limit exceeded"


def seen(current: Any, old: Any = None) -> ConditionInput:
    return ConditionInput({}, current, old)


@cache
def large(size: int = 300_000) -> dict[str, Any]:
    """An object of lists, texts and maps of about *size* values, which evaluations do not change."""
    return {
        "text": TEXT[: size * 3],
        "numbers": list(range(size)),
        "deep": [{"a": 1, "b": [1, 2, {"c": "d"}]} for _ in range(size // 10)],
        "map": {str(number): number for number in range(size // 3)},
    }


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A large object, and a fortieth of the gateway's limits, which are reached forty times as soon."""
    monkeypatch.setattr(meter, "EXPRESSION_LIMIT", meter.EXPRESSION_LIMIT // 40)
    monkeypatch.setattr(meter, "_STEPS", meter._STEPS // 40)
    return large(7_500)


def judge(expression: str, current: Any, old: Any = None) -> object:
    conditions = CompiledConditions([compile_condition("c", expression)])
    result = conditions.evaluate(ConditionInput({}, current, old), {})
    if isinstance(result, Unresolved) and result.evaluation is not None:
        return result.evaluation()
    return result


@pytest.mark.parametrize(
    "expression",
    [
        "object.numbers.all(x, object.numbers.all(y, y >= 0))",
        "object.numbers.all(x, x.missing == 1)",
        "object.numbers.map(x, object.text + 'a').size() == 1",
        "object.numbers.map(x, object.numbers + object.numbers).size() == 1",
        "object.numbers.map(x, [x]).size() == 1",
        "object.numbers.map(x, {'a': x}).size() == 1",
        "object.numbers.filter(x, x in object.numbers).size() == 1",
        "object.numbers.all(x, object.text.matches('(a|b)*c$') || true)",
        "object.numbers.all(x, object.text.contains('aaab') || true)",
        "object.numbers.all(x, object.text != object.text + 'b')",
        "object.numbers.all(x, bytes(object.text).size() > 1)",
        "object.numbers.all(x, timestamp(x).getHours('Europe/Berlin') >= 0)",
        "object.numbers.all(x, duration(string(x) + 's') > duration('-1s'))",
        "object.numbers.all(x, optional.of(x).optMap(y, y + 1).hasValue())",
        "object.map.transformMap(k, v, [v, v, v]).size() == 1",
        "object.map.all(k, v, object.map.exists(l, w, w < 0) || true)",
        "object.numbers.all(x, authorizer.group('').resource('x').name('y') != null)",
        "authorizer.requestResource.labelSelector(object.text).check('get').allowed()",
    ],
)
def test_an_evaluation_over_budget_ends_early(expression: str, lowered: dict[str, Any]) -> None:
    tracemalloc.start()
    result = judge(expression, lowered, lowered)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(result, Failed)
    assert result.cause in (f"expression '{expression}' resulted in error: {EXCEEDED}", OUT_OF_BUDGET)
    assert peak < 5_000_000


@pytest.mark.parametrize(
    "expression",
    [
        "object.numbers.all(x, x < 0 || x >= 0 || true) || true",
        "object.numbers.exists(x, object.numbers.all(y, y >= 0)) || 1 / 0 == 1",
        "[object.numbers.all(x, x >= 0)].exists(b, true)",
        "(object.numbers.map(x, [x]).size() > 0 ? optional.of(1) : optional.none()).hasValue() || true",
    ],
)
def test_nothing_absorbs_the_limit(expression: str, lowered: dict[str, Any]) -> None:
    result = judge(expression, lowered)

    assert isinstance(result, Failed)
    assert result.cause.endswith(EXCEEDED)


def test_a_list_of_the_largest_request_is_traversed() -> None:
    assert judge("object.l.all(x, x >= 0)", {"l": list(range(150_000))}) is None
    assert judge("object.l.all(x, object.l.all(y, y >= 0))", {"l": list(range(300))}) is None
    assert judge("object.deep == oldObject.deep", large(), large()) is None


def test_every_evaluation_has_its_own_budget() -> None:
    for _ in range(3):
        assert judge("object.l.all(x, x >= 0)", {"l": list(range(150_000))}) is None
        assert isinstance(judge("object.numbers.all(x, x >= 0)", large()), Failed)


@given(st.integers(0, 50), st.integers(0, 50))
def test_each_round_of_a_macro_is_charged(short: int, longer: int) -> None:
    """The cost of a macro is linear in its rounds."""

    def cost(length: int) -> float:
        judge("object.l.all(x, x >= 0 && x.size > 1 || true)", {"l": ["a"] * length})
        return cost_so_far()

    empty, one = cost(0), cost(1)
    assert cost(short) == empty + short * (one - empty)
    assert cost(short + longer) == cost(short) + cost(longer) - empty


@given(st.integers(0, 2_000))
def test_the_cost_of_a_search_grows_with_the_text(length: int) -> None:
    def cost(size: int) -> float:
        judge("object.s.matches('^(a|b)*$')", {"s": "a" * size})
        return cost_so_far()

    assert cost(length) == cost(0) + (-(-(1 + length) // 10) - 1) * 2


def test_a_key_of_a_map_is_looked_up_in_constant_time() -> None:
    """Also keys that are equal in Python: 1, 1.0 and true."""

    class Key(int):
        compared = 0

        def __hash__(self) -> int:
            return int(self)

        def __eq__(self, other: object) -> bool:
            Key.compared += 1
            return int(self) == other

    numbers: dict[object, object] = {number: number for number in range(1000, -1, -1)}
    assert find(numbers, 7) == 7
    assert is_in(Key(7), numbers)
    assert Key.compared < 10
    Key.compared = 0
    assert find(numbers, 1) == 1
    yes: object = True
    assert not is_in(yes, numbers)
    assert Key.compared == 0


def test_a_slow_pattern_does_not_run_on_the_event_loop() -> None:
    """Even if it is cheap: some patterns have too many states for RE2, and take a thousand times as long."""
    slow = CompiledConditions([compile_condition("c", "object.s.matches('(a?){500}a{500}b')")])
    assert isinstance(slow.evaluate(seen({"s": "a"}), {}), Excluded)
    assert isinstance(slow.evaluate(seen({"s": "a" * 1_000}), {}), Unresolved)
    from_object = CompiledConditions([compile_condition("c", "'a'.matches(object.s)")])
    assert isinstance(from_object.evaluate(seen({"s": "b" * 100}), {}), Excluded)
    assert isinstance(from_object.evaluate(seen({"s": "b" * 10_000}), {}), Unresolved)
    failed = judge("object.text.matches('(a?){500}a{500}b')", large())
    assert isinstance(failed, Failed)
    assert failed.cause.endswith(EXCEEDED)


WORDS = f"1.0.0-{'.'.join(['a'] * 20_000)}"
COMPARED: dict[str, Any] = {
    "l": list(range(300)),
    "a": TEXT,
    "b": "".join(TEXT),
    "map": {TEXT: True},
    "words": WORDS,
    "nested": [[{"x": TEXT}]],
    "other": [[{"x": "a" * 999_999 + "b"}]],
    "hours": "1h" * 499,
    "url": f"http://a/{TEXT[:300_000]}",
}


@pytest.mark.parametrize(
    "expression",
    [
        "object.l.all(x, object.a <= object.b)",
        "object.l.all(x, dyn(object.a) in object.map)",
        "object.l.all(x, object.map[object.a])",
        "object.l.all(x, {object.a: x}.size() == 1)",
        "object.l.all(x, object.a in [object.b, object.a])",
        "[semver(object.words)].all(a, [semver(object.words)].all(b, object.l.all(x, a == b)))",
        "[semver(object.words)].all(a, [semver(object.words)].all(b, object.l.all(x, !a.isLessThan(b))))",
        "[url(object.url)].all(a, [url(object.url)].all(b, object.l.all(x, a == b)))",
        "object.l.all(x, object.nested != [[{'x': object.b + string(x)}]])",
        "object.l.all(x, object.nested != object.other)",
        "object.l.all(x, duration(object.hours) == duration('499h'))",
        "object.l.all(x, timestamp(0).getHours('Nowhere/' + string(x)) == 0 || true)",
    ],
)
def test_comparing_long_values_again_and_again_leaves_the_event_loop(expression: str) -> None:
    """The cost of each comparison is that of a short value."""
    result = CompiledConditions([compile_condition("c", expression)]).evaluate(seen(COMPARED), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    assert not isinstance(result.evaluation(), Unresolved)


def test_a_time_zone_that_does_not_exist_is_looked_up_once() -> None:
    names = [f"Nowhere/{number}" for number in range(10)]
    expression = "object.l.all(x, object.names.all(y, timestamp(0).getHours(y) == 0) || true)"
    current = {"l": list(range(20)), "names": names}
    assert CompiledConditions([compile_condition("c", expression)]).evaluate(seen(current), {}) is None


def test_a_message_quotes_the_beginning_of_a_long_key() -> None:
    result = judge("object.map[object.b] == 1", {"map": {}, "b": TEXT})
    assert isinstance(result, Failed)
    assert result.cause.endswith(f"no such key: {TEXT[:1000]}…")


@pytest.mark.parametrize(
    "expression",
    [
        "object.l.all(x, x in object.l)",
        "object.words.all(x, x in object.l || true)",
        "object.words.sort().size() == 5000",
    ],
)
def test_free_work_on_a_long_list_is_not_refused(expression: str) -> None:
    """The checker does not know the types of lists in an object."""
    assert judge(expression, {"l": list(range(1000)), "words": [str(n) for n in range(5000)]}) is None


def test_a_long_list_of_constants_is_free() -> None:
    """The cost is kube-apiserver's: 5 units for each of the 4,000 keys, and 3."""
    constants = ", ".join(f"'c{number}'" for number in range(300))
    data = {f"k{number}": "" for number in range(4_000)}
    assert judge(f"object.data.all(k, !(k in [{constants}]))", {"data": data}) is None
    assert cost_so_far() == 20_003


def test_nested_sorting_is_checked_once() -> None:
    """The check must not run for the sorting and for its keys, which doubles the time with every sorting."""
    expression = "object.l" + ".sortBy(x, x)" * 50 + ".size() == 3"
    assert judge(expression, {"l": [3, 1, 2]}) is None


def test_objects_nested_deeper_than_python_recurses_are_compared() -> None:
    def nested(value: object) -> object:
        for _ in range(50_000):
            value = [value]
        return value

    assert judge("object.a == oldObject.a", {"a": nested(1)}, {"a": nested(1)}) is None
    assert isinstance(judge("object.a == oldObject.a", {"a": nested(1)}, {"a": nested(2)}), Excluded)


def test_a_long_evaluation_does_not_run_on_the_event_loop() -> None:
    conditions = CompiledConditions([compile_condition("c", "object.l.all(x, x >= 0)")])

    assert conditions.evaluate(seen({"l": list(range(100))}), {}) is None
    assert cost_so_far() <= BRIEF_LIMIT
    result = conditions.evaluate(seen({"l": list(range(100_000))}), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    assert result.evaluation() is None


def test_all_conditions_of_a_webhook_share_the_limit_of_the_event_loop() -> None:
    current = {"l": list(range(1_500))}
    expression = "object.l.all(x, x >= 0)"
    one = CompiledConditions([compile_condition("c", expression)]).evaluate(seen(current), {})
    two = CompiledConditions([compile_condition(name, expression) for name in "ab"])

    assert one is None
    assert isinstance(two.evaluate(seen(current), {}), Unresolved)


def test_two_threads_evaluate_at_the_same_time() -> None:
    """Neither is charged for the other."""
    conditions = CompiledConditions([compile_condition("c", "object.l.all(x, object.l.all(y, y >= 0))")])

    def think(length: int) -> object:
        result = conditions.evaluate(seen({"l": list(range(length))}), {})
        assert isinstance(result, Unresolved)
        assert result.evaluation is not None
        return result.evaluation()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(think, [350] * 8)) == [None] * 8
        assert {type(found) for found in threads.map(think, [600] * 4)} == {Failed}


def test_compilation_does_not_change_the_cost_of_an_evaluation() -> None:
    assert isinstance(judge("object.numbers.all(x, x >= 0)", large()), Failed)

    compile_condition("c", "'%s'.format(['compiled after the budget was spent']) == ''")
    compile_condition("c", "bytes('compiled after the budget was spent') == b''")

"""Every function of the libraries, with a long text, a long list and a value with shared parts.

A call is judged by the steps that it counts, by its memory, and by ending: none may touch all of a value that
has 2^60 leaves.
"""

from __future__ import annotations

import tracemalloc
from itertools import count, product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel import chunks, meter
from gateway.pure.cel.conversions import to_double
from gateway.pure.cel.dialects import KYVERNO
from gateway.pure.cel.environment import ENVIRONMENT
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.libraries.formats import FORMATS
from gateway.pure.cel.meter import BRIEF_LIMIT, METER, start
from gateway.pure.cel.regex import compile_regex
from gateway.pure.cel.structs import FUNCTIONS as PATCH_FUNCTIONS
from gateway.pure.cel.values import Duration, Optional, Timestamp, Uint

if TYPE_CHECKING:
    from gateway.pure.cel.functions import Function
    from gateway.pure.cel.types import Type

STEPS = 5_000_000
"""The allowance of the thread in these tests: a two-hundredth."""
LONG = 100_000
SHARED: Any = {"a": 1}
for _ in range(60):
    SHARED = {"x": SHARED, "y": [SHARED]}
TEXTS = ["a" * LONG, " " * LONG, "é" * LONG, "%s" * LONG, "1" * LONG, "1." * LONG, '"' * LONG]
TEXTS += [f"{'a,' * LONG} "]
TEXTS += [f"{'1' * LONG}x", f"1.{'1' * LONG}x"]
"""With one of these a pattern that could match in many ways would not end."""
VALUES: dict[str, list[Any]] = {
    "string": [*TEXTS, "a", ""],
    "bytes": [b"a" * LONG],
    "int": [0, 1, LONG, 2**62],
    "uint": [Uint(1)],
    "double": [0.5],
    "bool": [True],
    "timestamp": [Timestamp(0)],
    "duration": [Duration(1)],
    "optional_type": [Optional(SHARED)],
    "list": [
        [SHARED, SHARED],
        [SHARED] * LONG,
        ["a" * 1000] * LONG,
        list(range(LONG)),
        [TEXTS[0], TEXTS[1]] * 9,
    ],
    "map": [SHARED, dict.fromkeys(map(str, range(LONG)), SHARED)],
    "kubernetes.NamedFormat": list(FORMATS.values()),
}
FUNCTIONS = [
    each
    for overloads in (*ENVIRONMENT.functions.values(), PATCH_FUNCTIONS, KYVERNO.functions)
    for each in overloads
    if getattr(each.call, "__name__", "") != "_unused"
]


def arguments(kind: Type, number: int) -> list[Any]:
    """Values for the parameter *number*: fewer for a text that is not the first."""
    if kind.name == "string" and number:
        return [TEXTS[0], "a", ""]
    if kind.is_parameter or kind.name == "dyn":
        return [SHARED, [SHARED] * LONG, TEXTS[0], [[SHARED, SHARED]] * 2]
    return VALUES.get(kind.name, [])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: f"{each.overload}-{each.name}")
def test_a_function_counts_what_it_touches(function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_STEPS", STEPS)
    tracemalloc.start()
    try:
        for given_values in product(*map(arguments, function.parameters, count())):
            for budget in (BRIEF_LIMIT, 250_000):
                start(budget)
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                try:
                    found = function.call(*given_values)
                except (EvaluationError, CostExceeded):
                    found = None
                peak = tracemalloc.get_traced_memory()[1] - before
                # 80 MB for 1,000,000,000 steps, and a copy of a long text.
                assert peak < 5 * METER.steps + 40 * METER.budget + 2_000_000, (peak, METER.steps)
                is_new = function.name not in ("min", "max") and all(
                    found is not each for each in given_values
                )
                if isinstance(found, str | bytes | list) and is_new:
                    least = meter._ITEM if isinstance(found, list) else meter._CHARACTER
                    assert least * len(found) <= METER.steps + 100 * least, "a new value is counted"
                del found
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    ["1" * 9_999 + "x", "0x" + "1" * 9_990 + "x", "1" * 5_000 + "." + "1" * 4_990 + "x", "1e" + "1_" * 4_000],
)
def test_a_long_text_that_is_no_number_is_found_out_at_once(text: str) -> None:
    """Each took seconds."""
    for number in range(200):
        with pytest.raises(EvaluationError):
            to_double(f"{text[:-1]}{number}{text[-1]}"[:10_000])


def test_a_pattern_with_many_quoted_parts_is_searched_for_an_escape_at_once() -> None:
    """The time doubled with each part."""
    quoted = r"\Qa\E" * 1_000
    assert compile_regex(quoted + r"\Q\C").search("a" * 1_000 + r"\C")
    assert compile_regex(r"\QC\\C\E").search("C\\\\C")
    for pattern in (quoted + r"\C", r"\Qa\E\C", r"\\\C", r"\Qa\E\E\C"):
        with pytest.raises(EvaluationError, match="invalid escape sequence"):
            compile_regex(pattern)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 7))
def test_chunks_are_the_items(items: list[int], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "ITEMS", size)
        assert [item for some in chunks.chunks(items) for item in some] == items
        assert all(len(some) <= size for some in chunks.chunks(items))
        assert chunks.joined(items, items) == items + items


@given(
    st.text("a, ", max_size=40),
    st.sampled_from([",", " ", ", ", "aa"]),
    st.integers(-1, 9),
    st.integers(1, 5),
)
def test_texts_are_split_and_stripped_as_python_does(text: str, separator: str, most: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "ITEMS", size)
        patch.setattr(chunks, "CHARACTERS", size)
        assert chunks.split(text, separator, most) == text.split(separator, most)
        assert chunks.stripped(text, " ,") == text.strip(" ,")
        assert "".join(chunks.text_chunks(text)) == text

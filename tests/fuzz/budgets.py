"""The cost meter: an evaluation ends within its budget, and less than its cost is never enough.

An input is an expression of the target ``expression``, put into up to four loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.pure.cel import meter
from gateway.pure.cel.compile import Expression, compile_expression
from gateway.pure.cel.environment import policy_environment
from gateway.pure.cel.errors import CostExceeded, EvaluationError, InvalidExpression
from gateway.pure.cel.lazy import LazyVariables
from gateway.pure.cel.meter import cost_so_far
from gateway.pure.conditions.match_conditions import RequestVariables
from gateway.pure.core.conditions import AccessDecision
from gateway.pure.openapi.go_types import in_conditions
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.fuzz import expressions
from tests.fuzz.laws import bounded
from tests.fuzz.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODULES: Final = (
    "gateway/pure/cel/meter.py",
    "gateway/pure/cel/lazy.py",
    "gateway/pure/cel/program/builder.py",
    "gateway/pure/cel/program/calls.py",
    "gateway/pure/cel/program/comprehensions.py",
)
MAX_BYTES: Final = 512
WORDS: Final = expressions.WORDS
LIMIT: Final = 30_000
_UNIT: Final = 0.1
"""The smallest difference of two costs."""
_IN_ADVANCE: Final = 10
"""So much may be charged before a call, and given back after it."""
_LISTS: Final = ("[1, 2, 3]", "[[1], [2, 3]]", "'abcd'.split('')", "{'a': 1, 'b': 2}", "[]", "object.list")
_MACROS: Final = ("map", "filter", "all", "exists", "exists_one")
_ENVIRONMENT: Final = policy_environment(None, has_params=False)
_BOUNDS: Final[Sequence[tuple[Any, Mapping[str, int]]]] = [(meter, {"BRIEF_LIMIT": 0, "_CHECK": 3_500})]
_EXCEEDED: Final = object()


def run(data: bytes) -> None:
    source = Source(data)
    try:
        expression = compile_expression(_looped(source), _ENVIRONMENT)
    except InvalidExpression:
        return
    with bounded(_BOUNDS):
        _run(expression)


def _run(expression: Expression) -> None:
    found, cost = _evaluate(expression, LIMIT)
    again, same = _evaluate(expression, LIMIT)
    assert (repr(again), same) == (repr(found), cost)
    if found is _EXCEEDED:
        assert cost > LIMIT
        return
    assert cost <= LIMIT + _UNIT / 2
    if isinstance(found, str):
        return  # what is charged in advance is given back after an error
    enough, _ = _evaluate(expression, cost + _IN_ADVANCE)
    assert repr(enough) == repr(found), "the cost is far from enough as a budget"
    if cost > _UNIT:
        less, _ = _evaluate(expression, cost - _UNIT / 2)
        assert less is _EXCEEDED, "less than the cost is enough as a budget"


def _evaluate(expression: Expression, budget: float) -> tuple[object, float]:
    """Return the value in a list, the text of its error, or ``_EXCEEDED``; and the cost."""
    variables = RequestVariables(REQUEST)
    variables.decisions.decisions = _Decisions()
    values = (REQUEST["object"], REQUEST["oldObject"], variables.request, None)
    frame = LazyVariables(
        {}, (*values, variables.authorizer, variables.check, None, None, in_conditions)
    ).frame(expression.program.slots)
    try:
        found: object = [expression.evaluate(frame, budget)]
    except CostExceeded:
        return _EXCEEDED, cost_so_far()
    except EvaluationError as error:
        found = str(error)
    return found, cost_so_far()


class _Decisions(dict[Any, AccessDecision]):
    def __missing__(self, key: Any) -> AccessDecision:
        return AccessDecision(allowed=len(key.spec) % 2 == 0)


def _looped(source: Source) -> str:
    text = expressions.text_of(source)
    for number in range(source.below(5)):
        macro = source.one_of(_MACROS)
        body = f"[{text}].size() == 1" if macro != "map" or source.chance(2) else text
        text = f"{source.one_of(_LISTS)}.{macro}(i{number}, {body})"
    return text


def seeds() -> Iterator[bytes]:
    yield b""
    for number in range(0, len(EXPRESSIONS), 12):
        for loops in range(0, 5, 2):
            yield bytes([0, number >> 8, number % 256, 0, loops, *(number % 7, 0, loops, 1) * 3])

"""matchConditions: an expression is refused with its position, or evaluated, and always with the same result.

An input is text, or pieces of expressions that people write, put into each other; and an object.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.pure.cel import meter
from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.conditions import AccessDecision, ConditionInput, Evaluated, Excluded, Unresolved
from gateway.pure.core.verdict import Failed, FailureReason
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.fuzz.documents import edited, words_of
from tests.fuzz.laws import Faults, bounded
from tests.fuzz.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.pure.core.conditions import AccessCheck

MODULES: Final = (
    "gateway/pure/cel/parse.py",
    "gateway/pure/cel/lexer.py",
    "gateway/pure/cel/check.py",
    "gateway/pure/cel/program/builder.py",
    "gateway/pure/conditions/match_conditions.py",
)
MAX_BYTES: Final = 512
WORDS: Final = [
    *(
        b"object",
        b"oldObject",
        b"request.",
        b".all(x, ",
        b".map(x, ",
        b".exists(k, v, ",
        b"has(",
        b".?",
        b"[?",
    ),
    *(
        b" && ",
        b" || ",
        b" == ",
        b" in ",
        b" ? ",
        b" : ",
        b"'a'",
        b'"""',
        b"1.5",
        b"18446744073709551615u",
        b"null",
    ),
    *(
        b".matches('",
        b".format([",
        b"quantity('1Gi')",
        b"duration('1h')",
        b"timestamp('",
        b"authorizer.",
        b")",
        b"]",
    ),
]
_KEYS: Final = words_of(REQUEST)
_PARTS: Final = [
    part for expression in EXPRESSIONS for part in re.split(r"\b(?===|&&|\|\||in )", expression) if part
]
_PLACE: Final = re.compile(r"\d+:\d+: ")
_BOUNDS: Final[Sequence[tuple[Any, Mapping[str, int]]]] = [
    (meter, {"EXPRESSION_LIMIT": 50_000, "HOOK_LIMIT": 120_000})
]
_faults = Faults()


def run(data: bytes) -> None:
    source = Source(data)
    with _faults, bounded(_BOUNDS):
        _run(source)


def _run(source: Source) -> None:
    request = REQUEST
    if source.chance(2):
        changed = source.one_of(["object", "oldObject", "userInfo", "options", "name"])
        request = {**REQUEST, changed: edited(source, REQUEST[changed], _KEYS)}
    texts = [text_of(source) for _ in range(1 + source.below(3))]
    conditions = []
    for text in texts:
        try:
            conditions.append(compile_condition("one", text))
        except InvalidExpression as error:
            message = str(error)
            assert _PLACE.match(message), message
            assert "\n" not in message
            assert len(message) < 3000
    if not conditions:
        return
    try:
        before = orjson.dumps(request)
    except TypeError:
        return  # nests deeper than can be written here
    result = _evaluate(conditions, request)
    assert orjson.dumps(request) == before, "it changed the object"
    again = _evaluate(conditions, request)
    assert again == result
    if isinstance(result, Failed):
        assert result.reason is FailureReason.CONDITION
        assert result.cause
    else:
        assert result is None or isinstance(result, Excluded)


def _evaluate(conditions: list[Any], request: dict[str, Any]) -> Evaluated:
    """Return the result, after all its tasks."""
    seen = ConditionInput(request, request.get("object"), request.get("oldObject"))
    decisions: dict[AccessCheck, AccessDecision] = {}
    result: Evaluated = CompiledConditions(conditions).evaluate(seen, decisions)
    while isinstance(result, Unresolved):
        assert not set(result.checks) & set(decisions), "a check with a known decision"
        decisions.update((check, AccessDecision(allowed=len(check.spec) % 2 == 0)) for check in result.checks)
        if result.evaluation is not None:
            result = result.evaluation()
        else:
            result = CompiledConditions(conditions).evaluate(seen, decisions)
    return result


def text_of(source: Source) -> str:
    """Return an expression made of pieces of others, or text as it is."""
    if source.chance(4):
        return source.take(source.byte()).decode(errors="surrogateescape")
    text = source.one_of(EXPRESSIONS)
    for _ in range(source.below(4)):
        at = source.below(len(text) + 1)
        other = source.one_of(_PARTS)
        text = text[:at] + other + text[at + source.below(len(other) + 1) :]
    return text


def seeds() -> Iterator[bytes]:
    yield b""
    for number, expression in enumerate(EXPRESSIONS[::7]):
        encoded = expression.encode()[:250]
        yield bytes([0, 0, 3, len(encoded)]) + encoded
        yield bytes([1, number % 256, 3, 0, 0, number >> 8, number % 256, number % 4, 5, 6, 7])

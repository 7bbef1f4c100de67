"""Texts that are not conditions are refused, with position and reason."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.program.code import Built, constant_code, rests_of
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.conditions import ConditionInput, Excluded, Unresolved
from gateway.pure.core.verdict import Failed
from tests.cel.expressions import EXPRESSIONS, REQUEST

WORDS = [
    *(
        "object",
        "oldObject",
        "request",
        "authorizer",
        "null",
        "true",
        "x",
        "y",
        "'a'",
        '"b"',
        "b'c'",
        "1",
        "1u",
        "1.5",
    ),
    *(
        "-1",
        "r'\\'",
        "'''a'''",
        "`a-b`",
        "//",
        "\n",
        ".",
        ".?",
        "[",
        "]",
        "[?",
        "(",
        ")",
        "{",
        "}",
        ",",
        ":",
        "?",
    ),
    *(
        "&&",
        "||",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "<",
        "<=",
        ">",
        ">=",
        "==",
        "!=",
        "in",
        ".all(",
        ".exists(",
        ".map(",
    ),
    *(
        ".filter(",
        ".optMap(",
        ".sortBy(",
        ".transformMap(",
        "has(",
        "size(",
        "type(",
        "int(",
        "string(",
        "duration(",
    ),
    *("timestamp(", "quantity(", ".orValue(", ".matches(", ".format(", "x,", ".name", ".spec"),
]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "1:1: syntax error: unexpected end of the expression"),
        ("1 +", "1:4: syntax error: unexpected end of the expression"),
        ("(true", "1:6: syntax error: unexpected end of the expression, expected ')'"),
        ("true ? false", "1:13: syntax error: unexpected end of the expression, expected ':'"),
        ("a b", "1:3: syntax error: unexpected 'b'"),
        ("'abc", '1:1: syntax error: unexpected "\'"'),
        ("true &&\n nothing", "2:2: undeclared reference to 'nothing' (in container '')"),
        ("object", "1:1: must evaluate to bool but got dyn"),
        ("'a'", "1:1: must evaluate to bool but got string"),
        ("object.spec.paused", "1:12: must evaluate to bool but got dyn"),
        ("1 == 'a'", "1:3: found no matching overload for '_==_' applied to '(int, string)'"),
        ("request.nothing == ''", "1:8: undefined field 'nothing'"),
        ("request.name.length == 1", "1:13: type 'string' does not support field selection"),
        ("[1, 'a'] == []", "1:5: expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'} == {}", "1:15: expected type 'int' but found 'string'"),
        ("duration('1x') == duration('1s')", "1:10: invalid duration argument"),
        ("timestamp('now') == timestamp('now')", "1:11: invalid timestamp argument"),
        ("'a'.matches('[')", "1:13: invalid matches argument: error parsing regexp: missing closing ]: `[`"),
        ("int('a') == 1", "1:5: type conversion error from 'string' to 'int'"),
        ("has(object)", "1:5: invalid argument to has() macro"),
        ("[1].all(x.y, true)", "1:10: argument must be a simple name"),
        ("[1].all(x, x, true)", "1:12: duplicate variable name: x"),
        ("'a'.all(x, true)", "1:1: expression of type 'string' cannot be range of a macro"),
        ("[1].all(x, 1)", "1:12: expected type 'bool' but found 'int'"),
        ("cel.bind(x, 1, x == 1)", "1:10: undeclared reference to 'x' (in container '')"),
        ("for == 1", "1:1: reserved identifier: for"),
        ("9223372036854775808 == 1", "1:1: invalid int literal"),
        ("1e999 == 1.0", "1:1: invalid double literal"),
        ("b'\\u00e9' == b''", "1:1: unable to unescape string"),
    ],
)
def test_problems_have_their_place(expression: str, problem: str) -> None:
    with pytest.raises(InvalidExpression) as raised:
        compile_condition("c", expression)

    assert str(raised.value).startswith(problem)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "true" + ")" * 10_000,
        "[" * 10_000 + "]" * 10_000 + " == []",
        "{'a':" * 10_000,
        "object" + ".a" * 10_000 + " == 1",
        "object" + "[0]" * 10_000 + " == 1",
        "1" + " + 1" * 10_000 + " == 1",
        "true ? true : " * 10_000 + "true",
        "[1].all(x, " * 10_000 + "true" + ")" * 10_000,
        "size(" * 10_000 + "''" + ")" * 10_000 + " == 1",
        "(" * 60 + "1" + (" + 1" * 200 + ")") * 60 + " == 1",
        "'" + "a" * 200_000 + "' == ''",
        "[1]" + "".join(f".map(v{n}, {{v{n}: v{n}}})" for n in range(40)) + " == []",
        "".join(f"[].all(p{n}, " for n in range(51))
        + " && ".join(f"p{n} == {{p{n + 1}: p{n + 1}}}" for n in reversed(range(50)))
        + ")" * 51,
    ],
    ids=lambda text: text[:12],
)
def test_depth_and_length_are_bounded(expression: str) -> None:
    with pytest.raises(InvalidExpression, match=r"nested too deep|in a row|characters|too large"):
        compile_condition("c", expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 100 + "true" + ")" * 100,
        "object" + ".a" * 100 + " == 1",
        "1" + " + 1" * 200 + " == 201",
        "true" + " && true" * 5_000,
        "!" * 10_000 + "true",
        "[1].all(x, " * 50 + "true" + ")" * 50,
    ],
    ids=lambda text: text[:12],
)
def test_ordinary_expressions_are_not_too_deep(expression: str) -> None:
    compile_condition("c", expression)


def test_equal_expressions_are_compiled_once() -> None:
    first, second = (compile_condition(name, "object.once == 1") for name in ("a", "b"))

    assert first.program is second.program
    assert (first.name, second.name) == ("a", "b")


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join))
def test_any_expression_compiles_or_is_refused(expression: str) -> None:
    _take_or_refuse(expression)


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_refused(expression: str) -> None:
    _take_or_refuse(expression)


@given(st.sampled_from(EXPRESSIONS), st.integers(0), st.integers(0), st.sampled_from(WORDS))
def test_an_expression_with_a_replaced_part_compiles_or_is_refused(
    expression: str, start: int, length: int, word: str
) -> None:
    start %= len(expression) + 1
    _take_or_refuse(expression[:start] + word + expression[start + length % 8 :])


def _take_or_refuse(expression: str) -> None:
    """Any text has a result or is refused, and raises nothing else."""
    with contextlib.suppress(InvalidExpression):
        conditions = CompiledConditions([compile_condition("c", expression)])
        result = conditions.evaluate(ConditionInput(REQUEST, REQUEST["object"], REQUEST["oldObject"]), {})
        assert result is None or isinstance(result, Excluded | Failed | Unresolved)


def test_a_message_is_bounded() -> None:
    with pytest.raises(InvalidExpression) as raised:
        compile_condition("c", "z" * 100_000)
    assert len(str(raised.value)) < 1100
    assert str(raised.value).startswith("1:1: undeclared reference to 'zzz")


def test_the_costs_after_each_part_are_summed_once() -> None:
    """A list of the longest expression has 50,000 parts; as many sums took minutes."""
    part = Built(constant_code(1), 2)
    assert rests_of([part, part, part]) == [4, 2, 0]
    assert rests_of([part] * 1_000_000)[0] == 1_999_998

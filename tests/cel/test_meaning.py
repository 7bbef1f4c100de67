"""Over any objects, conditions decide what their expressions mean.

The reference is a direct reading of the language: an expression is a tree of tuples, with a meaning.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel.compile import compile_condition
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.conditions import ConditionInput, Excluded
from gateway.pure.core.verdict import Failed

KEYS = ["a", "b", "c"]
SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.0]) | st.sampled_from(KEYS)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)

Tree = tuple[Any, ...]


class Error(Exception):
    """An expression without a value."""


def _paths(variables: list[str]) -> st.SearchStrategy[Tree]:
    def extended(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.tuples(st.just("select"), inner, st.sampled_from(KEYS)) | st.tuples(
            st.just("index"), inner, st.integers(-1, 2)
        )

    return st.recursive(st.tuples(st.just("variable"), st.sampled_from(variables)), extended, max_leaves=3)


def _conditions(variables: list[str], depth: int) -> st.SearchStrategy[Tree]:
    path = _paths(variables)
    constant = st.tuples(st.just("constant"), SCALARS)
    leaves = st.one_of(
        st.tuples(st.just("=="), path, path | constant),
        st.tuples(
            st.sampled_from(["<", "<=", ">", ">="]), path, st.tuples(st.just("constant"), st.integers(-3, 3))
        ),
        st.tuples(st.just("has"), path, st.sampled_from(KEYS)),
        st.tuples(st.just("in"), constant, path),
        st.tuples(st.just("constant"), st.booleans()),
    )
    if not depth:
        return leaves
    inner = _conditions(variables, depth - 1)
    within = _conditions([*variables, f"v{depth}"], depth - 1)
    return st.one_of(
        leaves,
        st.tuples(st.sampled_from(["&&", "||"]), inner, inner),
        st.tuples(st.just("!"), inner),
        st.tuples(st.just("?"), inner, inner, inner),
        st.tuples(st.sampled_from(["all", "exists", "exists_one"]), path, st.just(f"v{depth}"), within),
    )


def text(tree: Tree) -> str:
    match tree:
        case ("variable", name):
            return str(name)
        case ("constant", value):
            return f"dyn({json.dumps(value)})"
        case ("select", operand, key):
            return f"{text(operand)}.{key}"
        case ("index", operand, number):
            return f"{text(operand)}[{number}]"
        case ("has", operand, key):
            return f"has({text(operand)}.{key})"
        case ("!", operand):
            return f"!({text(operand)})"
        case ("?", condition, yes, no):
            return f"(({text(condition)}) ? ({text(yes)}) : ({text(no)}))"
        case ("all" | "exists" | "exists_one" as macro, over, name, body):
            return f"{text(over)}.{macro}({name}, {text(body)})"
    operator, left, right = tree
    return f"(({text(left)}) {operator} ({text(right)}))"


def meaning(tree: Tree, names: dict[str, Any]) -> Any:  # noqa: C901 - one case for each construct
    match tree:
        case ("variable", name):
            return names[name]
        case ("constant", value):
            return value
        case ("select", operand, key):
            value = meaning(operand, names)
            if isinstance(value, dict) and key in value:
                return value[key]
            raise Error
        case ("index", operand, number):
            value = meaning(operand, names)
            if isinstance(value, list) and 0 <= number < len(value):
                return value[number]
            raise Error
        case ("has", operand, key):
            value = meaning(operand, names)
            if isinstance(value, list):
                raise Error
            return isinstance(value, dict) and key in value
        case ("!", operand):
            return not _bool(meaning(operand, names))
        case ("?", condition, yes, no):
            return meaning(yes if _bool(meaning(condition, names)) else no, names)
        case ("&&", left, right):
            return _joined([(left, names), (right, names)], decisive=False)
        case ("||", left, right):
            return _joined([(left, names), (right, names)], decisive=True)
        case ("all" | "exists" | "exists_one" as macro, over, name, body):
            items = meaning(over, names)
            if not isinstance(items, list | dict):
                raise Error
            scopes = [(body, {**names, name: item}) for item in items]
            if macro == "exists_one":
                return [_bool(meaning(*scope)) for scope in scopes].count(True) == 1
            return _joined(scopes, decisive=macro == "exists")
        case ("==", left, right):
            return _same(meaning(left, names), meaning(right, names))
        case ("in", wanted, over):
            value, items = meaning(wanted, names), meaning(over, names)
            if not isinstance(items, list | dict):
                raise Error
            return any(_same(item, value) for item in items)
    operator, left, right = tree
    first, second = meaning(left, names), meaning(right, names)
    if isinstance(first, bool) or not isinstance(first, int | float):
        raise Error
    return {"<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}[operator]


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Error


def _joined(scopes: list[tuple[Tree, dict[str, Any]]], *, decisive: bool) -> bool:
    failed = False
    for tree, names in scopes:
        try:
            if _bool(meaning(tree, names)) is decisive:
                return decisive
        except Error:
            failed = True
    if failed:
        raise Error
    return not decisive


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return bool(left == right)


@given(_conditions(["object", "oldObject"], 2), OBJECTS, OBJECTS | st.none())
def test_a_condition_decides_like_its_meaning_in_python(tree: Tree, current: Any, old: Any) -> None:
    condition = compile_condition("c", f"({text(tree)}) == true")
    result = CompiledConditions([condition]).evaluate(ConditionInput({}, current, old), {})

    try:
        expected = meaning(tree, {"object": current, "oldObject": old})
    except Error:
        assert isinstance(result, Failed)
    else:
        assert result == (None if expected else Excluded("c"))

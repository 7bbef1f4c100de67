"""What expressions read of their parameters: they cannot tell an object with only that from the whole one."""

from __future__ import annotations

import json
import random
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.pure.cel.authorizer import Authorizer, ResourceCheck
from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.environment import policy_environment
from gateway.pure.cel.errors import CostExceeded, EvaluationError, InvalidExpression
from gateway.pure.cel.meter import BRIEF_LIMIT, begin, cost_so_far
from gateway.pure.cel.paths import WHOLE, Pruner, covers, joined
from gateway.pure.cel.reads import MAX_KEYS
from gateway.pure.conditions.match_conditions import KnownDecisions, request_variable
from gateway.pure.openapi.go_types import InMutations
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.grammar import draw_expression
from tests.cel.typed import NAMESPACE, POD, TYPED_EXPRESSIONS

if TYPE_CHECKING:
    from gateway.pure.cel.compile import Expression

ENVIRONMENT: Final = policy_environment({}, has_params=True)
ALWAYS: Final = [("apiVersion",), ("kind",)]
"""What is kept of every object."""
OBJECT: Final = {
    **REQUEST["object"],
    "spec": {**REQUEST["object"]["spec"], "deep": {"a": {"b": [1], "c": {}}}},
}
KEYS: Final = st.sampled_from(["a", "b", "", "data"])
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(KEYS, below, max_size=3),
    max_leaves=8,
)
PATHS: Final = st.lists(st.lists(KEYS, max_size=3).map(tuple), max_size=4)


def of_params(expression: str) -> str:
    """Return *expression* with ``params`` in place of ``object``."""
    return re.sub(r"\bobject\b", "params", expression)


def paths(expression: str) -> set[str]:
    """Return the paths that *expression* reads, with dots."""
    return {".".join(path) for path in compile_expression(expression, ENVIRONMENT).param_paths}


def outcome(compiled: Expression, params: object, types: object) -> tuple[str, float]:
    """Return the value or the error, and the cost."""
    authorizer = Authorizer(KnownDecisions().decide, {})
    frame: list[object] = [
        *(None, None, request_variable(REQUEST), NAMESPACE, authorizer, ResourceCheck(authorizer, {})),
        *(params, None, types, None),
        *[None] * compiled.program.slots,
    ]
    return evaluated(compiled, frame)


def evaluated(compiled: Expression, frame: list[object]) -> tuple[str, float]:
    """Return the value or the error of *compiled* for *frame*, and the cost."""
    begin()
    try:
        result = repr(compiled.evaluate(frame, 2 * BRIEF_LIMIT))
    except (EvaluationError, CostExceeded) as error:
        result = str(error)
    return re.sub(r" at 0x\w+", "", result), cost_so_far()


def check(expression: str, params: dict[str, Any]) -> None:
    """Check that *expression* has the same result for *params* as for what it reads of them."""
    try:
        compiled = compile_expression(expression, ENVIRONMENT)
    except InvalidExpression:
        return
    pruned = Pruner(joined([compiled.param_paths, ALWAYS])).pruned(params)
    if pruned == params:
        return
    for has_source in (False, True):
        if has_source:
            compiled.program.use_source()
        for types in (None, InMutations()):
            found = outcome(compiled, pruned, types)
            assert found == outcome(compiled, params, types), (expression, pruned)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("params.data.limit == '1'", {"data.limit"}),
        ("params.data['a-b'] + params.data.`c-d`", {"data.a-b", "data.c-d"}),
        ("has(params.data) && has(params.data.limit)", {"data.", "data.limit."}),
        ("has(params.data.limit) ? params.data.limit : params.data.other", {"data.limit", "data.other"}),
        ("'limit' in params.data && int(params.data.limit) < 3", {"data.limit"}),
        ("params.?data.limit.orValue('')", {"data.limit"}),
        ("params.?data[?'limit'].optMap(x, x + 'a')", {"data.limit"}),
        ("params.data[request.name]", {"data"}),
        ("request.name in params.data", {"data"}),
        ("params.spec.names[0]", {"spec.names"}),
        ("params.spec.names.exists(x, x.name == params.data.a)", {"spec.names", "data.a"}),
        ("params.data.all(k, k != '')", {"data"}),
        ("size(params.data) + params.spec.size()", {"data", "spec"}),
        ("(params.data.a == '' ? params.data : params.spec).b", {"data", "spec"}),
        ("params.metadata.name == 'a'", {"metadata.name"}),
        ("params.spec.a.b == 1 && params.spec.a == {}", {"spec.a"}),
        (".params.data.a", {"data.a"}),
        ("[1].exists(x, x == .params.data.a)", {"data.a"}),
        ("params != null && null != params", set()),
        ("params.data != null", {"data"}),
        ("params == object", {""}),
        ("[params]", {""}),
        ("{'a': params.data}", {"data"}),
        ("object.params.data == request.name", set()),
        ("'a' in [params.data.b]", {"data.b"}),
        ("params[true]", {""}),
        ("[2, 1].sortBy(x, params.spec.order)", {"spec.order"}),
        ("params" + ".a" * (MAX_KEYS + 9), {".".join("a" * MAX_KEYS)}),
    ],
)
def test_the_paths_that_an_expression_reads(expression: str, expected: set[str]) -> None:
    assert paths(expression) == expected


@pytest.mark.parametrize("part", range(4))
def test_expressions_have_the_same_outcome_and_cost_for_what_they_read(part: int) -> None:
    for expression in EXPRESSIONS[part::4]:
        check(of_params(expression), deepcopy(OBJECT))
    for expression in TYPED_EXPRESSIONS[part::4]:
        check(of_params(expression), deepcopy(POD))


@given(seed=st.integers(0, 2**32), is_pod=st.booleans())
def test_drawn_expressions_have_the_same_outcome_and_cost_for_what_they_read(seed: int, is_pod: bool) -> None:
    params = POD if is_pod else OBJECT
    request = {**REQUEST, "object": params, "oldObject": params}
    expression = draw_expression(random.Random(seed), request).replace("oldObject", "object")
    check(of_params(expression), deepcopy(params))


@given(document=st.dictionaries(KEYS, VALUES), path=st.lists(KEYS, min_size=1, max_size=3), data=st.data())
@example(document={"a": []}, path=["a", "b"], data=None)
def test_selections_of_any_object_have_the_same_outcome_for_what_they_read(
    document: dict[str, Any], path: list[str], data: st.DataObject | None
) -> None:
    """Whether there are such parts or not, and whatever is in their place."""
    forms = ["[{!r}]", "[?{!r}]", "has", "in"]
    expression = "params"
    for key in path:
        form = forms[0] if data is None else data.draw(st.sampled_from(forms[:2]))
        expression += form.format(key)
    last = "has" if data is None else data.draw(st.sampled_from(["has", "in", "value"]))
    if last == "has":
        expression = f"has({expression}.a)"
    elif last == "in":
        expression = f"'a' in dyn({expression})" if "?" in expression else f"'a' in {expression}"
    check(expression, {**document, "apiVersion": "v1", "kind": "ConfigMap"})


@given(document=st.dictionaries(KEYS, VALUES), one=PATHS, other=PATHS)
def test_what_is_kept_for_all_has_what_is_kept_for_each(
    document: dict[str, Any], one: list[tuple[str, ...]], other: list[tuple[str, ...]]
) -> None:
    both = joined([one, other])
    before = json.dumps(document)
    kept = Pruner(both).pruned(document)
    assert json.dumps(document) == before
    for paths_of_one in map(joined, ([one], [other])):
        assert covers(both, paths_of_one)
        assert Pruner(paths_of_one).pruned(kept) == Pruner(paths_of_one).pruned(document)
    assert covers(WHOLE, both)
    assert covers(both, WHOLE) == (both == WHOLE)

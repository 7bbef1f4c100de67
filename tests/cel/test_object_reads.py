"""What expressions read of other objects: they cannot tell an object with only that from the whole one."""

from __future__ import annotations

import random
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.environment import SLOTS, policy_environment
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.libraries.cluster_objects import ClusterObjects
from gateway.pure.cel.object_reads import ANY, ENTRY, object_reads
from gateway.pure.cel.paths import WHOLE, Pruner, joined
from gateway.pure.conditions.match_conditions import request_variable
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.grammar import draw_expression
from tests.cel.test_reads import evaluated
from tests.cel.typed import NAMESPACE, POD, TYPED_EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.cel.compile import Expression

    Json = dict[str, Any]

ENVIRONMENT: Final = policy_environment({}, has_params=False, has_authorizer=False)
POD_OF_LIST: Final = "resource.list('v1', 'pods', 'a')"
ONE: Final = "resource.get('v1', 'configmaps', 'a', 'b')"
ALWAYS: Final = [("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")]
"""What is kept of every object."""


def reads(expression: str, variables: dict[str, str] | None = None) -> dict[str, set[str]]:
    """Return the paths that *expression* reads, with dots, by plural name."""
    found = object_reads([expression], variables or {})
    return {plural: {".".join(path) for path in paths} for (_, plural), paths in found.items()}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("get.data.a == '1'", {"data.a"}),
        ("get != null", set()),
        ("get.data == null", {"data"}),
        ("has(get.data.a)", {"data.a."}),
        ("'a' in get.data", {"data.a."}),
        ("get.?data.?a.orValue('') == ''", {"data.a"}),
        ("get.?data.hasValue()", {"data."}),
        ("get.?data.optMap(x, true).orValue(false)", {"data."}),
        ("get.data[request.name]", {"data"}),
        ("get.spec.names.exists(x, x == 'a')", {"spec.names"}),
        ("(true ? get : null).data.a", {"data.a"}),
        ("[get][0].data.a", {"data.a"}),
        ("{'a': get}.a.data", {""}),
        ("get == object", {""}),
        ("string(get.data.a) + 'b'", {"data.a"}),
        ("size(get.data)", {"data"}),
        ("list.items.size() == 0 && size(list.items) < 3 && list.items != null", set()),
        ("list.kind", set()),
        ("list.items.all(i, i.spec.a == 1 && has(i.spec.b))", {"spec.a", "spec.b."}),
        ("list.items.filter(i, i.spec.a == 1).size()", {"spec.a"}),
        ("list.items.filter(i, i.spec.a == 1).map(i, i.spec.b)", {"spec.a", "spec.b"}),
        ("list.items.filter(i, i.a == 1)[0].b", {"a", "b"}),
        ("list.items.map(i, i)[0].b", {"b"}),
        ("(list.items + list.items).exists(i, i.a == 1)", {"a"}),
        ("list.items.exists(i, v, v.a == i)", {"a"}),
        ("list.items.transformMap(k, v, v.a)", {"a"}),
        ("list.items == []", {""}),
        ("[list].all(l, l.items.all(i, i.a))", {""}),
        ("list == null", set()),
        ("resource.list('v1', 'x', '', {'a': 'b'}).items.size()", {"metadata.labels"}),
        ("[1].all(resource, resource == 1)", None),
        ("[resource] == []", {"": {""}}),
        ("[1].all(x, .resource.get('v1', 'x', '', '').a == x)", {"a"}),
        ("cel.bind(x, get, x.a == x.b)", {"a", "b"}),
        ("get" + ".a" * 40, {".".join("a" * 32)}),
    ],
)
def test_the_paths_that_an_expression_reads(
    expression: str, expected: set[str] | dict[str, set[str]] | None
) -> None:
    expression = re.sub(r"\bget\b(?!\()", "resource.get('v1', 'x', '', 'n')", expression)
    expression = re.sub(r"\blist\b(?!\()", "resource.list('v1', 'x', '')", expression)
    assert reads(expression) == (
        {} if expected is None else expected if isinstance(expected, dict) else {"x": expected}
    )


def test_values_are_followed_through_the_variables_of_a_policy() -> None:
    variables = {
        "pods": "resource.List('v1', 'pods', object.metadata.namespace)",
        "mine": "variables.pods.items.filter(p, p.spec.nodeName == 'a')",
        "unused": "resource.Get('v1', 'nodes', '', 'a')",
    }
    expression = "variables.mine.all(p, p.status.phase == 'Running')"
    assert reads(expression, variables) == {"pods": {"metadata.labels", "spec.nodeName", "status.phase"}}
    # The name is that of a macro's variable here.
    assert reads("[object].all(variables, variables.mine)", variables) == {}
    assert reads("[object].all(variables, .variables.mine == [])", variables) == {"pods": {""}}


def test_a_kind_is_known_by_the_constants_of_to_gvr() -> None:
    gvr = "resource.toGVR('v1', 'Pod')"
    variables = {"gvr": gvr, "other": "object.gvr", "none": "resource.ToGVR(object.version, 'Pod')"}
    whole = f"resource.list({gvr}, '', {{'a': 'b'}}).items.size() == 0 && {gvr} != resource.ToGVR('v1', 'X')"
    assert reads(whole, variables) == {"Pod": {"metadata.labels"}}
    for first, expected in (
        (gvr, "Pod"),
        ("variables.gvr", "Pod"),
        ("variables.other", ""),
        ("variables.none", ""),
    ):
        assert reads(f"resource.get({first}, 'a', 'b').spec.a == 1", variables) == {expected: {"spec.a"}}
        # A policy of one namespace names neither that nor a name.
        found = reads(f"resource.List({first}).items.all(i, i.spec.a)", variables)
        assert found == {expected: {"spec.a"}}
    hidden = "[object].all(resource, resource.toGVR('v1', 'Pod') == resource)"
    assert reads(hidden, variables) == {}
    assert reads("[1].all(variables, .resource.get(variables.gvr, 'a', 'b').c)", variables) == {"": {"c"}}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("globalContext.get('e').exists(x, x.metadata.name == 'a')", {"e": {"metadata.name"}}),
        ("globalContext.Get('e', '')[0].spec.a == 1", {"e": {"spec.a"}}),
        ("globalContext.get('e') == null || globalContext.get('f').size() == 0", {"e": set(), "f": set()}),
        ("globalContext.get(object.e).all(x, x.a)", {"": {"a"}}),
        ("dyn(globalContext).get('e').all(x, x.a)", {"": {""}}),
        ("string(globalContext.get('e')) == ''", {"e": {""}}),
        ("[1].all(globalContext, globalContext == 1)", {}),
        ("variables.found.filter(x, x.a == 1).map(x, x.b)", {"e": {"a", "b"}}),
    ],
)
def test_the_objects_of_entries_are_followed(expression: str, expected: dict[str, set[str]]) -> None:
    found = object_reads([expression], {"found": "globalContext.get('e')", "other": "1"})
    assert {version for version, _ in found} <= {ENTRY}
    assert reads(expression, {"found": "globalContext.get('e')"}) == expected


def test_a_kind_that_no_constant_names_may_be_any() -> None:
    assert object_reads(["resource.get('v1', object.kind, '', '').spec"], {}) == {ANY: joined([[("spec",)]])}


def test_what_is_nested_too_deeply_to_be_followed_counts_as_read() -> None:
    expression = f"{ONE}.a{' + 1' * 250}"
    found = object_reads([expression], {})
    # It depends on how deep the call itself is nested.
    assert found in ({ANY: WHOLE}, {("v1", "configmaps"): joined([[("a",)]])})


def outcome(compiled: Expression, found: Json) -> tuple[str, float]:
    """Return the value or the error, and the cost, if *found* is the only object."""
    frame: list[object] = [None] * (len(SLOTS) + compiled.program.slots)
    frame[SLOTS["request"]], frame[SLOTS["namespaceObject"]] = request_variable(REQUEST), NAMESPACE
    frame[SLOTS["resource"]] = ClusterObjects(
        lambda *_: found,
        lambda *_: {"kind": "List", "items": [found, {**found, "kind": "Other"}]},
        lambda *_: {},
        lambda *_: None,
        lambda *_: {},
    )
    return evaluated(compiled, frame)


def check(expression: str, found: Json) -> None:
    """Check that *expression* has the same result for *found* as for what it reads of it."""
    try:
        compiled = compile_expression(expression, ENVIRONMENT)
    except InvalidExpression:
        return
    paths = joined(object_reads([expression], {}).values())
    pruned = Pruner(joined([paths, ALWAYS])).pruned(found)
    assert outcome(compiled, pruned) == outcome(compiled, found), (expression, pruned)


FORMS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: re.sub(r"\bobject\b", ONE, text),
    lambda text: re.sub(r"\bobject\b", f"{POD_OF_LIST}.items[0]", text),
    lambda text: f"{POD_OF_LIST}.items.filter(object, object.kind != 'Other').map(object, {text})",
    lambda text: f"{POD_OF_LIST}.items.exists(object, {text})",
    lambda text: f"{POD_OF_LIST}.items.map(o, [o]).exists(o, o.exists(object, {text}))",
    lambda text: f"{POD_OF_LIST}.items.exists(i, object, {POD_OF_LIST}.items.exists(o, {text}))",
    lambda text: f"{POD_OF_LIST}.items.sortBy(o, o.kind).exists(object, {text})",
    lambda text: f"{POD_OF_LIST}.items.transformMapEntry(i, object, {{i: {text}}}) == {{}}",
    lambda text: f"optional.of({ONE}).optMap(object, {text}).orValue(false)",
    lambda text: f"{{'k': {ONE}}}.all(k, object, {text})",
)
"""The object of an expression becomes one that is read."""


@pytest.mark.parametrize("form", FORMS)
def test_expressions_have_the_same_outcome_and_cost_for_what_they_read(form: Callable[[str], str]) -> None:
    for expression in EXPRESSIONS:
        check(form(expression), deepcopy(REQUEST["object"]))
    for expression in TYPED_EXPRESSIONS:
        check(form(expression), deepcopy(POD))


@given(seed=st.integers(0, 2**32), is_pod=st.booleans(), form=st.sampled_from(FORMS))
def test_drawn_expressions_have_the_same_outcome_and_cost_for_what_they_read(
    seed: int, is_pod: bool, form: Callable[[str], str]
) -> None:
    found = POD if is_pod else REQUEST["object"]
    request = {**REQUEST, "object": found, "oldObject": found}
    expression = draw_expression(random.Random(seed), request).replace("oldObject", "object")
    check(form(expression), deepcopy(found))

"""The Python source of a program does what its closures do: same value, error and cost, or it gives up."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.pure.cel.authorizer import Authorizer, ResourceCheck
from gateway.pure.cel.compile import Expression, compile_expression
from gateway.pure.cel.dialects import KYVERNO
from gateway.pure.cel.environment import policy_environment
from gateway.pure.cel.errors import CostExceeded, EvaluationError, InvalidExpression
from gateway.pure.cel.lazy import LazyVariables
from gateway.pure.cel.meter import EXPRESSION_LIMIT, METER, cost_so_far, start
from gateway.pure.cel.program.source import all_true_source, inlinable
from gateway.pure.cel.values import Optional, Struct
from gateway.pure.conditions.match_conditions import KnownDecisions
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.grammar import draw_expression
from tests.kit import REVIEWS

if TYPE_CHECKING:
    from gateway.pure.cel.functions import Environment
    from gateway.pure.cel.program.code import Built

REQUESTS: Final = [json.loads(file.read_bytes())["request"] for file in sorted(REVIEWS.glob("*.json"))]
VARIABLES: Final[dict[str, Expression]] = {}
for name, text in {
    "v": "object.metadata.name.size()",
    "names": "object.spec.containers.filter(c, c.name != 'b').map(c, c.name)",
    "w": "variables.names.exists(c, c.size() == variables.v) || variables.v > 2",
    "texts": "['a', 'nginx', 'x']",
    # Without a source of its own.
    "closure": "object.?metadata.?labels[?'app'].orValue('')",
}.items():
    known = {known: each.type for known, each in VARIABLES.items()}
    VARIABLES[name] = compile_expression(text, policy_environment(known or None, has_params=True))
    VARIABLES[name].program.use_source()
ENVIRONMENT: Final = policy_environment(
    {name: each.type for name, each in VARIABLES.items()}, has_params=True, has_structs=True
)
OF_KYVERNO: Final = policy_environment(
    {name: each.type for name, each in VARIABLES.items()}, has_params=False, dialect=KYVERNO
)
USUAL: Final = (
    "has({o}.spec) && has({o}.spec.containers) && {o}.spec.containers.all(c, {c})",
    "{o}.spec.containers.exists(c, {c}) || {o}.metadata.name != 'a'",
    "{o}.spec.containers.exists_one(c, {c}) ? variables.v > 2 : {o}.metadata.name.size() in [1, 2, 7]",
    "{o}.spec.containers.filter(c, {c}).size() >= {n}",
    "{o}.spec.containers.map(c, {c}, c.name).all(n, n.startsWith('c') && n.size() < 20)",
    "{o}.?metadata.?labels.?app.orValue('x') != {s} && {o}.?spec.?none.hasValue() == false",
    "{o}.metadata.labels.all(k, k.contains('a') || {o}.metadata.labels[k] == {s})",
    "{o}.spec.containers.all(c, {c} || variables.names.exists(n, n == c.name)) && variables.w",
    "variables.v > {n} || variables.w || variables.names.all(c, c in ['a', {s}] || variables.v == c.size())",
    "({o}.?spec.?none.orValue([]) + {o}.spec.containers + [{n}]).all(c, c == {n} || {c})",
    "{o}.metadata.name + {s} != 'a' && {n} + {o}.spec.containers.size() < {o}.metadata.name.size() + 9",
    "{o}.metadata.name in variables.texts || {o}.spec.containers.all(c, c.name + {s} in variables.texts)",
    "variables.closure == {s} || variables.names == [{s}] || variables.v == {n}",
    "variables.v == {n} || params == null || {o}.spec.containers.all(c, c.?resources.?limits.cpu.hasValue())",
)
MUTATIONS: Final = (
    "Object{metadata: Object.metadata{labels: {{s}: {o}.metadata.name, 'b': dyn({s})}}}",
    "Object{spec: Object.spec{containers: {o}.spec.containers.map(c, Object.spec.containers{name: c.name})}}",
    "[JSONPatch{op: 'add', path: '/spec/' + {o}.metadata.name, value: {'a': {o}.spec, {s}: {list}}}]",
    "{o}.spec.containers.filter(c, {c}).map(c, JSONPatch{op: c.name, path: c.image, value: {c.name: c}})",
    "has({o}.spec) ? [] : [JSONPatch{op: {o}.metadata.name, path: {s}, value: {o}.?spec.orValue({})}]",
    "{o}.spec.containers.map(c, {?c.?name.orValue('x'): c.?image, c.image: dyn(Object{?spec: c.?args})})",
    "[JSONPatch{op: 'add', path: dyn({list}), value: {n}}, JSONPatch{path: {o}.metadata.labels}]",
    "{{o}.metadata.name: 1, dyn({s}): 2, dyn({s}): 3}",
)
OF_CONTAINER: Final = (
    "has(c.securityContext) && c.securityContext.privileged", "!c.image.endsWith(':latest')", "c.name == {s}",
    "'cpu' in c.resources.limits", "c.ports.all(p, p.containerPort > {n})", "has(c.resources)", "true",
    "c.env.exists(e, e.name in ['A', 'B'] || e.value == {s})",
    "c.image.matches('^[a-z]+')", "size(c.args) == {n}", "c.?securityContext.?privileged.orValue(false)",
    "c.ports.map(p, p.containerPort) == [{n}]",
)  # fmt: skip


def drawn(draw: random.Random, text: str) -> str:
    text = text.replace("{list}", "dyn([dyn({n}), {o}.spec.containers[0]])")
    text = text.replace("{c}", draw.choice(OF_CONTAINER)).replace("{o}", draw.choice(("object", "oldObject")))
    return text.replace("{n}", str(draw.randrange(4))).replace("{s}", draw.choice(("'a'", "'nginx'", "''")))


def edited(draw: random.Random, value: Any) -> Any:
    """Return a copy of *value* with some members of another type, or without them."""
    value = copy.deepcopy(value)
    for _ in range(draw.randrange(4)):
        at = value
        while isinstance(at, dict | list) and at:
            key = draw.choice(sorted(at)) if isinstance(at, dict) else draw.randrange(len(at))
            if draw.random() < 0.25 or not isinstance(at[key], dict | list):
                if draw.random() < 0.5:
                    at[key] = draw.choice([None, 1, True, "a", 0.5, [], {}, ["a"], {"a": 1}])
                else:
                    del at[key]
                break
            at = at[key]
    return value


def inputs(request: dict[str, Any]) -> LazyVariables:
    known = KnownDecisions()
    known.decisions, known.missing = {}, {}
    authorizer = Authorizer(known.decide, {})
    attributes = {"group": "", "resource": "", "subresource": "", "namespace": "", "name": ""}
    return LazyVariables(
        VARIABLES,
        (
            *(request.get("object"), request.get("oldObject"), request, None),
            *(authorizer, ResourceCheck(authorizer, attributes), None, None, None),
        ),
    )


def shown_value(value: object) -> str:
    """Return *value* with the order of its members, and the types of its structs."""
    match value:
        case Struct():
            return f"{value.cel_type}{shown_value(value.fields)}"
        case list():
            return f"[{', '.join(map(shown_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{key!r}: {shown_value(each)}' for key, each in value.items())}}}"
        case Optional():
            return f"{value.present}({shown_value(value.value)})"
    return repr(value)


def evaluated(expression: Expression, code: Any, request: dict[str, Any]) -> tuple[str, float, float, float]:
    lazy = inputs(request)
    frame = lazy.frame(expression.program.slots)
    start(EXPRESSION_LIMIT)
    METER.left -= expression.program.cost
    try:
        shown = f"value {shown_value(code(frame))}"
    except (EvaluationError, CostExceeded) as error:
        shown = f"{type(error).__name__} {error}"
    return shown, cost_so_far(), METER.steps, lazy.take_cost()


def check(text: str, request: dict[str, Any], environment: Environment = ENVIRONMENT) -> int | None:
    """Compare the forms of the expression *text*; return how many sources proved that it is true: up to 2."""
    try:
        expression = compile_expression(text, environment)
    except InvalidExpression:
        return None
    tree = expression.program.tree
    closures = evaluated(expression, tree.code, request)
    expression.program.use_source()
    program = evaluated(expression, expression.program.code, request)
    # What the source does itself takes no steps.
    assert (program[:2], program[3]) == (closures[:2], closures[3]), text
    assert program[2] <= closures[2], text
    together = all_true_source([tree])
    assert together is not None, text
    lazy = inputs(request)
    start(EXPRESSION_LIMIT)
    cost = together.run(lazy.frame(expression.program.slots), EXPRESSION_LIMIT)
    if cost < 0:
        check_refuted(tree, request, expression.program.slots)
        return 0
    assert (closures[0], closures[1]) == ("value True", cost + cost_so_far()), text
    assert lazy.take_cost() == closures[3], text
    start(EXPRESSION_LIMIT)
    assert together.needs_frame or together.run(lazy.frame(0)[:-1], EXPRESSION_LIMIT) == cost, text
    start(EXPRESSION_LIMIT)
    assert together.run(lazy.frame(expression.program.slots), cost - 1) == -1, text
    return 1 + is_proved_inlined(expression, request, closures[1] + closures[3])


def check_refuted(tree: Built, request: dict[str, Any], slots: int) -> None:
    """Check that what is not true is not taken for true if variables are a part of the source."""
    inlined = all_true_source(
        [tree], inlinable({name: each.program.tree for name, each in VARIABLES.items()})
    )
    start(EXPRESSION_LIMIT)
    assert inlined is not None
    assert inlined.run(inputs(request).frame(slots), EXPRESSION_LIMIT) < 0


def is_proved_inlined(expression: Expression, request: dict[str, Any], cost: float) -> bool:
    """Check that *expression* is true at the same *cost* if variables are a part of its source.

    Return False if it gives up, because a variable is unusual that does not decide.
    """
    inlined = all_true_source(
        [expression.program.tree], inlinable({name: each.program.tree for name, each in VARIABLES.items()})
    )
    assert inlined is not None, expression.text
    lazy = inputs(request)
    start(EXPRESSION_LIMIT)
    found = inlined.run(lazy.frame(expression.program.slots), EXPRESSION_LIMIT)
    if found < 0:
        return False
    assert found + cost_so_far() + lazy.take_cost() == cost, expression.text
    start(EXPRESSION_LIMIT)
    assert inlined.needs_frame or inlined.run(lazy.frame(0)[:-1], EXPRESSION_LIMIT) == found
    return True


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(400):
        request = draw.choice(REQUESTS)
        text = draw_expression(draw, request)
        check(text, {**request, "object": edited(draw, request.get("object"))})


def test_expressions_that_people_write() -> None:
    draw = random.Random(0)
    pods = [one for one in REQUESTS if "containers" in ((one.get("object") or {}).get("spec") or {})]
    proved = [
        check(drawn(draw, draw.choice(USUAL)), {**request, "object": edited(draw, request["object"])})
        for request in draw.choices(pods, k=600)
    ]
    assert sum(map(bool, proved)) > 100
    assert proved.count(2) > 0.9 * sum(map(bool, proved))


def test_what_may_not_be_optional() -> None:
    draw = random.Random(2)
    pods = [one for one in REQUESTS if "containers" in ((one.get("object") or {}).get("spec") or {})]
    texts = (
        "{o}.?metadata.?labels.?app.orValue('x') != {s} && {o}.?metadata.name.orValue({s}).size() > {n}",
        "{o}.spec.containers.orValue([]).all(c, {c} || c.?args.orValue([]).size() < {n})",
        "{o}.?spec.?none.orValue({o}.none) == {n} || {o}.spec.?volumes.orValue([]) != [{n}]",
    )
    proved = [
        check(drawn(draw, draw.choice(texts)), {**each, "object": edited(draw, each["object"])}, OF_KYVERNO)
        for each in draw.choices(pods, k=300)
    ]
    assert sum(map(bool, proved)) > 50


def test_expressions_of_mutations() -> None:
    draw = random.Random(1)
    pods = [one for one in REQUESTS if "containers" in ((one.get("object") or {}).get("spec") or {})]
    for text in MUTATIONS:
        for request in draw.choices(pods, k=60):
            found = check(drawn(draw, text), {**request, "object": edited(draw, request["object"])})
            assert found is not None, text


def test_the_expressions_of_the_vectors() -> None:
    for text in EXPRESSIONS:
        check(text, REQUEST)


def test_no_text_of_an_expression_is_part_of_the_source() -> None:
    names = ["__import__('os')", "a\nb", "a'b", 'a"b', "{0}", "\\", "k1", "x0"]
    for name in names:
        for text in (f"object[{json.dumps(name)}] == {json.dumps(name)}", f"{json.dumps(name)} in object"):
            assert check(text, {"object": {name: name}}) == 2


def test_an_expression_without_end_has_closures() -> None:
    """The source is bounded; what exceeds the bound is evaluated by closures."""
    deep = "object.a" + ".all(x, x".join(["", *[""] * 30]) + " > 0" + ")" * 30
    long = " && ".join(f"object.n{number} != 'a'" for number in range(900))
    for text in (deep, long):
        expression = compile_expression(text, ENVIRONMENT)
        expression.program.use_source()
        assert all_true_source([expression.program.tree]) is None
        assert expression.program.code is expression.program.tree.code

"""What the policies of other engines have beside or instead of Kubernetes' environment."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gateway.pure.admission_policies.evaluation import (
    POLICY_LIMIT,
    Allowance,
    AllTrue,
    OutOfBudgetError,
    evaluate_all,
    evaluate_each,
)
from gateway.pure.cel import meter
from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.dialects import CLUSTER_POLICY, GATEKEEPER, KUBERNETES, KYVERNO, Dialect
from gateway.pure.cel.environment import GLOBALS, SLOTS, policy_environment
from gateway.pure.cel.errors import EvaluationError, InvalidExpression
from gateway.pure.cel.types import BOOL, DYN

VALUES: Final[list[object]] = [None] * (len(GLOBALS) - 1)
ALL: Final = (KUBERNETES, KYVERNO, CLUSTER_POLICY, GATEKEEPER)


def evaluated(text: str, dialect: Dialect, **values: object) -> object:
    """Return the value of *text*, with values of global variables."""
    frame = list(VALUES)
    for name, value in values.items():
        frame[SLOTS[name]] = value
    environment = policy_environment(None, has_params=False, dialect=dialect)
    program = compile_expression(text, environment)
    meter.begin()
    return program.evaluate([*frame, None, *[None] * program.program.slots], 1_000_000)


def problem_of(text: str, dialect: Dialect) -> str:
    """Return why *text* does not compile."""
    with pytest.raises(InvalidExpression) as problem:
        compile_expression(text, policy_environment(None, has_params=False, dialect=dialect))
    return str(problem.value)


@pytest.mark.parametrize("dialect", [KYVERNO, CLUSTER_POLICY], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("object.?a.orValue(2)", 1),
        ("object.?b.orValue(2)", 2),
        ("object.a.orValue(2)", 1),
        ("object.n.orValue(2)", None),
        ("optional.none().orValue('x')", "x"),
        ("[1, 2].orValue([])", [1, 2]),
        ("object.?b.?c.orValue([]).all(x, x == 1)", True),
    ],
)
def test_or_value_takes_what_is_not_optional(dialect: Dialect, text: str, expected: object) -> None:
    assert evaluated(text, dialect, object={"a": 1, "n": None}) == expected


def test_or_value_does_not_replace_a_missing_field() -> None:
    with pytest.raises(EvaluationError, match="no such key: b"):
        evaluated("object.b.orValue(2)", KYVERNO, object={})


def test_the_type_of_or_value_is_not_known() -> None:
    """So an expression that has to be of the type bool is refused."""
    environment = policy_environment(None, has_params=False, dialect=KYVERNO)
    assert compile_expression("object.?a.orValue(true)", environment).type == DYN
    with pytest.raises(InvalidExpression, match="must evaluate to bool but got dyn"):
        compile_expression("object.?a.orValue(true)", environment, (BOOL,))


def test_without_a_dialect_or_value_is_that_of_kubernetes() -> None:
    with pytest.raises(EvaluationError, match="no such overload"):
        evaluated("object.a.orValue(2)", KUBERNETES, object={"a": 1})


def test_variables_differ() -> None:
    assert problem_of("authorizer != null", KYVERNO).endswith(
        "undeclared reference to 'authorizer' (in container '')"
    )
    assert problem_of("authorizer != null", GATEKEEPER).endswith("'authorizer' (in container '')")
    assert problem_of("params == null", KYVERNO).endswith("'params' (in container '')")
    assert problem_of("exceptions.allowedImages == []", KUBERNETES).endswith("'exceptions' (in container '')")
    assert problem_of("request.object == null", KUBERNETES).endswith("undefined field 'object'")
    assert problem_of("exceptions.other == null", KYVERNO).endswith("undefined field 'other'")
    given: dict[str, Any] = {
        "exceptions": {"allowedImages": ["a"], "allowedValues": []},
        "request": {"object": {"x": 1}, "oldObject": None},
    }
    assert evaluated("'a' in exceptions.allowedImages", KYVERNO, **given) is True
    assert evaluated("exceptions.allowedValues.size()", KYVERNO, **given) == 0
    assert evaluated("request.object.x == 1 && request.oldObject == null", KYVERNO, **given) is True


@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.name)
def test_every_dialect_has_what_kubernetes_has(dialect: Dialect) -> None:
    assert (
        evaluated("quantity('1Gi').isGreaterThan(quantity('1Mi')) && ip('::1').isLoopback()", dialect) is True
    )
    assert "undeclared reference to 'nothing'" in problem_of("nothing()", dialect)


def test_what_is_not_asked_for_is_not_evaluated() -> None:
    environment = policy_environment({"v": DYN}, has_params=False)
    variables = {"v": compile_expression("object.big.map(x, x + 1)", environment)}
    texts = ("variables.v.size() > 0", "object.a == 2", "object.big.all(x, object.big.all(y, x + y >= 0))")
    expressions = [compile_expression(text, environment) for text in texts]
    values = [{"a": 1, "big": list(range(100))}, *VALUES[1:]]
    meter.begin()
    results = evaluate_each(expressions, variables, values, 2000, Allowance(is_brief=False))
    assert next(results) == (True,)
    assert next(results) == (False,)
    with pytest.raises(OutOfBudgetError):
        next(results)
    meter.begin()
    with pytest.raises(OutOfBudgetError):
        evaluate_all(expressions, variables, values, 2000, Allowance(is_brief=False))


def test_each_and_all_have_the_same_results() -> None:
    environment = policy_environment({"v": DYN}, has_params=False)
    variables = {"v": compile_expression("object.missing", environment)}
    texts = ("object.a == 1", "variables.v == 1", "true", "variables.v == 1")
    expressions = [None, *(compile_expression(text, environment) for text in texts)]
    values = [{"a": 1}, *VALUES[1:]]
    given = (expressions, variables, values, POLICY_LIMIT)
    meter.begin()
    each = list(evaluate_each(*given, Allowance(is_brief=True)))
    meter.begin()
    found, _ = evaluate_all(*given, Allowance(is_brief=True))
    assert list(map(str, each)) == list(map(str, found))
    problem = 'composited variable "v" fails to evaluate: no such key: missing'
    assert str(each[2]) == str(each[4]) == f"expression 'variables.v == 1' resulted in error: {problem}"


def test_a_variable_can_have_a_value_instead_of_an_expression() -> None:
    environment = policy_environment({"params": DYN, "w": DYN}, has_params=False, dialect=GATEKEEPER)
    variables = {"w": compile_expression("variables.params.names + ['c']", environment)}
    expressions = [compile_expression("variables.w == ['a', 'b', 'c']", environment, (BOOL,))]
    known = {"params": {"names": ["a", "b"]}}
    given = (expressions, variables, VALUES, POLICY_LIMIT)
    meter.begin()
    assert evaluate_all(*given, Allowance(is_brief=True), known)[0] == [(True,)]
    meter.begin()
    assert list(evaluate_each(*given, Allowance(is_brief=True), known)) == [(True,)]
    meter.begin()
    assert AllTrue(expressions, variables).cost(variables, VALUES, POLICY_LIMIT, known) > 0

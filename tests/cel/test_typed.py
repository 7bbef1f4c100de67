"""Values of Go types against kube-apiserver's own evaluator: outcomes, costs and texts of errors."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import pytest

from gateway.pure.cel.authorizer import Authorizer, ResourceCheck
from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.environment import GLOBALS, policy_environment
from gateway.pure.cel.errors import EvaluationError, InvalidExpression
from gateway.pure.cel.go_types import SLOT
from gateway.pure.cel.meter import EXPRESSION_LIMIT, METER, cost_so_far
from gateway.pure.cel.types import BOOL, DYN
from gateway.pure.conditions.match_conditions import KnownDecisions, request_variable
from gateway.pure.openapi.go_types import InMutations, in_conditions, in_conditions_of_mutations
from tests.cel.typed import NAMESPACE, PARAMS, TYPED_EXPRESSIONS, TYPED_REQUEST
from tests.cel.vectors import TYPED_FILES

VECTORS: Final[list[tuple[bool, dict[str, Any]]]] = [
    (is_mutation, vector)
    for is_mutation, file in TYPED_FILES.items()
    for vector in json.loads(file.read_bytes())
]
ENVIRONMENT: Final = policy_environment(None, has_params=True)
CUSTOM: Final = {"apiVersion": "example.com/v1", "kind": "Pod"}


def decide(
    expression: str,
    types: Any = in_conditions,
    current: Any = None,
    params: Any = PARAMS,
    *,
    has_source: bool = False,
) -> tuple[str, str, int]:
    """Return the decision, the text of the error, and the cost."""
    try:
        compiled = compile_expression(expression, ENVIRONMENT, (BOOL, DYN))
    except InvalidExpression as problem:
        return "compile error", str(problem), 0
    if has_source:
        compiled.program.use_source()
    request = json.loads(json.dumps(TYPED_REQUEST))
    authorizer = Authorizer(KnownDecisions().decide, {})
    check = ResourceCheck(authorizer, {})
    frame: list[object] = [
        *(request["object"] if current is None else current, request["oldObject"], request_variable(request)),
        *(NAMESPACE, authorizer, check, params, None, types, None),
        *[None] * compiled.program.slots,
    ]
    try:
        value = compiled.evaluate(frame, EXPRESSION_LIMIT)
    except EvaluationError as error:
        return "error", str(error), 0
    assert METER.inputs is None
    return ("true" if value else "false"), "", math.floor(cost_so_far() + 1e-6)


@pytest.mark.parametrize("has_source", [False, True], ids=["closures", "source"])
@pytest.mark.parametrize(("is_mutation", "vector"), VECTORS, ids=lambda value: str(value)[:60])
def test_a_value_of_a_go_type_behaves_as_in_the_api_server(
    is_mutation: bool, vector: dict[str, Any], has_source: bool
) -> None:
    """In conditions ``object`` has Go types, in mutations the other variables have."""
    expression = vector["expression"]
    types = InMutations() if is_mutation else in_conditions_of_mutations
    found, text, cost = decide(expression, types, has_source=has_source)
    assert found == vector["outcome"], text
    if found in ("true", "false"):
        assert cost == vector["cost"]
    if found == "error":
        assert text == vector["text"]


def test_the_vectors_are_of_these_expressions() -> None:
    """`python -m tests.cel.vectors` was run after the last expression was added."""
    for file in TYPED_FILES.values():
        vectors = json.loads(file.read_bytes())
        assert [vector["expression"] for vector in vectors] == list(TYPED_EXPRESSIONS)


@pytest.mark.parametrize(
    ("expression", "of_custom"),
    [
        ("object.metadata.labels == ''", "false"),
        ("1 in object.spec", "false"),
        ("object.spec.containers.exists(c, c == 1)", "false"),
        ("object[?0].hasValue()", "false"),
        ("optional.of(object.spec) == optional.of('')", "false"),
        ("[object.spec] == ['']", "false"),
        ("object.spec.securityContext == object.spec.containers[0].securityContext", "true"),
        ("optional.ofNonZeroValue(object.status).hasValue()", "false"),
    ],
)
def test_a_custom_resource_has_no_go_type(expression: str, of_custom: str) -> None:
    custom = json.loads(json.dumps({**TYPED_REQUEST["object"], **CUSTOM}))
    assert decide(expression)[0] != of_custom
    assert decide(expression, current=custom)[0] == of_custom
    assert decide(expression, types=None)[0] == of_custom


def test_only_parameters_of_mutating_policies_have_go_types() -> None:
    assert decide("params == ''", InMutations())[0] == "error"
    assert decide("params == ''", in_conditions)[0] == "false"
    assert decide("params == ''", InMutations(), params={**CUSTOM, "spec": {}})[0] == "false"


def test_options_of_a_subresource_have_a_go_type() -> None:
    """Their kinds have no schema."""
    options = {"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]}
    assert decide("object == ''", current=options)[0] == "error"


def test_the_go_types_have_the_place_between_the_variables() -> None:
    assert GLOBALS.index("(Go types)") == SLOT
    assert "(Go types)" not in ENVIRONMENT.variables

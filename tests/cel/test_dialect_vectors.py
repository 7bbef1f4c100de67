"""Functions of the dialects against what Go found: values, types, costs and errors.

``certificate-vectors.json`` has what ``x509.decode`` returns for generated certificates and requests.

``dialect-vectors.json`` has what cel-go 0.30.0, k8s.io/apiserver 0.36.3 and github.com/kyverno/sdk of August
2026 return for these expressions, in the environment of github.com/kyverno/kyverno 1.19.1
pkg/cel/compiler/env.go.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.pure.cel import meter
from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.dialects import KYVERNO
from gateway.pure.cel.environment import GLOBALS, policy_environment
from gateway.pure.cel.errors import EvaluationError, InvalidExpression
from gateway.pure.cel.meter import EXPRESSION_LIMIT
from gateway.pure.cel.times import format_timestamp
from gateway.pure.cel.values import Optional, Timestamp, Uint

VECTORS: Final[list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("dialect-vectors.json").read_text(), parse_int=float
)
ENVIRONMENT: Final = policy_environment(None, has_params=False, dialect=KYVERNO)
OBJECT: Final = {
    "a": 1,
    "d": 1.5,
    "s": "foo",
    "l": [1, 2, 3],
    "m": {"k": "v"},
    "mixed": [1, "a"],
    "objs": [{"name": "x", "value": "1"}, {"name": "y", "value": "2"}],
}
OTHER_TEXTS: Final = frozenset(
    {
        "cel.bind(x, 1)",
        "math.@min(1, 2)",
        "math.greatest(dyn(['a', 'b']))",
        "json.marshal({'b': 1, 'a': [true, null, 'x', 1.5, 2u]})",
        "json.unmarshal(object.s)",
        "listObjToMap([1], [2], 'name', 'v')",
        "yaml.parse('a: [')",
        "yaml.parse('~: x')",
        "yaml.parse('[a]: x')",
        "yaml.parse(object.a)",
    }
)
"""Expressions whose error has another text."""
COSTS: Final = {"cel.bind(x, object.missing, x == 1 || true)": 1}
"""What expressions cost more than in Go, which does not charge for a comparison with an error."""


def shown(value: object) -> object:
    """Return *value* in the form of the vectors."""
    match value:
        case None | bool() | str():
            return value
        case Uint():
            return {"uint": str(int(value))}
        case int():
            return {"int": str(value)}
        case float():
            if math.isfinite(value):
                return {"double": value}
            return {"double": "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case list():
            return [shown(each) for each in value]
        case dict():
            entries = [[shown(key), shown(each)] for key, each in value.items()]
            return {"map": sorted(entries, key=lambda entry: str(entry[0]))}
        case Timestamp():
            return {"timestamp": format_timestamp(value)}
        case Optional():
            return {"optional": shown(value.value) if value.present else "none"}
    return {"other": getattr(value, "cel_type", type(value).__name__)}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["expr"][:60])
def test_an_expression_has_the_value_that_go_finds(vector: dict[str, Any]) -> None:
    text = vector["expr"]
    if "compile" in vector:
        with pytest.raises(InvalidExpression) as problem:
            compile_expression(text, ENVIRONMENT)
        assert text in OTHER_TEXTS or vector["compile"] in str(problem.value)
        return
    expression = compile_expression(text, ENVIRONMENT)
    assert str(expression.type) == vector["type"].replace("google.protobuf.Timestamp", "timestamp")
    # Go reads the numbers of JSON as doubles.
    frame = [json.loads(json.dumps(OBJECT), parse_int=float), *[None] * (len(GLOBALS) - 1)]
    meter.begin()
    frame += [None] * expression.program.slots
    if "error" in vector:
        with pytest.raises(EvaluationError) as error:
            expression.evaluate(frame, EXPRESSION_LIMIT)
        assert text in OTHER_TEXTS or str(error.value) == vector["error"]
        return
    assert shown(expression.evaluate(frame, EXPRESSION_LIMIT)) == vector["value"]
    assert math.floor(meter.cost_so_far() + 1e-6) == vector["cost"] + COSTS.get(text, 0)


CERTIFICATES: Final[list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("certificate-vectors.json").read_text(), parse_int=float
)


@pytest.mark.parametrize("vector", CERTIFICATES, ids=lambda vector: vector["name"])
def test_a_certificate_is_decoded_as_in_go(vector: dict[str, Any]) -> None:
    expression = compile_expression("x509.decode(object)", ENVIRONMENT)
    frame = [vector["object"], *[None] * (len(GLOBALS) - 1)]
    meter.begin()
    if "error" in vector:
        with pytest.raises(EvaluationError) as error:
            expression.evaluate(frame, EXPRESSION_LIMIT)
        assert str(error.value) == vector["error"]
        return
    assert expression.evaluate(frame, EXPRESSION_LIMIT) == vector["value"]
    assert meter.cost_so_far() == vector["cost"]


def test_a_long_text_is_no_certificate() -> None:
    expression = compile_expression("x509.decode(object)", ENVIRONMENT)
    meter.begin()
    with pytest.raises(EvaluationError, match="expected at most 100000"):
        expression.evaluate(["-" * 100_001, *[None] * (len(GLOBALS) - 1)], EXPRESSION_LIMIT)

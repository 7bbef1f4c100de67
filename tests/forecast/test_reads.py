"""What expressions read of the object: without the rest of it, they have the same result."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.environment import policy_environment
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.conditions.match_conditions import request_variable
from gateway.tools.forecast.pod_fields import parsed
from gateway.tools.forecast.reads import ITEM, is_read, paths_read
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.grammar import draw_expression
from tests.cel.test_reads import evaluated
from tests.cel.typed import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.tools.forecast.reads import Path

ENVIRONMENT: Final = policy_environment({}, has_params=False, has_authorizer=False)
VARIABLES: Final = {
    "all": "object.spec.containers + object.spec.?initContainers.orValue([])",
    "any": 'request.operation == "DELETE" ? oldObject : object',
    "pod": "has(object.spec.template) ? object.spec.template.spec : object.spec",
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("object.spec.containers.all(c, c.image == 'a')", "containers[].image"),
        ("variables.all.all(c, c.image == 'a')", "containers[].image initContainers[].image"),
        ("variables.any.spec.hostPID", "hostPID"),
        ("variables.pod.containers.exists(i, c, c.image == 'a')", "containers[].image"),
        ("object == oldObject", "containers[].image initContainers[].image hostPID resources"),
        ("string(object.spec) == ''", "containers[].image initContainers[].image hostPID resources"),
        ("has(object.spec.initContainers) && size(object.spec.containers) > 0", ""),
        ("object.spec.containers.map(c, c.image).exists(i, i == 'a')", "containers[].image"),
        ("object.spec.containers.filter(c, c.name == 'a').all(c, c.image == 'b')", "containers[].image"),
        ("object.spec.containers.map(c, c).all(c, c.image == 'b')", "containers[].image"),
        ("cel.bind(c, object.spec.initContainers, c[0].image == 'a')", "initContainers[].image"),
        ("object.?spec.?resources.optMap(r, r.limits.cpu == '1').orValue(true)", "resources"),
        ("object['spec']['hostPID']", "hostPID"),
        ("object.spec[request.name]", "containers[].image initContainers[].image hostPID resources"),
        ("object.spec.containers.all(object, object.image == 'a')", "containers[].image"),
        ("images.containers.exists(i, i == 'a')", "containers[].image initContainers[].image"),
        ("object.spec.jobTemplate.spec.template.spec.hostPID", "hostPID"),
        ("object.metadata.name == 'a'", ""),
        ("object != null && object.spec != null", ""),
        ("[object.spec.hostPID].exists(each, each)", "hostPID"),
        ("not CEL", "containers[].image initContainers[].image hostPID resources"),
    ],
)
def test_fields_that_are_read(expression: str, expected: str) -> None:
    variables = {name: compile_expression(text, ENVIRONMENT) for name, text in VARIABLES.items()}
    reads = paths_read([expression], [variables])
    fields = ("containers[].image", "initContainers[].image", "hostPID", "resources")
    assert " ".join(each for each in fields if is_read(parsed(f"spec.{each}"), reads)) == expected


def _without(found: Any, reads: frozenset[Path], path: Path = ()) -> Any:
    """Return *found* without the fields that are not among *reads*."""
    if isinstance(found, list):
        return [_without(each, reads, (*path, ITEM)) for each in found]
    if not isinstance(found, dict):
        return found
    kept = {name: each for name, each in found.items() if is_read((*path, name), reads)}
    return {name: _without(each, reads, (*path, name)) for name, each in kept.items()}


def _check(expression: str, objects: dict[str, Any]) -> None:
    try:
        compiled = compile_expression(expression, ENVIRONMENT)
    except InvalidExpression:
        return
    reads = paths_read([expression], [])

    def outcomes() -> Iterator[str]:
        for prune in (False, True):
            found = [objects["object"], objects["oldObject"]]
            frame: list[object] = [_without(each, reads) if prune else each for each in deepcopy(found)]
            frame += [request_variable(REQUEST), NAMESPACE, None, None, None, None, None, None]
            yield evaluated(compiled, frame + [None] * compiled.program.slots)[0]

    whole, pruned = outcomes()
    assert whole == pruned, (expression, sorted(reads))


def test_expressions_have_the_same_result_without_the_rest() -> None:
    for expression in EXPRESSIONS:
        _check(expression, REQUEST)


@given(seed=st.integers(0, 2**32))
def test_drawn_expressions_have_the_same_result_without_the_rest(seed: int) -> None:
    _check(draw_expression(Random(seed), REQUEST), REQUEST)

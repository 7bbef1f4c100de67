"""The gateway's CEL against what kube-apiserver's own evaluator makes of the same expressions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cel.differences import KNOWN
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.ours import decide
from tests.cel.vectors import FILE

VECTORS: list[dict[str, Any]] = json.loads(FILE.read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["expression"][:60])
def test_an_expression_decides_as_in_the_api_server(vector: dict[str, Any]) -> None:
    """The same value, an error where it has one, and refused where it refuses."""
    expression = vector["expression"]
    outcome, text, cost = decide(expression, REQUEST)
    assert outcome == (KNOWN[expression][0] if expression in KNOWN else vector["outcome"]), text
    if "cost" in vector and expression not in KNOWN:
        # Constants are charged here and folded there, so that a small expression may cost more.
        assert vector["cost"] / 2 - 10 <= cost <= vector["cost"] * 2 + 250


def test_the_vectors_are_of_these_expressions() -> None:
    """`python -m tests.cel.vectors` was run after the last expression was added."""
    assert [vector["expression"] for vector in VECTORS] == list(EXPRESSIONS)


def test_every_known_difference_is_one() -> None:
    """What has been mended is no longer listed."""
    found = {vector["expression"]: vector["outcome"] for vector in VECTORS}
    for expression, (outcome, reason) in KNOWN.items():
        assert reason
        assert found[expression] != outcome, expression

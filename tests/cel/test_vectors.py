"""The gateway's CEL against kube-apiserver's own evaluator: outcomes, costs and texts of errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cel.differences import COSTS, ERROR_COSTS_MORE, KNOWN, TEXTS
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.ours import decide
from tests.cel.vectors import FILE

VECTORS: list[dict[str, Any]] = json.loads(FILE.read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["expression"][:60])
def test_an_expression_decides_as_in_the_api_server(vector: dict[str, Any]) -> None:
    """The value, the cost, the error and the refusal are the API server's."""
    expression = vector["expression"]
    outcome, text, cost = decide(expression, REQUEST)
    if expression in KNOWN:
        assert outcome == KNOWN[expression][0], text
        return
    assert outcome == vector["outcome"], text
    if outcome in ("true", "false"):
        assert cost == vector["cost"] + COSTS.get(expression, (0, ""))[0]
    if outcome == "error":
        assert cost <= vector["cost"] + ERROR_COSTS_MORE
        assert text == (TEXTS[expression][0] if expression in TEXTS else vector["text"])


def test_the_vectors_are_of_these_expressions() -> None:
    """`python -m tests.cel.vectors` was run after the last expression was added."""
    assert [vector["expression"] for vector in VECTORS] == list(EXPRESSIONS)


def test_every_known_difference_is_one() -> None:
    """The list has no entry without a difference."""
    found = {vector["expression"]: vector for vector in VECTORS}
    for expression, (outcome, reason) in KNOWN.items():
        assert reason
        assert found[expression]["outcome"] != outcome, expression
    for expression, (text, reason) in TEXTS.items():
        assert reason
        assert found[expression]["text"] != text, expression
    for expression, (more, reason) in COSTS.items():
        assert reason
        assert expression in found
        assert more

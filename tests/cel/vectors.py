"""Writes ``vectors.json``: the results of kube-apiserver's evaluator for all expressions. Needs Go.

python -m tests.cel.vectors            # --check compares it instead
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.cel.api_server import evaluate, outcome, text
from tests.cel.expressions import EXPRESSIONS, REQUEST

FILE: Final = Path(__file__).with_suffix(".json")

REPETITIONS: Final = 100
"""Of two orders, each comes up but for one time in 2**100."""


def made() -> str:
    """Return the content of the file: a line each with expression, outcome, cost and text of the error.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    answers = evaluate((expression, REQUEST) for expression in EXPRESSIONS)
    recorded = {vector["expression"]: vector.get("cost") for vector in json.loads(FILE.read_bytes())}
    vectors = []
    for expression, answer in zip(EXPRESSIONS, answers, strict=True):
        vector: dict[str, Any] = {"expression": expression, "outcome": outcome(answer)}
        if "refused" not in answer:
            cost = recorded.get(expression)
            vector["cost"] = cost if cost in costs(expression, REQUEST, answer, cost) else answer["cost"]
        if "error" in answer:
            vector["text"] = text(answer, expression)
        vectors.append(json.dumps(vector, ensure_ascii=False))
    return "[\n{}\n]\n".format(",\n".join(vectors))


def costs(
    expression: str, request: dict[str, Any], answer: dict[str, Any], wanted: int | None
) -> set[int | None]:
    """Return the costs of *expression*: that of *answer*, and those of repetitions if that is not *wanted*.

    The order of a map's keys is random in Go, and with it the cost of a macro that ends early.
    """
    if answer.get("cost") == wanted:
        return {wanted}
    return {again.get("cost") for again in (answer, *evaluate([(expression, request)] * REPETITIONS))}


def main() -> int:
    """Write the file, or with ``--check`` return 1 if it differs."""
    content = made()
    if "--check" not in sys.argv[1:]:
        FILE.write_text(content)
    return int(FILE.read_text() != content)


if __name__ == "__main__":
    raise SystemExit(main())

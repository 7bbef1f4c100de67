"""Writes the vectors: the results of kube-apiserver's evaluator for all expressions. Needs Go.

python -m tests.cel.vectors            # --check compares them instead
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.cel.api_server import evaluate, outcome, text
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.typed import NAMESPACE, PARAMS, TYPED_EXPRESSIONS, TYPED_REQUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE: Final = Path(__file__).with_suffix(".json")
TYPED_FILES: Final = {
    is_mutation: FILE.with_name(f"typed-{'mutation' if is_mutation else 'condition'}-vectors.json")
    for is_mutation in (False, True)
}
"""By whether the expressions are evaluated as those of a mutation are."""

REPETITIONS: Final = 100
"""Of two orders, each comes up but for one time in 2**100."""


def made(
    file: Path = FILE,
    expressions: Sequence[str] = EXPRESSIONS,
    request: dict[str, Any] = REQUEST,
    **more: Any,
) -> str:
    """Return the content of *file*: a line each with expression, outcome, cost and text of the error.

    *more* are further members of the questions to the oracle.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    answers = evaluate(((expression, request) for expression in expressions), **more)
    recorded = {}
    if file.exists():
        recorded = {vector["expression"]: vector.get("cost") for vector in json.loads(file.read_bytes())}
    vectors = []
    for expression, answer in zip(expressions, answers, strict=True):
        vector: dict[str, Any] = {"expression": expression, "outcome": outcome(answer)}
        if "refused" not in answer:
            cost = recorded.get(expression)
            known = costs(expression, request, answer, cost, **more)
            vector["cost"] = cost if cost in known else answer["cost"]
        if "error" in answer:
            vector["text"] = text(answer, expression)
        vectors.append(json.dumps(vector, ensure_ascii=False))
    return "[\n{}\n]\n".format(",\n".join(vectors))


def made_typed(*, is_mutation: bool) -> str:
    """Return the content of ``TYPED_FILES``, see :func:`made`."""
    more = {"typed": True, "policy": True, "params": PARAMS, "namespace": NAMESPACE}
    file = TYPED_FILES[is_mutation]
    return made(file, TYPED_EXPRESSIONS, TYPED_REQUEST, mutation=is_mutation, **more)


def costs(
    expression: str, request: dict[str, Any], answer: dict[str, Any], wanted: int | None, **more: Any
) -> set[int | None]:
    """Return the costs of *expression*: that of *answer*, and those of repetitions if that is not *wanted*.

    The order of a map's keys is random in Go, and with it the cost of a macro that ends early.
    """
    if answer.get("cost") == wanted:
        return {wanted}
    again = evaluate([(expression, request)] * REPETITIONS, **more)
    return {each.get("cost") for each in (answer, *again)}


def main() -> int:
    """Write the files, or with ``--check`` return 1 if one differs."""
    contents = {FILE: made(), **{file: made_typed(is_mutation=each) for each, file in TYPED_FILES.items()}}
    if "--check" not in sys.argv[1:]:
        for file, content in contents.items():
            file.write_text(content)
    return int(any(file.read_text() != content for file, content in contents.items()))


if __name__ == "__main__":
    raise SystemExit(main())

"""Writes ``vectors.json``: the results of kube-apiserver's evaluator for all expressions. Needs Go.

python -m tests.cel.vectors            # --check compares it instead
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from tests.cel.api_server import evaluate, outcome, text
from tests.cel.expressions import EXPRESSIONS, REQUEST

FILE: Final = Path(__file__).with_suffix(".json")


def made() -> str:
    """Return the content of the file: a line each with expression, outcome, cost and text of the error.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    answers = evaluate((expression, REQUEST) for expression in EXPRESSIONS)
    vectors = []
    for expression, answer in zip(EXPRESSIONS, answers, strict=True):
        vector = {"expression": expression, "outcome": outcome(answer)}
        if "refused" not in answer:
            vector["cost"] = answer["cost"]
        if "error" in answer:
            vector["text"] = text(answer, expression)
        vectors.append(json.dumps(vector, ensure_ascii=False))
    return "[\n{}\n]\n".format(",\n".join(vectors))


def main() -> int:
    """Write the file, or with ``--check`` return 1 if it differs."""
    content = made()
    if "--check" not in sys.argv[1:]:
        FILE.write_text(content)
    return int(FILE.read_text() != content)


if __name__ == "__main__":
    raise SystemExit(main())

"""Runs ``oracle/``: the API server's own compiler and evaluator of matchConditions."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.golang import ROOT, go, kept

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SOURCES: Final = ROOT / "tests" / "cel" / "oracle"
_WITHIN_S: Final = 600
"""A bound for a stuck program, not an expectation."""


def evaluate(expressions: Iterable[tuple[str, dict[str, Any]]], **more: Any) -> list[dict[str, Any]]:
    """Return the oracle's result of each expression for its AdmissionRequest: see ``answer`` in its source.

    *more* are further members of all questions.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    lines = "".join(
        json.dumps({"expression": expression, "request": request, **more}) + "\n"
        for expression, request in expressions
    )
    done = subprocess.run(
        [_program()], input=lines, capture_output=True, text=True, timeout=_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def outcome(answer: dict[str, Any]) -> str:
    """Return the decision in *answer*: ``true``, ``false``, ``error`` or ``compile error``."""
    if "refused" in answer:
        return "compile error"
    return "error" if "error" in answer else "true" if answer["value"] else "false"


def text(answer: dict[str, Any], expression: str) -> str:
    """Return the text of the error in *answer*, without the common prefix."""
    return str(answer.get("error", "")).removeprefix(f"expression '{expression}' resulted in error: ")


def _program() -> Path:
    files = [_SOURCES / name for name in ("go.mod", "go.sum", "main.go")]

    def make(programs: Path) -> None:
        go("build", "-o", f"{programs}{os.sep}", ".", cwd=_SOURCES)

    return kept("cel-oracle", files, [], make) / "oracle"

"""Runs ``openapi/``: the API server's own merges, JSON Patches and type checking of policies."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.golang import ROOT, go, kept

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SOURCES: Final = ROOT / "tests" / "e2e" / "openapi"
_WITHIN_S: Final = 600
"""A bound for a stuck program, not an expectation."""


def ask(schemas: dict[str, Any], questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the oracle's answers to *questions* by the schemas of one document: see its source.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    lines = "".join(json.dumps(each) + "\n" for each in ({"schemas": schemas}, *questions))
    done = subprocess.run(
        [_program()], input=lines, capture_output=True, text=True, timeout=_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


def _program() -> Path:
    files = [_SOURCES / name for name in ("go.mod", "go.sum", "main.go", "json_patch.go")]

    def make(programs: Path) -> None:
        go("build", "-o", f"{programs}{os.sep}", ".", cwd=_SOURCES)

    return kept("openapi-oracle", files, [], make) / "openapi"

"""Runs ``oracle/``: Kubernetes' own defaults, controllers and plug-ins, of a version."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.binaries import MODULES
from tests.e2e.golang import ROOT, go, kept

if TYPE_CHECKING:
    from collections.abc import Iterable

_SOURCES: Final = ROOT / "tests" / "workloads" / "oracle"
_WITHIN_S: Final = 600
"""A bound for a stuck program, not an expectation."""


def ask(version: str, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answer of Kubernetes *version*, such as ``1.37``, to each question: see ``main.go``.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    done = subprocess.run(
        [_program(version)], input=lines, capture_output=True, text=True, timeout=_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def _program(version: str) -> Path:
    pins = [MODULES / "kubernetes" / version / name for name in ("go.mod", "go.sum")]
    sources = [_SOURCES / name for name in ("main.go", "linked.s")]

    def make(programs: Path) -> None:
        # The pins are those of the API server that the end-to-end tests build, and so is most of the code.
        with tempfile.TemporaryDirectory() as folder:
            for file in (*pins, *sources):
                shutil.copy(file, folder)
            go("build", "-o", f"{programs}{os.sep}oracle", ".", cwd=Path(folder))

    return kept(f"workloads-oracle-{version}", [*pins, *sources], [], make) / "oracle"

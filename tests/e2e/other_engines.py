"""Runs ``tests/kyverno/oracle`` and ``tests/gatekeeper/oracle``: the policy engines' own code.

Kyverno's takes ten minutes to build where Go has built none of its packages, so only recording builds it.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.golang import ROOT, go, kept
from tests.recorded.other_engines.cases import written
from tests.recorded.other_engines.files import FILES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_WITHIN_S: Final = 600
"""A bound for a stuck program, not an expectation."""


def content(file: Path) -> str:
    """Return the content of *file*, one of ``FILES``, by the engine's own code.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    engine, cases = FILES[file]
    return written(engine, cases, _ask(_built(engine), (case.question for case in cases)))


def _ask(program: Path, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    done = subprocess.run(
        [program], input=lines, capture_output=True, text=True, timeout=_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _built(engine: str) -> Path:
    def make(programs: Path) -> None:
        go("build", "-o", f"{programs}{os.sep}", ".", cwd=_sources(engine))

    return kept(f"{engine}-oracle", _files(engine), [], make) / "oracle"


def _files(engine: str) -> list[Path]:
    return sorted(_sources(engine).iterdir())


def _sources(engine: str) -> Path:
    return ROOT / "tests" / engine / "oracle"

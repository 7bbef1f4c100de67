"""Asks Argo CD's own comparison, and records what it says: ``python -m tests.e2e.argocd``.

It takes some minutes to build where Go has built none of its packages.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.golang import ROOT, go, kept
from tests.preview.argocd_cases import FILE, RECORDED, question, with_ignored

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SOURCES: Final = ROOT / "tests" / "preview" / "oracle"
_WITHIN_S: Final = 600
"""A bound for a stuck program, not an expectation."""


def ask(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers of Argo CD to *questions*, see ``oracle/main.go``.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """

    def make(programs: Path) -> None:
        go("build", "-o", f"{programs}{os.sep}", ".", cwd=SOURCES)

    program = kept("argocd-oracle", sorted(SOURCES.iterdir()), [], make) / "oracle"
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    done = subprocess.run(
        [program], input=lines, capture_output=True, text=True, timeout=_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def recorded() -> str:
    """Return the content of ``FILE``: of each seed whether Argo CD sees a difference, without and with rules.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    asked = [question(seed) for seed in RECORDED]
    ignored = [with_ignored(each) for each in asked]
    lines = [
        {
            "seed": seed,
            "modified": plain["modified"],
            "ignoreDifferences": each["ignoreDifferences"],
            "modifiedThen": then["modified"],
        }
        for seed, plain, each, then in zip(RECORDED, ask(asked), ignored, ask(ignored), strict=True)
    ]
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)


if __name__ == "__main__":
    FILE.write_text(recorded())

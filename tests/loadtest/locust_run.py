"""Locust as users run it: a process of its own, without its web interface."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.kit import PATIENCE_S, ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOCUST = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtest" / "locustfile.py"), "--headless"]


@dataclass(frozen=True)
class Run:
    """The result of a run of Locust."""

    status: int
    output: str
    log: str
    """With Locust's tables."""

    @property
    def text(self) -> str:
        return f"{self.output}\n{self.log}"

    def line(self, pattern: str) -> tuple[str, ...]:
        """Return the groups of *pattern* in the output."""
        found = re.search(pattern, self.text)
        assert found, f"no {pattern!r} in\n{self.text}"
        return found.groups()


def run_locust(corpus: Path, *arguments: object, **environment: str) -> Run:
    """Run Locust with the reviews and objects in *corpus*.

    By default it ends after twenty answers, with limits that hold on a busy machine. An option in *arguments*
    replaces its default.
    """
    done = subprocess.run(
        [
            *(*LOCUST, "--only-summary", "--corpus", str(corpus)),
            *("--users", "2", "--spawn-rate", "2", "--rate", "50", "--stop-after", "20"),
            *("--run-time", f"{PATIENCE_S:.0f}s", "--max-p99-ms", "60000", "--min-sent-ratio", "0"),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
        cwd=corpus,
        env={**os.environ, **environment},
    )
    return Run(done.returncode, done.stdout, done.stderr)


def write_corpus(folder: Path, **documents: object) -> Path:
    """Write *documents* as files of *folder*, which is made, and return it."""
    folder.mkdir()
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder

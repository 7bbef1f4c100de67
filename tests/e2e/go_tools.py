"""Builds the Go programs of the benchmarks: ``webhook`` and ``reviews``, and ``worker`` with the Go SDK."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.e2e.golang import ROOT, go, kept

if TYPE_CHECKING:
    from pathlib import Path

SOURCES: Final = ROOT / "tests" / "e2e" / "tools"
WORKER: Final = ROOT / "tests" / "e2e" / "sdk_worker" / "main.go"
SDK: Final = ROOT / "workers" / "go"
PROGRAMS: Final = ("webhook", "reviews", "worker")


def build_tools() -> dict[str, Path]:
    """Return the executables, by name of the program.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    found = {file for file in SOURCES.rglob("*") if file.suffix in (".go", ".mod")}
    found |= {file for file in SDK.rglob("*.go") if not file.name.endswith("_test.go")}
    folder = kept("tools", sorted(found | {WORKER, SDK / "go.mod", SDK / "go.sum"}), [], _make)
    return {name: folder / name for name in PROGRAMS}


def _make(programs: Path) -> None:
    go("build", "-o", f"{programs}{os.sep}", "./webhook", "./reviews", cwd=SOURCES)
    # As one file, so that it is built with the dependencies of the SDK.
    go("build", "-o", str(programs / "worker"), str(WORKER), cwd=SDK)

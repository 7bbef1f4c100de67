"""Runs ``oracle/``: PodSecurity of Kubernetes itself. Its test data are read where Go keeps the module."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.golang import ROOT, go, kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SOURCES: Final = ROOT / "tests" / "library" / "pod_security" / "oracle"
_MODULE: Final = "k8s.io/pod-security-admission"
_WITHIN_S: Final = 600
"""A bound for a stuck program, not an expectation."""


def evaluate(pods: Iterable[tuple[dict[str, Any], Sequence[str]]]) -> list[list[dict[str, str]]]:
    """Return reason and detail of the violations of each pod, for each of its ``LEVEL:VERSION``.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    found: list[list[dict[str, str]]] = _run({"pod": pod, "policies": policies} for pod, policies in pods)
    return found


def decide(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the decision about each request: see ``question`` and ``decision`` of the source.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    found: list[dict[str, Any]] = _run(questions, "admission")
    return found


def folder_of_pods() -> Path:
    """Return the folder of upstream's generated pods, ``LEVEL/VERSION/{pass,fail}/CHECK.yaml``.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    # Without its sources in the folder of the module, ``go list`` would download nothing.
    go("mod", "download", _MODULE, cwd=_SOURCES)
    return Path(go("list", "-m", "-f", "{{.Dir}}", _MODULE, cwd=_SOURCES)) / "test" / "testdata"


def _run(documents: Iterable[dict[str, Any]], *arguments: str) -> list[Any]:
    lines = "".join(json.dumps(each) + "\n" for each in documents)
    done = subprocess.run(
        [_program(), *arguments], input=lines, capture_output=True, text=True, timeout=_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _program() -> Path:
    files = [_SOURCES / name for name in ("go.mod", "go.sum", "main.go")]

    def make(programs: Path) -> None:
        go("build", "-o", f"{programs}{os.sep}", ".", cwd=_SOURCES)

    return kept("pod-security-oracle", files, [], make) / "oracle"

"""A short run of every target, the inputs that once failed, and a target that fails on purpose."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import engines
from tests.fuzz.engines import (
    ROOT,
    TARGETS,
    Order,
    by_changes,
    files_in,
    has_atheris,
    regressions,
    target_of,
)

if TYPE_CHECKING:
    from pathlib import Path

REAL = [target for target in TARGETS if target != "planted"]
RUNS = 3_000
CHANGES = 100
WITHIN_S = 1800.0
"""The bound of a run: more than ten times the CPU time that the costliest target needs."""
ENGINES = ["changes", pytest.param("atheris", marks=pytest.mark.skipif(not has_atheris(), reason="not here"))]


def fuzz(target: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", target, "--found", str(folder / "found"), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)


@pytest.mark.slow
@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("target", REAL)
def test_no_input_breaks_a_law(target: str, tmp_path: Path) -> None:
    done = fuzz(target, tmp_path, "--runs", str(RUNS), "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: {RUNS} inputs by " in done.stdout


@pytest.mark.parametrize("target", REAL)
def test_seeds_and_changes_of_them_break_no_law(target: str, tmp_path: Path) -> None:
    """In this process, which saves the start of another and the measurement of coverage."""
    made = target_of(target)
    runs = len(list(made.seeds())) + CHANGES
    report = by_changes(Order(target, runs, 1, made.MAX_BYTES, tmp_path / "corpus", tmp_path / "found"))
    assert (report.failing, report.executions) == (None, runs), report.log


def test_the_command_runs_without_atheris(tmp_path: Path) -> None:
    done = fuzz("patch", tmp_path, "--runs", "10", "--engine", "changes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "patch: 10 inputs by changes, seed 1, " in done.stdout


@pytest.mark.parametrize(
    ("target", "file"),
    [
        pytest.param(target, file, id=f"{target}-{file.name}")
        for target in REAL
        for file in files_in(regressions(target))
    ],
)
def test_inputs_that_once_failed_pass(target: str, file: Path) -> None:
    assert engines.failure(target_of(target).run, file.read_bytes()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_is_found_stored_and_reproduced(engine: str, tmp_path: Path) -> None:
    done = fuzz("planted", tmp_path, "--runs", "100000", "--engine", engine)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError: as planted" in done.stdout
    (found,) = files_in(tmp_path / "found" / "planted")
    assert b"fail" in found.read_bytes()
    (command,) = [line for line in done.stdout.splitlines() if line.startswith("repeat with: ")]
    words = command.removeprefix("repeat with: ").split()
    again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert again.returncode == 1
    assert "AssertionError: as planted" in again.stdout


def test_a_hang_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "MAX_SECONDS", 0.02)
    assert "Hang: no end within 0.02 s" in engines.failure(target_of("planted").run, b"hang")
    assert engines.failure(target_of("planted").run, b"hand") == ""

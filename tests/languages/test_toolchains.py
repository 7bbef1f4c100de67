"""The table of languages, the probes for their tools, and what ``make test-workers`` makes of them."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit import ROOT
from tests.languages import __main__ as command
from tests.languages.__main__ import Result, closing, main, make, run
from tests.languages.toolchains import (
    BUILT,
    LANGUAGES,
    PYTHON,
    Language,
    Tool,
    lacking,
    missing,
    named,
    unready,
)
from tests.process.kit import runs
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCT = "build/test-toolchains"


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Tool]:
    """Put a program on PATH that prints a text and ends with a status, and return it as a tool."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def add(text: str, status: int) -> Tool:
        program = tmp_path / f"tool-{len(list(tmp_path.iterdir()))}-{time.monotonic_ns()}"
        program.write_text(f"#!/bin/sh\nprintf '%b' '{text}'\nexit {status}\n")
        program.chmod(0o755)
        return Tool(program.name, (17, 2))

    return add


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("go version go17.2.1 linux/amd64", ""),
        ("v20.1.0", ""),
        ("javac 17", "is 17, older than 17.2"),
        ("javac 18", ""),
        ("cargo 17.2.0-nightly (f2d3ce0bd 2026-03-21)", ""),
        ("\\033[1mApache Tool 17.10\\033[m\\nJava version: 3.0", ""),
        ("\\033[1mApache Tool 3.8.7\\033[m\\nJava version: 17.9", "is 3.8.7, older than 17.2"),
        ("go1.22rc1", "is 1.22, older than 17.2"),
        ("hello", "--version names no version"),
    ],
)
def test_a_version_is_read_and_compared(say: Callable[[str, int], Tool], text: str, lacks: str) -> None:
    tool = say(text, 0)
    found = lacking(tool, "workers")
    assert found == (f"{tool.program} {lacks}" if lacks else "")


def test_a_program_that_fails_or_is_not_there_is_missing(say: Callable[[str, int], Tool]) -> None:
    broken = say("17.2", 3)
    absent = Tool("no-such-program", (1,))
    assert "does not run" in lacking(broken, "workers")
    assert lacking(absent, "workers") == "no-such-program is not installed"
    both = replace(PYTHON, tools=(absent, broken))
    assert missing(both).startswith(f"no-such-program is not installed; {broken.program} does not run: ")


def test_what_is_not_built_cannot_be_started() -> None:
    assert unready(PYTHON) == ""
    assert unready(replace(PYTHON, product="workers/nowhere")) == "not built; make test-workers builds it"


def least(language: str, program: str) -> str:
    (tool,) = (tool for tool in named(language).tools if tool.program == program)
    return ".".join(map(str, tool.least))


def test_the_least_versions_are_those_that_the_sdks_ask_for() -> None:
    folders = {language.name: ROOT / language.folder for language in BUILT}
    (go,) = re.findall(r"^go (\d+\.\d+)", (folders["go"] / "go.mod").read_text(), re.MULTILINE)
    assert least("go", "go") == go
    node = json.loads((folders["typescript"] / "package.json").read_text())["engines"]["node"]
    assert least("typescript", "node") == node.removeprefix(">=")
    crate = tomllib.loads((folders["rust"] / "Cargo.toml").read_text())["package"]
    assert least("rust", "cargo") == crate["rust-version"]
    pom = (folders["java"] / "pom.xml").read_text()
    (java,) = re.findall(r"<maven\.compiler\.release>(\d+)<", pom)
    assert least("java", "javac") == least("java", "java") == java


def test_the_readme_of_the_workers_has_a_row_for_each_language() -> None:
    text = (ROOT / "workers" / "README.md").read_text()
    for language in LANGUAGES:
        (row,) = re.findall(rf"^\| {language.title} \|.*$", text, re.MULTILINE)
        if language is not PYTHON:
            name = Path(language.folder).name
            assert f"[`{name}/`]({name})" in row
            assert least(language.name, language.tools[0].program) in row


def fake(**changes: str) -> Language:
    """Return a language that is built and tested with the shell."""
    commands = {"build": f"mkdir -p build && touch {PRODUCT}", "test": "true", **changes}
    language = Language("fake", "Fake", "workers", run=("sh",), product=PRODUCT)
    return replace(language, build=commands["build"], test=commands["test"])


@pytest.fixture
def _no_product() -> None:
    (ROOT / PRODUCT).unlink(missing_ok=True)


@pytest.mark.usefixtures("_no_product")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("fake: passed", True)),
        ({"build": "exit 7"}, ("fake: failed (fake build failed)", False)),
        ({"build": "true"}, (f"fake: failed (fake build left no {PRODUCT})", False)),
        ({"test": "exit 1"}, ("fake: failed (fake test failed)", True)),
    ],
)
def test_a_language_is_built_and_then_tested(changes: dict[str, str], expected: tuple[str, bool]) -> None:
    try:
        result, is_built = make(fake(**changes))
        assert (str(result), is_built) == expected
    finally:
        (ROOT / PRODUCT).unlink(missing_ok=True)


def test_a_language_whose_tools_are_missing_is_skipped_and_never_passed() -> None:
    lacking_mvn = replace(fake(test="exit 1"), tools=(Tool("no-such-mvn", (3,)),))
    assert make(lacking_mvn) == (Result("fake", "skipped", "no-such-mvn is not installed"), False)


def test_the_summary_has_a_line_for_each_and_the_counts() -> None:
    results = [Result("go", "passed"), Result("java", "skipped", "mvn is not installed")]
    assert closing([*results, Result("rust", "failed", "rust test failed")]) == (
        "go: passed\njava: skipped (mvn is not installed)\nrust: failed (rust test failed)\n"
        "1 passed, 1 failed, 1 skipped"
    )


@pytest.mark.parametrize(
    ("verdicts", "together", "status"),
    [
        (("passed", "skipped"), "passed", 0),
        (("skipped", "skipped"), "passed", 0),
        (("passed", "failed"), "passed", 1),
        (("passed", "passed"), "failed", 1),
    ],
)
def test_the_exit_status_says_whether_anything_failed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verdicts: tuple[command.Verdict, ...],
    together: command.Verdict,
    status: int,
) -> None:
    asked = []

    def test_together(names: list[str]) -> Result:
        asked.append(names)
        return Result("together", together)

    waiting = list(verdicts)
    monkeypatch.setattr(
        command,
        "make",
        lambda language, only_build: (Result(language.name, waiting.pop(0)), verdicts[0] == "passed"),
    )
    monkeypatch.setattr(command, "test_together", test_together)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["go", "java"]) == status
    assert asked == [["python", "go", "java"] if verdicts[0] == "passed" else ["python"]]
    *lines, counts = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [f"go: {verdicts[0]}", f"java: {verdicts[1]}", f"together: {together}"]
    assert re.fullmatch(r"\d passed, \d failed, \d skipped", counts)


def test_a_language_that_is_none_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["cobol"])
    assert "cobol is none of go, typescript, rust, java" in capsys.readouterr().err


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "STEP_WITHIN_S", 0.5)
    pid = tmp_path / "pid"
    assert run("it", f"sleep 1000 & echo $! > {pid}; wait") == "it took longer than 0 s"
    eventually(lambda: not runs(int(pid.read_text())))


def test_signals_and_cpu_are_those_of_the_program_itself() -> None:
    """Nothing in between that would keep a signal for itself: no shell, no launcher."""
    assert {Path(language.run[0]).name for language in LANGUAGES} == {
        Path(sys.executable).name,
        "samples",
        "node",
        "java",
    }

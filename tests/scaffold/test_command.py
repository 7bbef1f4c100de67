"""``admission-gateway new`` as a command."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gateway.tools.cli import main
from gateway.tools.scaffold import project
from gateway.tools.scaffold.languages import LANGUAGES
from tests.kit import PATIENCE_S, ROOT
from tests.scaffold.kit import ProjectGateway, run_suites

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> New:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_status:
            main(["new", *arguments])
        captured = capsys.readouterr()
        assert isinstance(exit_status.value.code, int)
        return exit_status.value.code, captured.out, captured.err

    return run


if TYPE_CHECKING:
    from collections.abc import Callable

    New = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_output_has_the_files_and_the_next_steps(tmp_path: Path, new: New, language: str) -> None:
    status, output, errors = new(language, "my-policies")
    assert (status, errors) == (0, "")
    written = {path for path in (tmp_path / "my-policies").rglob("*") if path.is_file()}
    *listed, copy = output.split("\n\n")[0].splitlines()
    assert copy == "my-policies/sdk/: a copy of the SDK"
    sdk = {path for path in written if path.is_relative_to(tmp_path / "my-policies" / "sdk")}
    assert {tmp_path / line for line in listed} == written - sdk
    assert "  cd my-policies\n" in output
    assert "  admission-gateway serve --dev --config gateway.yaml\n" in output
    # This gateway runs from a clone.
    assert len(sdk) == len(project.sdk_files(LANGUAGES[language], ROOT))


def test_an_installed_gateway_copies_the_sdk_of_a_clone_that_is_named(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "clone", lambda: None)
    status, output, _ = new("go", "released")
    assert (status, "use --sdk CLONE" in output) == (0, True)
    assert not (tmp_path / "released" / "sdk").exists()
    assert new("go", "copied", "--sdk", str(ROOT))[0] == 0
    assert (tmp_path / "copied" / "sdk" / "workers" / "go" / "go.mod").is_file()
    status, _, errors = new("go", "wrong", "--sdk", str(tmp_path))
    assert (status, errors.count("\n")) == (1, 1)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pyton", "x"), 'argument LANGUAGE: found the string "pyton", expected python, go'),
        (("go", "My_Policies"), 'argument NAME: found "My_Policies", expected a name of at most'),
        (("go", "a\x1b[31m"), r'argument NAME: found "a\u001b[31m", expected a name'),
        (("go",), "the following arguments are required: NAME"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    tmp_path: Path, new: New, arguments: tuple[str, ...], message: str
) -> None:
    status, output, errors = new(*arguments)
    assert (status, output) == (2, "")
    assert errors.startswith(f"admission-gateway new: {message}")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_existing_project_is_not_replaced(tmp_path: Path, new: New) -> None:
    assert new("go", "a")[0] == 0
    (tmp_path / "a" / "main.go").write_text("mine")
    status, output, errors = new("python", "a")
    assert (status, output) == (1, "")
    assert errors == (
        "admission-gateway: a exists and is not empty; expected a name that is free, or an empty folder\n"
    )
    assert (tmp_path / "a" / "main.go").read_text() == "mine"


@pytest.mark.process
def test_a_python_project_passes_its_tests_and_serves(tmp_path: Path, new: New, processes: ExitStack) -> None:
    """As its README says; the SDK is installed already."""
    assert new("python", "my-policies")[0] == 0
    folder = tmp_path / "my-policies"
    tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(tests, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert "2 cases: 2 passed" in run_suites(folder)
    gateway = ProjectGateway(folder)
    processes.callback(gateway.stop)
    gateway.decides()


def test_shells_complete_the_languages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "bash"])
    (choices,) = re.findall(r"_new_pos_0_choices=\((.*)\)", capsys.readouterr().out)
    assert re.findall(r"\w+", choices) == list(LANGUAGES)

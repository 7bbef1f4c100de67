"""The configuration of a command that is called without --config."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.kit import call_command, run_command
from tests.offline.test_help import POD
from tests.replay.kit import policy

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """\
apiVersion: admission-gateway.io/v1alpha1
kind: PolicyTest
cases:
  - name: a pod
    object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}
    expect: {allowed: false}
"""
COMMANDS = {
    "check": ("check",),
    "review": ("review", "pod.yaml"),
    "test": ("test", "suite.yaml"),
    "preview": ("preview", "pod.yaml"),
    "replay": ("replay", "--objects", "pod.yaml"),
    "manifests": ("manifests", "--service", "a/b"),
}
"""Calls of the commands that need a configuration and no cluster."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "suite.yaml").write_text(SUITE)
    return tmp_path


def write(file: Path, name: str) -> str:
    """Write a configuration whose policy *name* denies everything; return the path."""
    file.write_text(policy(name, "false"))
    return str(file)


def call(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Return the status and all output of the command."""
    done = call_command(*arguments, folder=folder, environment={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_file_in_the_working_directory_is_the_default(command: str, folder: Path) -> None:
    config = write(folder / "gateway.yaml", "of-folder")
    with_option = call(folder, *COMMANDS[command], "--config", "gateway.yaml")
    without = call(folder, *COMMANDS[command])
    if command == "test":  # the time that a case took
        assert without[0] == with_option[0] == 0
    else:
        assert without == with_option
    assert config
    assert without[0] != 2


@pytest.mark.parametrize("command", COMMANDS)
def test_the_variable_comes_before_the_file(command: str, folder: Path) -> None:
    write(folder / "other.yaml", "of-variable")
    (folder / "gateway.yaml").write_text("kind: Nonsense\n")
    status, _ = call(folder, *COMMANDS[command], ADMISSION_GATEWAY_CONFIG="other.yaml")
    assert status == call(folder, *COMMANDS[command], "--config", "other.yaml")[0] != 2
    assert call(folder, *COMMANDS[command], ADMISSION_GATEWAY_CONFIG="")[0] in (1, 2)


def test_the_option_comes_before_the_variable(folder: Path) -> None:
    write(folder / "other.yaml", "of-option")
    status, text = call(folder, "check", "--config", "other.yaml", ADMISSION_GATEWAY_CONFIG="none.yaml")
    assert (status, "valid: " in text) == (0, True)


def test_the_variable_names_several_files(folder: Path) -> None:
    files = [write(folder / f"{name}.yaml", name) for name in ("one", "two")]
    status, text = call(folder, "review", "pod.yaml", ADMISSION_GATEWAY_CONFIG=os.pathsep.join(files))
    assert (status, "one" in text, "two" in text) == (1, True, True)


@pytest.mark.parametrize("command", [*COMMANDS.values(), ("serve",), ("audit",), ("migrate", "prove", "x")])
def test_without_any_the_error_names_all_ways(command: tuple[str, ...], folder: Path) -> None:
    status, text = call(folder, *command)
    assert status == 2
    assert all(way in text for way in ("--config", "$ADMISSION_GATEWAY_CONFIG", "./gateway.yaml")), text
    assert text.count("\n") == 1


def test_a_file_of_the_variable_that_is_missing_is_named_with_it(folder: Path) -> None:
    write(folder / "gateway.yaml", "of-folder")
    status, text = call(folder, "check", ADMISSION_GATEWAY_CONFIG="none.yaml")
    message = '$ADMISSION_GATEWAY_CONFIG: there is no file or folder "none.yaml"'
    assert (status, message in text) == (2, True)


def test_a_suite_that_names_a_configuration_keeps_it(folder: Path) -> None:
    write(folder / "own.yaml", "of-suite")
    (folder / "gateway.yaml").write_text("kind: Nonsense\n")
    (folder / "suite.yaml").write_text(f"{SUITE}config: [own.yaml]\n")
    assert call(folder, "test", "suite.yaml")[0] == 0


@pytest.mark.process
def test_serve_logs_which_configuration_it_found(folder: Path) -> None:
    """One that it cannot use ends it."""
    file = folder / "gateway.yaml"
    file.write_text("kind: Nonsense\n")
    done = run_command("serve", environment={**os.environ, "ADMISSION_GATEWAY_CONFIG": str(file)})
    assert f"configuration: {file}, from $ADMISSION_GATEWAY_CONFIG" in done.stderr
    assert done.returncode == 1

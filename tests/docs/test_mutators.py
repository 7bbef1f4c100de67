"""The page about mutators: its commands give what it shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS, section
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (DOCS / "mutators.md").read_text()


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section(PAGE, title), re.MULTILINE | re.DOTALL)


def write(folder: Path, text: str) -> None:
    """Write the files of a block, each below a comment with its path."""
    for path, content in re.findall(
        r"^# (\S+\.yaml)\n(.*?)(?=^# \S+\.yaml$|\Z)", text, re.MULTILINE | re.DOTALL
    ):
        file = folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)


def test_a_policy_that_counts_is_found(tmp_path: Path) -> None:
    (files,), (command,), (shown,) = (blocks("Called again", one) for one in ("yaml", "sh", "text"))
    write(tmp_path, files)
    done = call_command(*command.split()[1:], folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, shown), done.stderr
    config = tmp_path / "mutators" / "config.yaml"
    condition = "  matchConditions: [{name: once, expression: '!has(object.data.runs)'}]\n"
    config.write_text(config.read_text().replace("  variables:\n", f"{condition}  variables:\n", 1))
    assert call_command(*command.split()[1:], folder=tmp_path).returncode == 0


@pytest.mark.process
def test_the_order_is_that_of_after(tmp_path: Path) -> None:
    (files,), (command,), (shown,) = (blocks("Order", one) for one in ("yaml", "sh", "text"))
    write(tmp_path, files)
    done = call_command(*command.split()[1:], folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, shown), done.stdout + done.stderr
    config = tmp_path / "order" / "config.yaml"
    config.write_text(re.sub("    after: .*\\n", "", config.read_text()))
    without = call_command(*command.split()[1:], folder=tmp_path)
    assert without.returncode == 1
    assert "-    imagePullPolicy: Always" in without.stdout


def test_a_conflict_is_a_note_or_refused(tmp_path: Path) -> None:
    (files, setting), (command,) = (blocks("Conflicts", one) for one in ("yaml", "sh"))
    shown, message = blocks("Conflicts", "text")
    write(tmp_path, files)
    done = call_command(*command.split()[1:], folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr
    write(tmp_path, setting)
    tests = tmp_path / "conflicts" / "tests.yaml"
    tests.write_text(tests.read_text().replace("[config.yaml]", "[config.yaml, gateway.yaml]"))
    refused = call_command(*command.split()[1:], folder=tmp_path)
    assert refused.returncode == 1
    assert "allowed: found false, expected true" in refused.stdout
    assert f"  {message}" in refused.stdout

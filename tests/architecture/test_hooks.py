"""The hooks of pre-commit check what CI checks."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
(REPOSITORY,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
HOOKS = {hook["id"]: hook for hook in REPOSITORY["hooks"]}


def test_the_hooks_run_the_commands_of_ci() -> None:
    """Except that they format files."""
    (lint,) = re.findall(r"^lint: install\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    checks = [line.strip() for line in lint.replace("$(BIN)", ".venv/bin").splitlines()]
    checks += re.findall(r"^\.venv/.*--check$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    entries = [hook["entry"].replace("ruff format", "ruff format --check") for hook in HOOKS.values()]
    assert entries == checks


@pytest.mark.parametrize(
    ("hook", "text", "shown"),
    [("ruff-format", "x  =  1\n", "1 file reformatted"), ("ruff-check", "import os\n", "F401")],
)
def test_a_hook_finds_what_is_wrong(hook: str, text: str, shown: str, tmp_path: Path) -> None:
    """The hooks that are cheap; CI runs the commands of all of them."""
    (tmp_path / "wrong.py").write_text(text)
    program, *arguments = shlex.split(HOOKS[hook]["entry"])
    command = [str(ROOT / program), *arguments, f"--config={ROOT / 'pyproject.toml'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown in done.stdout + done.stderr


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_hook_has_files_to_check(hook: dict[str, object]) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    pattern = str(hook["files"])
    assert [name for name in tracked.stdout.splitlines() if re.search(pattern, name)]

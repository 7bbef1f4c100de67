"""Each command as a process: its output and its status are those that tests see in their own process."""

from __future__ import annotations

import re

import pytest

from gateway.tools.cli import build_parser
from tests.kit import REVIEWS, call_command, run_command

CONFIG = ("--config", "gateway/dev.yaml")
NOBODY = ("--admin", "127.0.0.1:1")
CALLS: dict[str, tuple[int, tuple[object, ...]]] = {
    "serve": (2, ()),
    "check": (0, CONFIG),
    "status": (1, NOBODY),
    "decisions": (1, ("uid", *NOBODY)),
    "review": (1, (REVIEWS / "pod-create-mutate.json", *CONFIG)),
    "preview": (2, ("none", *CONFIG)),
    "test": (2, ("none",)),
    "rollback": (1, ("--state", "none")),
    "rollout": (1, ("status", "--folder", "none")),
    "replay": (2, CONFIG),
    "audit": (2, (*CONFIG, "--max-cpu", "0")),
    "import": (1, ("none",)),
    "migrate": (2, ("none",)),
    "sync": (2, ()),
    "manifests": (0, (*CONFIG, "--service", "a/b")),
    "policies": (0, ()),
    "new": (2, ("pyton", "a")),
    "completion": (0, ("zsh",)),
    "conformance": (2, ()),
    "watchdog": (2, ("--mode", "Exempt")),
}
"""By command, the exit status of a call of it, and the arguments of the call."""


@pytest.mark.process
@pytest.mark.parametrize(("command", "status", "arguments"), [(name, *call) for name, call in CALLS.items()])
def test_a_command_does_the_same_as_a_process(
    command: str, status: int, arguments: tuple[object, ...]
) -> None:
    process, here = run_command(command, *arguments), call_command(command, *arguments)
    # The time and the socket of a worker that it starts are its own.
    found, expected = (
        (one.returncode, one.stdout, re.sub(r"^\S+Z|unix:\S+", "", one.stderr)) for one in (process, here)
    )
    assert found == expected
    assert process.returncode == status
    assert process.stdout + process.stderr


def test_every_command_is_run_as_a_process() -> None:
    (commands,) = (one.choices for one in build_parser()._actions if one.dest == "command")
    assert commands is not None
    assert set(commands) == set(CALLS)

"""State of processes, from /proc."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal


def state_of(pid: int) -> str:
    """Return the state of *pid*, see proc(5), empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def runs(pid: int) -> bool:
    """Return whether *pid* runs; a zombie does not."""
    return state_of(pid) not in ("", "Z")


def expects(pid: int, number: signal.Signals) -> bool:
    """Return whether *pid* ignores or catches a signal."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    mask = int(fields["SigIgn"], 16) | int(fields["SigCgt"], 16)
    return bool(mask >> (number - 1) & 1)


def children_of(pid: int) -> list[int]:
    """Return the processes that *pid* started and has not waited for, oldest first."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def lines(file: Path) -> list[str]:
    """Return the complete lines of *file*."""
    return file.read_text().split("\n")[:-1] if file.exists() else []

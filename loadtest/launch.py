"""How the processes that serve in a benchmark are started, waited for and stopped.

``gateway.process.parent_death`` runs them: if the benchmark is killed, the kernel ends them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).parents[1]
START_WITHIN_S: Final = 30.0
STOP_WITHIN_S: Final = 15.0
_POLL_S: Final = 0.02

Ready = TypeVar("Ready")


class BenchError(Exception):
    """The benchmark cannot go on; the text is for a person."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started, and may not serve yet."""

    name: str
    pid: int
    _process: subprocess.Popen[bytes]
    _log: Path

    def until(self, look: Callable[[str], Ready | None]) -> Ready:
        """Return what *look* makes of the log so far, as soon as that is not None.

        Raises:
            BenchError: the process ended first, or it took too long.
        """
        give_up = time.monotonic() + START_WITHIN_S
        while time.monotonic() < give_up:
            has_ended = self._process.poll() is not None
            text = self._log.read_text(errors="replace")
            found = look(text)
            if found is not None:
                return found
            if has_ended:
                raise BenchError(f"{self.name} ended with status {self._process.returncode}:\n{text[-2000:]}")
            time.sleep(_POLL_S)
        raise BenchError(f"{self.name} does not serve after {START_WITHIN_S:g} s:\n{text[-2000:]}")

    def says(self, pattern: str) -> str:
        """Return the first group of *pattern*, once the log has it.

        Raises:
            BenchError: as ``until``.
        """

        def look(text: str) -> str | None:
            found = re.search(pattern, text)
            return found[1] if found else None

        return self.until(look)


@contextmanager
def launched(name: str, command: Sequence[str], log: Path) -> Iterator[Child]:
    """Start *command* in the root of the repository, and stop it in the end.

    Args:
        name: For messages.
        command: A program and its arguments.
        log: Where its output goes.
    """
    parent_death = [sys.executable, "-m", "gateway.process.parent_death", str(os.getpid())]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*parent_death, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield Child(name, process.pid, process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

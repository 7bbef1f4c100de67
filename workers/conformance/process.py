"""The worker's process, for the rules of how it stops: one that runs already, or one that the kit starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Sequence

START_S: Final = 60.0
"""For a command that builds before it runs, or starts a virtual machine."""
_LOOK_S: Final = 0.02
_END_S: Final = 15.0
"""For a worker that was told to stop once the kit is done with it: its grace, and some more."""


class Process(Protocol):
    """A worker that can be told to stop."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def has_ended(self) -> bool:
        """Whether it is gone."""

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None if it is not known."""


class Running:
    """A process that somebody else has started, and whose exit status nobody here gets to know."""

    status = None

    def __init__(self, pid: int) -> None:
        """Take note of *pid*.

        Raises:
            GatewayError: there is no such process, or it cannot be sent a signal.
        """
        self.pid = pid
        try:
            os.kill(pid, 0)
        except OSError as error:
            raise GatewayError(f"--pid {pid}: {error.strerror}") from None

    def terminate(self) -> None:
        """Send SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def has_ended(self) -> bool:
        """Whether it is gone, or only waits for its parent to take note of that."""
        with contextlib.suppress(OSError, IndexError):
            # proc(5): the state follows the name, which may hold anything.
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False


class Started:
    """A command that serves a unix socket in a folder of its own. To be closed."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start *command* with ``--listen unix:PATH`` behind it, as WorkerPools do.

        Raises:
            GatewayError: it cannot be started.
        """
        self._name = command[0]
        self._folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self._socket = self._folder / "worker.sock"
        self.target = f"unix:{self._socket}"
        self._log = self._folder / "log"
        # So that it does not outlive a kit that is killed.
        parent_death = [sys.executable, "-m", "gateway.process.parent_death", str(os.getpid())]
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                [*parent_death, *command, "--listen", self.target],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._child.poll()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._child.terminate()

    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self._child.poll() is not None

    async def listening(self) -> None:
        """Return when it takes connections at its socket.

        Raises:
            GatewayError: it ended instead, or takes too long.
        """
        deadline = time.monotonic() + START_S
        while not await self._is_listening():
            if self.has_ended():
                raise GatewayError(f"{self._name} ended with exit status {self.status}{self._last_words()}")
            if time.monotonic() > deadline:
                raise GatewayError(f"{self._name} does not listen after {START_S:g} s{self._last_words()}")
            await asyncio.sleep(_LOOK_S)

    async def _is_listening(self) -> bool:
        # The file is there from when the worker binds the socket, which is before it listens.
        try:
            _, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        writer.close()
        return True

    async def close(self) -> None:
        """End it, with whatever it has started itself."""
        if not self.has_ended():
            self.terminate()
        await ended(self, _END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""


async def ended(process: Process, within_s: float) -> bool:
    """Return whether *process* ends within so many seconds."""
    deadline = time.monotonic() + within_s
    while not process.has_ended():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_S)
    return True

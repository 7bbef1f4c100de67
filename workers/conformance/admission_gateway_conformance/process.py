"""The process of the worker, for the shutdown rules: a running process, or one that the kit starts."""

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

from gateway.base.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Sequence

START_S: Final = 60.0
"""Timeout of the start; some commands build first or start a virtual machine."""
_LOOK_S: Final = 0.02
_END_S: Final = 15.0
"""Timeout of the shutdown: the grace period of the worker, and a margin."""


class Process(Protocol):
    """A worker process that the kit can stop."""

    @property
    def pid(self) -> int:
        """Process id."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def has_ended(self) -> bool:
        """Whether the process has ended."""

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None if unknown."""


class Running:
    """A process that was started elsewhere; its exit status is unknown."""

    status = None

    def __init__(self, pid: int) -> None:
        """Check that the process *pid* exists.

        Raises:
            GatewayError: the process does not exist, or cannot be signalled.
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
        """Whether the process has ended; a zombie has ended."""
        with contextlib.suppress(OSError, IndexError):
            # proc(5): the state follows the name, which may contain any characters.
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False


class Started:
    """A command that serves a unix socket in a temporary folder. Call ``close`` at the end."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start *command* with ``--listen unix:PATH`` appended, as a WorkerPool does.

        Raises:
            GatewayError: the command cannot be started.
        """
        self._name = command[0]
        self._folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self._socket = self._folder / "worker.sock"
        self.target = f"unix:{self._socket}"
        self._log = self._folder / "log"
        # So that it does not outlive a kit that is killed.
        parent_death = [sys.executable, "-m", "gateway.server.process.parent_death", str(os.getpid())]
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
        """Process id."""
        return self._child.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while the process runs."""
        return self._child.poll()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._child.terminate()

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._child.poll() is not None

    async def listening(self) -> None:
        """Return when the worker accepts connections.

        Raises:
            GatewayError: the process ended, or the start timed out.
        """
        deadline = time.monotonic() + START_S
        while not await self._is_listening():
            if self.has_ended():
                raise GatewayError(f"{self._name} ended with exit status {self.status}{self._last_words()}")
            if time.monotonic() > deadline:
                raise GatewayError(f"{self._name} does not listen after {START_S:g} s{self._last_words()}")
            await asyncio.sleep(_LOOK_S)

    async def _is_listening(self) -> bool:
        # The file exists as soon as the socket is bound, before the worker listens.
        try:
            _, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        writer.close()
        return True

    async def close(self) -> None:
        """Stop the worker and all processes that it started."""
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


async def ended(process: Process, timeout_s: float) -> bool:
    """Return whether *process* ends within *timeout_s* seconds."""
    deadline = time.monotonic() + timeout_s
    while not process.has_ended():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_S)
    return True

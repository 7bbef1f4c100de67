"""Supervised child processes: restarted with back-off, stopped with a grace period."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.server.process.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

FIRST_BACKOFF_S: Final = 0.25
"""Before the second restart; the first one is at once."""
MAX_BACKOFF_S: Final = 10.0
STEADY_S: Final = 30.0
"""After a child has run this long, the back-off starts over."""

_POLL_S: Final = 0.01


class Child:
    """A command that is restarted whenever it ends. Make it on a running event loop."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        after: asyncio.Task[None] | None = None,
        *,
        logs_output: bool = False,
        effect: str = "",
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start *command*, called *name* in the log, when *after* has ended.

        *effect* is what follows while it cannot be started, for the log.
        It inherits *descriptors*.
        With *logs_output* each line of its output is logged; otherwise it has the gateway's own standard
        output and error.
        """
        self.name = name
        self._effect = f"; {effect}" if effect else ""
        self._command = command
        self._descriptors = descriptors
        self._output = Output(name) if logs_output else None
        self._process: asyncio.subprocess.Process | None = None
        self.status = 0
        """The last exit status of the command. Below 0, a signal of that number ended it."""
        self._keeper = asyncio.create_task(self._keep(after))

    @property
    def pid(self) -> int | None:
        """The process id of the command; None while it does not run."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def ended_within(self, timeout_s: float) -> bool:
        """Return whether the command that runs now has ended in *timeout_s* seconds; True if none runs."""
        process = self._process
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), timeout_s)
            except TimeoutError:
                return False
        return True

    def kill(self) -> None:
        """Kill the command and all processes that it started, and do not restart it."""
        self._keeper.cancel()
        if self._process is not None:
            _signal_group(self._process, signal.SIGKILL)
        self._close_output()

    def replace(self) -> None:
        """Kill the command and all processes that it started; it is restarted."""
        if self._process is not None:
            _signal_group(self._process, signal.SIGKILL)

    async def stop(self, grace_s: float) -> None:
        """End the command and all processes that it started: SIGTERM, and SIGKILL after *grace_s* seconds."""
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        process = self._process
        if process is not None:
            await self._end(process, grace_s)
        self._close_output()

    def _close_output(self) -> None:
        if self._output is not None:
            self._output.close()

    async def _end(self, process: asyncio.subprocess.Process, grace_s: float) -> None:
        _signal_group(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(_group_ended(process), grace_s)
        except TimeoutError:
            log.warning("killed after the grace period: %s did not end within %g s", self.name, grace_s)
            _signal_group(process, signal.SIGKILL)
            await process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the command itself, if it is running."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _keep(self, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        backoff_s = 0.0
        problem = ""
        while True:
            started = time.monotonic()
            try:
                status = await self._run_once()
            except OSError as error:
                if str(error) != problem:
                    problem = str(error)
                    text = "cannot start %s: %s: %s; trying again every %g s at most%s"
                    log.error(text, self.name, self._command[0], error.strerror, MAX_BACKOFF_S, self._effect)
            else:
                problem = ""
                log.warning("process ended, restarting it: %s, status %d", self.name, status)
            if time.monotonic() - started >= STEADY_S:
                backoff_s = 0.0
            await asyncio.sleep(backoff_s)
            backoff_s = min(MAX_BACKOFF_S, max(FIRST_BACKOFF_S, backoff_s * 2))

    async def _run_once(self) -> int:
        """Run the command, and return its exit status.

        Raises:
            OSError: it cannot be executed.
        """
        reading, failure = os.pipe()
        try:
            try:
                self._process = await _start(self._command, self._output, failure, self._descriptors)
            finally:
                os.close(failure)
            self.status = status = await self._process.wait()
            # Processes that it left behind would interfere with the next one.
            _signal_group(self._process, signal.SIGKILL)
            self._process = None
            os.set_blocking(reading, False)
            with contextlib.suppress(BlockingIOError):
                if number := os.read(reading, 16):
                    raise OSError(int(number), os.strerror(int(number)))
            return status
        finally:
            os.close(reading)


async def _start(
    command: Sequence[str], output: Output | None, failure: int, descriptors: Sequence[int]
) -> asyncio.subprocess.Process:
    """Start *command* with *descriptors*.

    The pipe *failure* gets the error number if it cannot be executed.
    """
    # The folder of the gateway's own interpreter comes first, so that `python` is that of its environment.
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))
    # A session of its own: Ctrl-C in a terminal signals only the gateway, which stops its children last. The
    # child is also the leader of a process group, by which signals reach all processes that it starts.
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.server.process.parent_death", f"{os.getpid()}:{failure}"),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=None if output is None else output.writing,
        stderr=None if output is None else output.writing,
        env={**os.environ, "PATH": path},
        start_new_session=True,
        pass_fds=[failure, *descriptors],
    )


def _signal_group(leader: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, number)


async def _group_ended(leader: asyncio.subprocess.Process) -> None:
    """Return when all processes of the group of *leader* have ended."""
    await leader.wait()
    with contextlib.suppress(ProcessLookupError):
        while True:
            # As the init process of a container the gateway inherits and has to reap them.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-leader.pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait
            os.killpg(leader.pid, 0)
            await asyncio.sleep(_POLL_S)

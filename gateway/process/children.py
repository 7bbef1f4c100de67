"""Child processes that are to run all the time: started again with back-off, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

FIRST_BACKOFF_S: Final = 0.25
MAX_BACKOFF_S: Final = 10.0
STEADY_S: Final = 30.0
"""A child that ran for so long starts over with the shortest back-off."""


class Child:
    """A command kept running. Make it on a running event loop."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.pid: int | None = None
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self, grace_s: float) -> None:
        """End it: SIGTERM, and SIGKILL after *grace_s* seconds."""
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except TimeoutError:
            log.warning("%s did not end within %g s: killed", self.name, grace_s)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def signal(self, number: int) -> None:
        """Pass a signal on, if it is running."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _keep(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            started = time.monotonic()
            try:
                self._process = await _start(self._command)
            except OSError as error:
                log.error("%s cannot be started: %s", self.name, error)
            else:
                self.pid = self._process.pid
                status = await self._process.wait()
                log.warning("%s ended with status %d; starting it again", self.name, status)
            if time.monotonic() - started >= STEADY_S:
                backoff_s = FIRST_BACKOFF_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)


async def _start(command: Sequence[str]) -> asyncio.subprocess.Process:
    # The gateway's own interpreter is found first, so that `python` means the environment it runs in.
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))
    # A session of its own: Ctrl-C in a terminal is for the gateway alone, which stops its children last.
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.process.leash", str(os.getpid())),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PATH": path},
        start_new_session=True,
    )

"""Programs that make credentials (``exec`` of a kubeconfig): run once, and ended with whoever had them run.

Source: k8s.io/client-go plugin/pkg/client/auth/exec/exec.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PluginError(Exception):
    """The program failed; the text says how, in its own words, too."""

    def __init__(self, command: str, status: int, said: str) -> None:
        super().__init__(f"Exec {command} returned {status}: {said}")
        self.status = status


async def run_plugin(command: Sequence[str], variables: Mapping[str, str]) -> bytes:
    """Return what *command* prints, with *variables* as its whole environment.

    Cancelled, it kills the program and all that it has started.

    Raises:
        PluginError: it ends with another status than 0.
        OSError, ValueError: it cannot be started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A group of its own, by which what it starts itself is reached.
            start_new_session=True,
        )
    )
    try:
        # A cancellation while the program starts would leave it running, known to nobody.
        process = await asyncio.shield(starting)
        printed, said = await process.communicate()
    except asyncio.CancelledError:
        process = await starting
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Its end is seen here, not by a loop that may be closed by then.
        await process.wait()
        raise
    if process.returncode:
        raise PluginError(command[0], process.returncode, said.decode(errors="replace"))
    return printed

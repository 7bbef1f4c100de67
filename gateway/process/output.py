"""What a local worker writes to its standard output and error, as records of the gateway's log.

A worker prints texts of reviews. Written to the gateway's own standard error they could pass for its records.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Final

log = logging.getLogger("gateway.worker_output")
log.setLevel(logging.INFO)  # also in commands that log nothing else: here a policy says why it failed

LINE_BYTES: Final = 4096
"""A longer line becomes several records."""
_READ_BYTES: Final = 4096
"""At once, so that a worker that writes a lot holds up reviews for no longer than a millisecond."""
_LAST_READS: Final = 64
"""As much as a pipe holds, with reads of this size."""


class Output:
    """A pipe whose lines are logged. Make it on a running event loop, and close it."""

    def __init__(self, name: str) -> None:
        """*name* stands before each line."""
        self._name = name
        self._reading, self.writing = os.pipe()
        """``writing`` is for the worker."""
        os.set_blocking(self._reading, False)
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._read)
        self._is_open = True

    def close(self) -> None:
        """Log what has been written so far, and close the pipe."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._reading)
        for _ in range(_LAST_READS):
            if not self._read():
                break
        self._log(self._rest)
        os.close(self._reading)
        os.close(self.writing)

    def _read(self) -> bool:
        """Log the next lines; return whether there was something to read."""
        try:
            found = os.read(self._reading, _READ_BYTES)
        except BlockingIOError:
            return False
        *lines, rest = (self._rest + found).split(b"\n")
        whole = len(rest) - len(rest) % LINE_BYTES
        for line in (*lines, rest[:whole]):
            self._log(line)
        self._rest = rest[whole:]
        return bool(found)

    def _log(self, line: bytes) -> None:
        for start in range(0, len(line), LINE_BYTES):
            text = line[start : start + LINE_BYTES].decode(errors="backslashreplace")
            log.info("%s: %s", self._name, text)

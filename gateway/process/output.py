"""The standard output and error of a local worker, as records of the gateway's log.

A worker may print texts of reviews. Written to the gateway's own standard error they could be forged records.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Final

log = logging.getLogger("gateway.worker_output")
log.setLevel(logging.INFO)  # also in commands that log nothing else: the output has the errors of policies

LINE_BYTES: Final = 4096
"""A longer line is split into several records."""
_READ_BYTES: Final = 4096
"""Of one read, so that much output delays reviews by a millisecond at most."""
_LAST_READS: Final = 64
"""Reads of this size that empty a full pipe."""


class Output:
    """A pipe whose lines are logged. Make it on a running event loop, and close it."""

    def __init__(self, name: str) -> None:
        """*name* is the prefix of each line."""
        self._name = name
        self._reading, self.writing = os.pipe()
        """``writing`` is for the worker."""
        os.set_blocking(self._reading, False)
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._read)
        self._is_open = True

    def close(self) -> None:
        """Log the rest of the output, and close the pipe."""
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
        """Log the next lines; return whether there was output."""
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

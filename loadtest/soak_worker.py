"""A worker that counts what it sees in a file, so that the counts outlive it, and can cut its connections.

``python -m loadtest.soak_worker COUNTS --listen …`` takes the arguments of any worker after the file. SIGUSR1
shuts down every connection that was made to it, as a network would: the process lives on.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import stat
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest.worker import LABEL
from workers import Denied, PolicyServer

if TYPE_CHECKING:
    from types import FrameType

    from workers import Review

ALLOWS: Final = "allows"
DENIES: Final = "denies"
LABELS: Final = "labels"
NEVER: Final = "never"
"""Gets no answer, as long as anybody waits for one."""
POLICIES: Final = (ALLOWS, DENIES, LABELS, NEVER)
_LAYOUT: Final = f"={2 * len(POLICIES)}Q"
COUNTS_BYTES: Final = struct.calcsize(_LAYOUT)
"""What a file of counts has: for each policy how many calls were seen, and how many answered."""


class Counts:
    """The counts in one file. One process at a time may add to them; whoever reads sees each at once."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), COUNTS_BYTES)).cast("Q")
        # A policy that was slow once is moved to a thread.
        self._lock = threading.Lock()

    def seen(self, policy: str) -> None:
        """Count a call that has arrived."""
        with self._lock:
            self._numbers[2 * POLICIES.index(policy)] += 1

    def answered(self, policy: str) -> None:
        """Count a call whose verdict is on its way."""
        with self._lock:
            self._numbers[2 * POLICIES.index(policy) + 1] += 1


def make_counts(path: Path) -> None:
    """Make a file in which nothing is counted yet."""
    path.write_bytes(bytes(COUNTS_BYTES))


def read_counts(path: Path) -> tuple[int, int]:
    """Return how many calls were seen, and how many answered, of all policies together."""
    numbers = struct.unpack(_LAYOUT, path.read_bytes())
    return sum(numbers[::2]), sum(numbers[1::2])


def make_server(counts: Counts) -> PolicyServer:
    """Return a server with all of ``POLICIES``, which count in *counts*."""
    server = PolicyServer()

    @server.policy(ALLOWS)
    def allows(review: Review) -> None:
        counts.seen(ALLOWS)
        counts.answered(ALLOWS)

    @server.policy(DENIES)
    def denies(review: Review) -> None:
        counts.seen(DENIES)
        counts.answered(DENIES)
        raise Denied("not in this soak")

    @server.policy(LABELS, mutating=True)
    def labels(review: Review) -> None:
        counts.seen(LABELS)
        if review.object is not None:
            review.object["metadata"].setdefault("labels", {})[LABEL] = "yes"
        counts.answered(LABELS)

    @server.policy(NEVER)
    async def never(review: Review) -> None:
        counts.seen(NEVER)
        await asyncio.Event().wait()

    return server


def cut_connections(_signal: int, _frame: FrameType | None) -> None:
    """Shut down every connection that was made to this process over a unix socket."""
    for entry in Path("/proc/self/fd").iterdir():
        # One of them was open for this look alone.
        with suppress(OSError):
            fd = int(entry.name)
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as connection:
                listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if connection.family == socket.AF_UNIX and connection.getsockname() and not listens:
                    connection.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, cut_connections)
    make_server(Counts(Path(sys.argv[1]))).main(sys.argv[2:])

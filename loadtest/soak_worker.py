"""The worker of the soak: it counts its calls in files, and can cut its connections.

``python -m loadtest.soak_worker COUNTS --listen …`` takes the arguments of any worker after the prefix of the
files. Each call appends a byte to ``COUNTS.received``, and each answer a byte to ``COUNTS.answered``: the
sizes of the files are the counts, also after ``kill -9``. SIGUSR1 shuts down every connection to the worker,
as a network failure would.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admission_gateway_worker import Denied, PolicyServer
from loadtest.worker import LABEL

if TYPE_CHECKING:
    from types import FrameType

    from admission_gateway_worker import Review

ALLOWS: Final = tuple(f"allows-{number}" for number in range(4))
DENIES: Final = "denies"
LABELS: Final = "labels"
NEVER: Final = "never"
"""The policy that never answers."""
DENIAL: Final = "denied by the soak"
COUNTS: Final = ("received", "answered")


def counts(prefix: Path) -> tuple[int, int]:
    """Return how many calls the worker of *prefix* received and how many it answered."""
    received, answered = (prefix.with_suffix(f".{name}") for name in COUNTS)
    return tuple(path.stat().st_size if path.exists() else 0 for path in (received, answered))  # type: ignore[return-value]


def make_server(prefix: Path) -> PolicyServer:
    """Return a server whose policies count in the files of *prefix*."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    received, answered = (os.open(prefix.with_suffix(f".{name}"), flags) for name in COUNTS)

    def count() -> None:
        os.write(received, b".")
        os.write(answered, b".")

    server = PolicyServer()

    def allow(review: Review) -> None:
        count()

    for name in ALLOWS:
        server.policy(name)(allow)

    @server.policy(DENIES)
    def deny(review: Review) -> None:
        count()
        raise Denied(DENIAL)

    @server.policy(LABELS, mutating=True)
    def label(review: Review) -> None:
        if review.object is not None:
            review.object["metadata"].setdefault("labels", {})[LABEL] = "yes"
        count()

    @server.policy(NEVER)
    async def wait(review: Review) -> None:
        os.write(received, b".")
        await asyncio.Event().wait()

    return server


def cut_connections(_signal: int, _frame: FrameType | None) -> None:
    """Shut down every connection that was accepted on a unix socket."""
    for entry in Path("/proc/self/fd").iterdir():
        # The descriptor of this listing is closed by now.
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
    make_server(Path(sys.argv[1])).main(sys.argv[2:])

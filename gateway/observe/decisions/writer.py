"""Writes records from the event loop to a sink in a thread, so that a sink that blocks never blocks the loop.

Records wait in a queue of bounded size, and are given to the thread together, a few times a second.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import queue
import select
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gateway.config.kinds.logging_settings import DecisionFile

log = logging.getLogger(__name__)

FLUSH_S: Final = 0.1
"""How long a record waits for others."""
DROPPED_S: Final = 1.0
"""How long the record of dropped ones waits for further ones."""
MAX_QUEUED: Final = 2000
"""Records that wait, besides as many that are being written."""
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of lines that wait, likewise. Other records have about the size of lines."""
_ATOMIC_BYTES: Final = 4096
"""PIPE_BUF of Linux: other writers of the pipe cannot write into the middle of so many bytes."""

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


class Sink(Protocol[Item_contra]):
    """Where records go. Only the writer's thread calls it."""

    name: str
    """Its name in messages."""

    def write(self, items: Sequence[Item_contra]) -> None:
        """Write *items*; may block.

        Raises:
            Exception: some were not written.
        """

    def close(self) -> None:
        """Release what it holds; there are no more records."""


class Writer(Generic[Item]):
    """The queue and the thread of one sink. Make it on the event loop that calls it."""

    def __init__(
        self,
        sink: Sink[Item],
        dropped_item: Callable[[int], Item],
        count_dropped: Callable[[int], None],
        purpose: str = "decision log",
    ) -> None:
        """Write to *sink*.

        *dropped_item* returns the record in place of so many dropped ones. *count_dropped* is called with
        the number of records whenever some were dropped. *purpose* is for messages.
        """
        self._purpose = purpose
        self._sink = sink
        self._dropped_item = dropped_item
        self._count_dropped = count_dropped
        self._dropped = 0
        """Records for which no other record stands yet."""
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Item] = []
        self._waiting_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._is_busy = False
        self._batches: queue.SimpleQueue[list[Item] | None] = queue.SimpleQueue()
        self._has_failed = False
        # A daemon: a sink that blocks for ever must not keep the process from its end.
        self._thread = threading.Thread(target=self._run, name=purpose.replace(" ", "-"), daemon=True)
        self._thread.start()

    def write(self, items: Sequence[Item]) -> None:
        """Have *items* written soon, and drop those for which too many wait."""
        room = MAX_QUEUED - len(self._waiting) if self._waiting_bytes <= MAX_QUEUED_BYTES else 0
        if len(items) > room:
            self.drop(len(items) - room)
            items = items[:room]
        self._waiting += items
        self._waiting_bytes += sum(len(item) for item in items if isinstance(item, bytes))
        self._flush_later(FLUSH_S)

    def drop(self, number: int) -> None:
        """Count *number* dropped records, and note them in a record."""
        self._count_dropped(number)
        self.note_dropped(number)

    def note_dropped(self, number: int) -> None:
        """Note *number* dropped records, which are counted already, in a record."""
        self._dropped += number
        self._flush_later(DROPPED_S)

    def _flush_later(self, seconds: float) -> None:
        if self._timer is None and not self._is_busy:
            self._timer = self._loop.call_later(seconds, self._flush)

    def _flush(self) -> None:
        self._timer = None
        batch, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        if self._dropped:
            batch.append(self._dropped_item(self._dropped))
            self._dropped = 0
        if batch:
            self._is_busy = True
            self._batches.put(batch)

    def _written(self, lost: int) -> None:
        self._is_busy = False
        if lost:
            self.drop(lost)
        if self._waiting:
            self._flush_later(FLUSH_S)
        elif self._dropped:
            self._flush_later(DROPPED_S)

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            lost = 0
            try:
                self._sink.write(batch)
                self._has_failed = False
            except Exception as error:
                lost = len(batch)
                if not self._has_failed:
                    self._has_failed = True
                    log.warning("records are dropped: %s: %s: %s", self._purpose, self._sink.name, error)
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._written, lost)
        self._sink.close()

    def close(self) -> threading.Thread:
        """Write the records that wait, and end; return the thread, which ends soon."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        self._batches.put(None)
        return self._thread


class DescriptorSink:
    """Standard error, or another descriptor that other writers share."""

    name = "standard error"

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor

    def write(self, items: Sequence[bytes]) -> None:
        """Write lines, together as long as no other writer can write between them."""
        chunk = b""
        for line in items:
            if chunk and len(chunk) + len(line) > _ATOMIC_BYTES:
                self._write(chunk)
                chunk = b""
            chunk += line
        self._write(chunk)

    def _write(self, content: bytes) -> None:
        while content:
            try:
                content = content[os.write(self._descriptor, content) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])

    def close(self) -> None:
        """Leave the descriptor open."""


class FileSink:
    """A file that is renamed when it is full.

    Several processes of one machine may write to it, and other programs may rename it.
    """

    def __init__(self, settings: DecisionFile) -> None:
        self.name = str(settings.path)
        self._path = settings.path
        self._max_bytes = settings.max_bytes
        self._keep = settings.keep
        self._is_torn = False
        """Whether the last line may lack its end."""

    def write(self, items: Sequence[bytes]) -> None:
        """Append lines."""
        content = b"".join(items)
        with self._locked():
            while content:
                descriptor = self._open()
                try:
                    size = os.fstat(descriptor).st_size
                    room = self._max_bytes - size
                    # At least one line in an empty file, however long it is.
                    end = len(content) if len(content) <= room else content.rfind(b"\n", 0, max(room, 0)) + 1
                    end = end or (content.index(b"\n") + 1 if not size else 0)
                    self._append(descriptor, content[:end])
                finally:
                    os.close(descriptor)
                content = content[end:]
                if content:
                    self._rotate()

    def _append(self, descriptor: int, content: bytes) -> None:
        """Write *content*, one write for all of its lines: each write releases the interpreter's lock."""
        rest = b"\n" + content if self._is_torn else content
        self._is_torn = True
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        self._is_torn = False

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _rotate(self) -> None:
        """Rename the file to ``PATH.1``, and the older ones to the next number."""
        path = self._path
        if not self._keep:
            path.unlink()
            return
        for number in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._numbered(number).rename(self._numbered(number + 1))
        path.rename(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder, against the other processes."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def close(self) -> None:
        """Nothing stays open between two batches."""

"""The files of recordings: compressed JSON lines, in a bounded number of files.

A new file begins when one is full or old. Each process writes files of its own, so that several processes and
machines can share a folder. A process holds a lock (flock) on the file that it writes; files without one are
complete, or those of a process that died, and only these are deleted. Every batch of lines ends with a flush,
so that a file that lacks its end can be read up to the last batch.

Source: RFC 1952 (gzip).
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.kinds.record_settings import RecordSettings

SUFFIX: Final = ".jsonl.gz"
NEW_FILE_S: Final = 3600.0
"""How long a file is written: deletion by age deletes whole files."""
_LEVEL: Final = 1
"""The fastest: recordings of a cluster shrink to a tenth even so."""
_GZIP: Final = zlib.MAX_WBITS | 16
_OURS: Final = re.compile(r"recording-[0-9TZ]{16}-[A-Za-z0-9_.-]{1,80}\.jsonl\.gz")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9.]")


class RecordingFiles:
    """Writes lines to one file after another. Only the writer's thread uses it."""

    def __init__(
        self,
        settings: RecordSettings,
        header: Callable[[float, int], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*header* returns the first line of a file that begins at a time, written by a process."""
        self.name = str(settings.folder)
        self._settings = settings
        self._header = header
        self._clock = clock
        self._number = 0
        self._descriptor = -1
        """-1: no file is open."""
        self._bytes = 0
        self._began_at = 0.0

    def write(self, items: Sequence[bytes]) -> None:
        """Append lines."""
        if self._descriptor >= 0 and (
            self._bytes >= self._settings.max_file_bytes or self._clock() >= self._began_at + NEW_FILE_S
        ):
            self._finish()
        try:
            content = b"".join(items)
            if self._descriptor < 0:
                self._open()
                content = self._header(time.time(), os.getpid()) + content
            self._append(self._compressor.compress(content) + self._compressor.flush(zlib.Z_SYNC_FLUSH))
        except BaseException:
            # The rest of a line may be missing: what follows would be unreadable.
            self._abandon()
            raise

    def _open(self) -> None:
        folder = self._settings.folder
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        self._delete_old()
        self._number += 1
        second = re.sub(r"[-:]", "", rfc3339(time.time()))
        host = _OTHERS.sub("-", socket.gethostname())[:40]
        path = folder / f"recording-{second}-{host}-{os.getpid()}-{self._number:06}{SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._bytes = 0
        self._began_at = self._clock()

    def _delete_old(self) -> None:
        """Delete files that are too old, and the oldest while there is no room for another one."""
        found = []
        for entry in os.scandir(self._settings.folder):
            with suppress(OSError):
                if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_mtime, entry.path))
        found.sort()
        too_many = len(found) - self._settings.max_files + 1
        oldest = time.time() - self._settings.max_age_s
        for number, (_, changed_at, path) in enumerate(found):
            if number < too_many or changed_at < oldest:
                _delete_unless_locked(path)

    def _append(self, content: bytes) -> None:
        while content:
            written = os.write(self._descriptor, content)
            self._bytes += written
            content = content[written:]

    def _finish(self) -> None:
        try:
            self._append(self._compressor.flush())
        finally:
            self._abandon()

    def _abandon(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def close(self) -> None:
        """Finish the file."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._finish()


def _delete_unless_locked(path: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(path).unlink()
        finally:
            os.close(descriptor)

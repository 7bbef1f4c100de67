"""States and evidence in a folder, for the processes of one host, without a cluster.

    states/NAME.json      ``{"version": N, "document": {...}}``
    evidence/NAME.json
    lock                  held while a state is compared and replaced

The folder belongs to the user of the gateway alone. Each file is replaced as a whole. Other processes see a
change within ``LOOK_S``.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.private_folder import PrivateFolder, read_small_json
from gateway.server.rollout.store import MAX_BYTES, MAX_EVIDENCE, STATE, Json, Stored, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
_SUFFIX: Final = ".json"
_MAX_STATES: Final = 10_000
_Seen = dict[str, tuple[tuple[int, int], Stored]]
"""By name, the inode and time of change of a file, and what it had."""


class FolderStore:
    """A store in the folder at *path*. See ``PlanStore``."""

    def __init__(self, path: Path, changed: Callable[[], None] = lambda: None) -> None:
        """*changed* is called after each change that is observed."""
        self._folder = PrivateFolder(path, StoreError)
        self._states = PrivateFolder(path / "states", StoreError)
        self._evidence = PrivateFolder(path / "evidence", StoreError)
        self._changed = changed
        self._seen: tuple[_Seen, _Seen] = ({}, {})
        self.states: Mapping[str, Stored] = {}
        self.evidence: Mapping[str, Stored] = {}
        self.is_synced = False
        self.fault = "the folder has not been read yet"
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See ``PlanStore``."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """See ``PlanStore``."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("the folder of rollout plans cannot be read: internal error")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read what has changed."""
        try:
            states, evidence = await asyncio.to_thread(self._read)
        except StoreError as error:
            if str(error) != self.fault:
                log.warning("rollout plans keep the stages that they have: %s", error)
            self.fault = str(error)
            return
        is_first, before = not self.is_synced, self._seen
        self._seen = states, evidence
        self.states = {name: one for name, (_, one) in states.items()}
        self.evidence = {name: one for name, (_, one) in evidence.items()}
        self.is_synced, self.fault = True, ""
        if is_first or before != self._seen:
            self._changed()

    def _read(self) -> tuple[_Seen, _Seen]:
        for folder in (self._folder, self._states, self._evidence):
            folder.require()
        states, evidence = self._seen
        return (
            _read_all(self._states.path, states, _MAX_STATES),
            _read_all(self._evidence.path, evidence, MAX_EVIDENCE),
        )

    async def replace(self, name: str, before: Stored | None, document: Json) -> bool:
        """See ``PlanStore``."""
        done = await asyncio.to_thread(self._replace, name, before, document)
        await self.look()
        return done

    def _replace(self, name: str, before: Stored | None, document: Json) -> bool:
        for folder in (self._folder, self._states):
            folder.require()
        with self._locked():
            present = _read_one(self._states.path / (name + _SUFFIX))
            if (None if present is None else present.version) != (None if before is None else before.version):
                return False
            version = 1 if present is None else int(present.version) + 1
            _write(self._states, name, {"version": version, "document": document})
            return True

    async def put_evidence(self, name: str, document: Json) -> None:
        """See ``PlanStore``."""
        await asyncio.to_thread(self._put_evidence, name, document)

    def _put_evidence(self, name: str, document: Json) -> None:
        self._evidence.require()
        path = self._evidence.path / (name + _SUFFIX)
        present = _read_one(path)
        if present is None and len(list(self._evidence.path.glob(f"*{_SUFFIX}"))) >= MAX_EVIDENCE:
            raise StoreError(f"{self._evidence.path} has the evidence of {MAX_EVIDENCE} processes already")
        version = 1 if present is None else int(present.version) + 1
        _write(self._evidence, name, {"version": version, "document": document})

    async def remove(self, kind: str, one: Stored) -> None:
        """See ``PlanStore``."""
        folder = self._states if kind == STATE else self._evidence
        await asyncio.to_thread(self._remove, folder.path / (one.name + _SUFFIX), one)

    def _remove(self, path: Path, one: Stored) -> None:
        with self._locked():
            if _read_one(path) == one:
                with suppress(OSError):
                    path.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self._folder.path / "lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _write(folder: PrivateFolder, name: str, content: Json) -> None:
    body = orjson.dumps(content)
    if len(body) > MAX_BYTES:
        raise StoreError(f"{folder.path / name} would have {len(body)} bytes, expected at most {MAX_BYTES}")
    folder.write(name + _SUFFIX, body)


def _read_all(folder: Path, seen: _Seen, most: int) -> _Seen:
    found: _Seen = {}
    try:
        for entry in os.scandir(folder):
            name = entry.name.removesuffix(_SUFFIX)
            if name == entry.name or name.startswith(".") or len(found) >= most:
                continue
            status = entry.stat(follow_symlinks=False)
            mark = status.st_ino, status.st_mtime_ns
            if name in seen and seen[name][0] == mark:
                found[name] = seen[name]
            elif (one := _read_one(folder / entry.name)) is not None:
                found[name] = mark, one
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from None
    return found


def _read_one(path: Path) -> Stored | None:
    match read_small_json(path, MAX_BYTES):
        case {"version": int(version), "document": dict(document)}:
            return Stored(path.name.removesuffix(_SUFFIX), document, str(version))
    return None

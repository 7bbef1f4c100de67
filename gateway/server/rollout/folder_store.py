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
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import orjson

from gateway.base.private_folder import PrivateFolder, read_small_json
from gateway.server.rollout.process_evidence import ProcessEvidence, read_evidence, room_for_evidence
from gateway.server.rollout.store import (
    MAX_BYTES,
    STATE,
    Json,
    Stored,
    StoreError,
    StoreFullError,
    room_for_states,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gateway.server.rollout.room import Room

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
_SUFFIX: Final = ".json"
_MAX_VERSION: Final = 2**53

T = TypeVar("T", Stored, ProcessEvidence)
_Seen = dict[str, tuple[tuple[int, int], T]]
"""By name, the inode and time of change of a file, and what it had."""


class FolderStore:
    """A store in the folder at *path*. See ``PlanStore``."""

    def __init__(self, path: Path, changed: Callable[[], None] = lambda: None) -> None:
        """*changed* is called after each change that is observed."""
        self._folder = PrivateFolder(path, StoreError)
        self._states = PrivateFolder(path / "states", StoreError)
        self._evidence = PrivateFolder(path / "evidence", StoreError)
        self._changed = changed
        self._seen: tuple[_Seen[Stored], _Seen[ProcessEvidence]] = ({}, {})
        self.states: Mapping[str, Stored] = {}
        self.evidence: Mapping[str, ProcessEvidence] = {}
        self.excess = ""
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
            if not states[1]:
                raise StoreError(f"{self._states.path} has more states than {room_for_states()}")
        except StoreError as error:
            if str(error) != self.fault:
                log.warning("rollout plans keep the stages that they have: %s", error)
            self.fault = str(error)
            return
        is_first, before = not self.is_synced, self._seen
        self._seen = states[0], evidence[0]
        self.states = {name: one for name, (_, one) in states[0].items()}
        self.evidence = {name: one for name, (_, one) in evidence[0].items()}
        self.excess = "" if evidence[1] else self._too_much()
        self.is_synced, self.fault = True, ""
        if is_first or before != self._seen:
            self._changed()

    def _too_much(self) -> str:
        more = f"has the evidence of more processes than {room_for_evidence()}"
        return f"{self._evidence.path} {more}: the others are not read"

    def _read(self) -> tuple[tuple[_Seen[Stored], bool], tuple[_Seen[ProcessEvidence], bool]]:
        for folder in (self._folder, self._states, self._evidence):
            folder.require()
        states, evidence = self._seen
        return (
            _read_all(self._states.path, states, _read_state, room_for_states()),
            _read_all(self._evidence.path, evidence, _read_evidence, room_for_evidence()),
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
            present = _read_state(self._states.path / (name + _SUFFIX))
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
        present = _read_evidence(path)
        if present is None and self.excess:
            raise StoreFullError(self.excess)
        version = 1 if present is None else int(present.version) + 1
        _write(self._evidence, name, {"version": version, "document": document})

    async def remove(self, kind: str, one: Stored | ProcessEvidence) -> None:
        """See ``PlanStore``."""
        await asyncio.to_thread(self._remove, kind, one)

    def _remove(self, kind: str, one: Stored | ProcessEvidence) -> None:
        folder, read = (self._states, _read_state) if kind == STATE else (self._evidence, _read_evidence)
        path = folder.path / (one.name + _SUFFIX)
        with self._locked():
            present = read(path)
            if present is not None and present.version == one.version:
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


def _read_all(
    folder: Path, seen: _Seen[T], read: Callable[[Path], T | None], room: Room
) -> tuple[_Seen[T], bool]:
    """Return what is in *folder*, and whether there is *room* for all of it."""
    found: _Seen[T] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name.removesuffix(_SUFFIX)
                if name == entry.name or name.startswith("."):
                    continue
                status = entry.stat(follow_symlinks=False)
                mark = status.st_ino, status.st_mtime_ns
                one = seen[name][1] if name in seen and seen[name][0] == mark else read(folder / entry.name)
                if one is None:
                    continue
                if not room.take(name, one.size):
                    return found, False
                found[name] = mark, one
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from None
    return found, True


def _read_state(path: Path) -> Stored | None:
    found = _read_one(path)
    return None if found is None else Stored(*found)


def _read_evidence(path: Path) -> ProcessEvidence | None:
    found = _read_one(path)
    return None if found is None else read_evidence(*found[:3])


def _read_one(path: Path) -> tuple[str, Json, str, int] | None:
    """Return name, document, version and bytes of a file; None if it is not a document of this store."""
    with suppress(OSError):
        status = path.lstat()
        # Not what would block, or is elsewhere.
        if stat.S_ISREG(status.st_mode):
            match read_small_json(path, MAX_BYTES):
                case {"version": int(version), "document": dict(document)} if 0 < version < _MAX_VERSION:
                    return path.name.removesuffix(_SUFFIX), document, str(version), status.st_size
    return None

"""The files of a configuration, and whether any of them has changed.

A folder means the files directly in it. Links are followed, and names with a leading dot are left out, as a
mounted ConfigMap needs: ``a.yaml -> ..data/a.yaml``, ``..data -> ..2025_01_01…``.

Source: k8s.io/kubernetes pkg/volume/util/atomic_writer.go.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE_BYTES = 16 * 1024 * 1024
"""More than any configuration or CA bundle; bounds the memory for a wrong path."""


class UnusableFileError(Exception):
    """A file cannot be read or used; the text is the reason, and *place* its line and column in the file."""

    def __init__(self, reason: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(reason)
        self.place = place

    def about(self, path: Path) -> str:
        """Return the message about the file at *path*: PATH REASON, or PATH:LINE:COLUMN: REASON."""
        file = printable(path)
        return f"{file} {self}" if self.place is None else f"{file}:{self.place[0]}:{self.place[1]}: {self}"


class MissingFileError(UnusableFileError):
    """The file does not exist."""


def list_files(paths: Iterable[Path]) -> list[tuple[Path, str | None]]:
    """Return the files of *paths*, each once, with the problem of a path that cannot be read.

    They have the order of *paths*; those of a folder are sorted by name. A file that *paths* names itself may
    have any name.
    """
    files: dict[str, tuple[Path, str | None]] = {}
    for path in paths:
        try:
            found = _files_in(path) if path.is_dir() else [path]
            if not path.exists():
                raise FileNotFoundError(None, "no such file or folder")
            for file in found:
                files.setdefault(os.path.realpath(file), (file, None))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            files[str(path)] = (path, f"cannot be read: {reason or error}")
    return list(files.values())


def read_file(path: Path) -> bytes:
    """Return the content of the file at *path*.

    Raises:
        UnusableFileError: it is not a regular file, cannot be read, or has more than 16 MiB.
    """
    try:
        # Opening a pipe would wait for a writer.
        if path.exists() and not path.is_file():
            raise UnusableFileError("is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        kind = MissingFileError if isinstance(error, FileNotFoundError) else UnusableFileError
        raise kind(f"cannot be read: {reason or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise UnusableFileError(f"has more than {MAX_FILE_BYTES // (1024 * 1024)} MiB")
    return content


def _files_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in SUFFIXES and not path.name.startswith(".") and not path.is_dir()
    )


def unread(folder: Path, used: Collection[str]) -> list[str]:
    """Return the names in *folder* that :func:`list_files` does not read; those of folders end with ``/``.

    Names with a leading dot are left out, and *used* files, and folders with them: real paths of files that
    the configuration names. Empty if *folder* is a file, or cannot be read.
    """
    try:
        others = sorted({*folder.iterdir()} - {*_files_in(folder)}) if folder.is_dir() else []
        return [
            f"{path.name}/" if path.is_dir() else path.name
            for path in others
            if not path.name.startswith(".") and not _is_used(os.path.realpath(path), used)
        ]
    except (OSError, ValueError):
        return []


def _is_used(path: str, used: Collection[str]) -> bool:
    return path in used or any(file.startswith(f"{path}/") for file in used)


def fingerprint(paths: Sequence[Path]) -> object:
    """Return a value that is equal as long as no file of *paths* is edited, added, removed or replaced.

    Takes a few system calls a file, and can be called every second; the content is not read. Never raises: a
    path that cannot be read has a fingerprint, too.
    """
    return tuple((str(path), _look(path, _members(path))) for path in paths)


def _members(path: Path) -> list[Path]:
    try:
        return _files_in(path) if path.is_dir() else []
    except (OSError, ValueError):
        return []


def _look(path: Path, members: list[Path]) -> object:
    try:
        status = path.stat()
        # Other files in a folder, such as a log or a socket, do not change the configuration.
        state = () if members or path.is_dir() else (status.st_mtime_ns, status.st_size)
        seen: object = (os.path.realpath(path), status.st_dev, status.st_ino, *state)
    except (OSError, ValueError) as error:
        seen = type(error).__name__
    return seen, tuple((member.name, _look(member, [])) for member in members)

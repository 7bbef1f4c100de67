"""Which files a configuration consists of, and whether any of them changed.

A folder stands for the files directly in it. Links are followed and names with a leading dot are left
out, which is what a mounted ConfigMap needs: ``a.yaml -> ..data/a.yaml``, ``..data -> ..2025_01_01…``.

Source: k8s.io/kubernetes pkg/volume/util/atomic_writer.go.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE_BYTES = 16 * 1024 * 1024
"""More than any bundle of roots or any configuration has; keeps a wrong path from filling the memory."""


class UnusableFileError(Exception):
    """A file cannot be read or is not what it should be; the text says why."""


class MissingFileError(UnusableFileError):
    """There is no file at the path."""


def list_files(paths: Iterable[Path]) -> list[tuple[Path, str | None]]:
    """Return the files behind *paths*, each once, with what is wrong with a path that is not there.

    They come in the order of *paths*, those of a folder by name. A file that is given by itself may have
    any name.
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
        UnusableFileError: it is no regular file, cannot be read, or has more than 16 MiB.
    """
    try:
        # Opening a pipe would wait for somebody to write to it.
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


def fingerprint(paths: Sequence[Path]) -> object:
    """Return what compares equal as long as no file behind *paths* was edited, added, removed or swapped.

    A few system calls a file, for a look every second; the content is not read. Further files, such as
    certificates, can be among *paths*. Never raises: what cannot be looked at has a fingerprint, too.
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
        # Whatever else happens in a folder, a log or a socket, is no change of the configuration.
        state = () if members or path.is_dir() else (status.st_mtime_ns, status.st_size)
        seen: object = (os.path.realpath(path), status.st_dev, status.st_ino, *state)
    except (OSError, ValueError) as error:
        seen = type(error).__name__
    return seen, tuple((member.name, _look(member, [])) for member in members)

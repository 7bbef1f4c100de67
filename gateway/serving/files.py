"""When a file has changed: looked at from the sweep, without reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Fingerprint = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and time of change of each file; None for one that cannot be looked at.

A mounted Secret changes by a symbolic link that is moved, so what a link leads to is what counts.
"""


def fingerprint(paths: Iterable[Path | None]) -> Fingerprint:
    """Return what differs once any of *paths* has changed."""
    return tuple(None if path is None else _of_one(path) for path in paths)


def _of_one(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def file_error(path: Path, field: str, message: str) -> ConfigError:
    """Return the error of a file that *field* of the GatewayConfiguration names."""
    return ConfigError([Problem(where=str(path), field=field, message=message)])


def read_file(path: Path, field: str) -> bytes:
    """Return the bytes of *path*, which *field* names.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise file_error(path, field, f"cannot be read: {error.strerror}") from None

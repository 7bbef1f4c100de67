"""Files that the front end uses and reads again when they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gateway.config import files
from gateway.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")


def fingerprint(paths: Iterable[Path | None]) -> object:
    """Return what differs once any of *paths* has changed; None stands for a file that is not used."""
    return files.fingerprint([path for path in paths if path is not None])


def file_error(path: Path, field: str, message: str) -> ConfigError:
    """Return the error of a file that *field* of the GatewayConfiguration names."""
    return ConfigError([Problem(where=str(path), field=field, message=message)])


def read_as(what: Callable[[bytes], T], path: Path, field: str) -> T:
    """Return what *what* makes of the content of *path*, which *field* names.

    Raises:
        ConfigError: The file cannot be read, or *what* found it unusable.
    """
    try:
        return what(files.read_file(path))
    except files.UnusableFileError as error:
        raise file_error(path, field, str(error)) from None

"""Files that are replaced as a whole, so that a reader never sees a part of one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replaced(file: Path) -> Iterator[BinaryIO]:
    """Open a new file beside *file*, which takes its place at the end, unless there was an error.

    Raises:
        OSError: it cannot be written.
    """
    new = file.with_name(f".{file.name}.new")
    try:
        with new.open("wb") as stream:
            yield stream
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)

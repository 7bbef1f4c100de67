"""A folder that belongs to the user of the gateway alone, and files in it that are replaced as a whole."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SMALL_BYTES: Final = 64 * 1024


class PrivateFolder:
    """The folder at *path*, which does not have to exist yet."""

    def __init__(self, path: Path, error: Callable[[str], GatewayError] = GatewayError) -> None:
        """*error* makes the exceptions of the methods."""
        self.path = path
        self._error = error

    def why_unusable(self) -> str:
        """Return why the folder may not be used, or "" if it may."""
        try:
            status = self.path.lstat()
        except OSError as error:
            return f"cannot be used: {error.strerror}"
        if not self.path.is_dir() or self.path.is_symlink():
            return "is not a folder"
        if status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            return "belongs to another user"
        if status.st_mode & 0o022:
            return "can be written by other users"
        return ""

    def require(self) -> None:
        """Make the folder if it does not exist. Raises a GatewayError if it cannot be used."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._error(f"{self.path} cannot be made: {error.strerror}") from None
        if why := self.why_unusable():
            raise self._error(f"{self.path} {why}")

    def write(self, name: str, content: bytes) -> None:
        """Replace the file *name*, readable for the owner of the folder alone. Raises a GatewayError."""
        temporary = ""
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=".", dir=self.path)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                owner = self.path.stat()
                if os.geteuid() == 0 and owner.st_uid != 0:
                    # Written by the administrator for a gateway that runs as another user, who may have
                    # another file at this path by now.
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
                os.fsync(file.fileno())
            Path(temporary).replace(self.path / name)
        except OSError as error:
            if temporary:
                with suppress(OSError):
                    Path(temporary).unlink()
            raise self._error(f"{self.path / name} cannot be written: {error.strerror}") from None


def read_small_json(path: Path, max_bytes: int = MAX_SMALL_BYTES) -> object:
    """Return the JSON in the file at *path*; None if there is none, or it has more than *max_bytes*."""
    with suppress(OSError, ValueError), path.open("rb") as file:
        return orjson.loads(file.read(max_bytes))
    return None

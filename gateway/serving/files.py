"""Files that a gateway uses and reads again when they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from gateway.config import files
from gateway.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

MOST_RESTLESS: Final = 5
"""Looks after which files are read although they go on changing, as some that synchronise files have them."""
FIRST_RETRY: Final = 2
LAST_RETRY: Final = 64
"""Looks after which files that could not be used are read once more; twice as many each time."""


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


class Changes:
    """Tells when files are to be read again, by looks at them at regular times, such as every second.

    What has changed is read once two looks have found it the same. A file that is being written holds half
    of what it is to hold, and half a list of tokens, or of webhooks, is a list too; so is what several files
    say together while one of them is still the old one.

    What could not be used is read again from time to time although it looks the same: what was wrong may be
    elsewhere, such as in a file that it names, in permissions, or at an API server that was not there.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        """Take note of what *look* returns for the files as they are now, which is about to be read."""
        self.look = look
        self.is_refused = False
        """Whether what was read last could not be used."""
        self.is_settled = True
        """Whether the last two looks found the files the same."""
        self._read = self._seen = look()
        self._restless = 0
        self._pause = self._looks_to_retry = 0
        self._why = ""

    def are_due(self) -> bool:
        """Look, and return whether the files are to be read now."""
        before, self._seen = self._seen, self.look()
        self.is_settled = self._seen == before
        if self._seen == self._read:
            self._restless = 0
            self._looks_to_retry -= 1
            return self.is_refused and self._looks_to_retry <= 0
        self._restless += 1
        return self.is_settled or self._restless >= MOST_RESTLESS

    def accepted(self, state: object) -> None:
        """Take note that the files are in force as they were when ``look`` returned *state*."""
        self._read = state
        self.is_refused = False
        self._why = ""

    def refused(self, state: object, why: str) -> bool:
        """Take note that the files as they were at *state* could not be used; return whether that is news."""
        is_known = self.is_refused and state == self._read
        self._pause = min(self._pause * 2, LAST_RETRY) if is_known else FIRST_RETRY
        self._looks_to_retry = self._pause
        self._restless = 0
        is_news = not is_known or why != self._why
        self._read, self.is_refused, self._why = state, True, why
        return is_news

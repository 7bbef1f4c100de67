"""Files that a gateway uses, and reads again after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from gateway.base import files
from gateway.base.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

MAX_UNSTABLE_CHECKS: Final = 5
"""Checks after which files are read although they still change, as tools that synchronise files may do."""
FIRST_RETRY_CHECKS: Final = 2
MAX_RETRY_CHECKS: Final = 64
"""Checks after which unusable files are read again; the number doubles each time."""


def fingerprint(paths: Iterable[Path | None]) -> object:
    """Return a value that changes when any of *paths* changes; None stands for a file that is not used."""
    return files.fingerprint([path for path in paths if path is not None])


def file_error(path: Path, field: str, message: str) -> ConfigError:
    """Return the error of a file that *field* of the GatewayConfiguration names."""
    return ConfigError([Problem(where=str(path), field=field, message=message)])


def read_as(parse: Callable[[bytes], T], path: Path, field: str) -> T:
    """Return the content of *path*, which *field* names, after *parse*.

    Raises:
        ConfigError: The file cannot be read, or *parse* found it unusable.
    """
    try:
        return parse(files.read_file(path))
    except files.UnusableFileError as error:
        raise file_error(path, field, str(error)) from None


class FileChanges:
    """Decides when files are read again, by regular checks, such as one a second.

    Changed files are read when two checks have found them equal. A file that is being written may contain
    half of a list of tokens or of webhooks, which is a valid list too; several files may be half updated.

    Unusable files are read again from time to time although they are unchanged: the cause may be elsewhere,
    for example in a file that they name, in permissions, or at an API server that did not answer.
    """

    def __init__(self, state: Callable[[], object]) -> None:
        """*state* returns a fingerprint of the files. The caller reads them after this."""
        self.state = state
        self.is_refused = False
        """Whether the files were unusable when they were last read."""
        self.is_stable = True
        """Whether the last two checks found the files equal."""
        self._read = self._seen = state()
        self._unstable_checks = 0
        self._retry_checks = self._checks_to_retry = 0
        self._reason = ""

    def is_due(self) -> bool:
        """Check the files, and return whether to read them now."""
        before, self._seen = self._seen, self.state()
        self.is_stable = self._seen == before
        if self._seen == self._read:
            self._unstable_checks = 0
            self._checks_to_retry -= 1
            return self.is_refused and self._checks_to_retry <= 0
        self._unstable_checks += 1
        return self.is_stable or self._unstable_checks >= MAX_UNSTABLE_CHECKS

    def retry(self) -> None:
        """Read unusable files again at the next check, because the cause may be over."""
        self._checks_to_retry = 0

    def accepted(self, state: object) -> None:
        """Note that the files are in force with the content that they had at *state*."""
        self._read = state
        self.is_refused = False
        self._reason = ""

    def refused(self, state: object, reason: str) -> bool:
        """Note that the files were unusable at *state*; return whether that is new."""
        is_known = self.is_refused and state == self._read
        self._retry_checks = min(self._retry_checks * 2, MAX_RETRY_CHECKS) if is_known else FIRST_RETRY_CHECKS
        self._checks_to_retry = self._retry_checks
        self._unstable_checks = 0
        is_new = not is_known or reason != self._reason
        self._read, self.is_refused, self._reason = state, True, reason
        return is_new

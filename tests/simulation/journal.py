"""The events of one run in virtual time; printed when the run fails, or on request."""

from __future__ import annotations

import logging
import re
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REVIEW: Final = re.compile(r"(?:review|about) (\w+)")
SHOWN: Final = 80
"""Number of last lines that a failure shows."""


class Journal(logging.Handler):
    """The events of the run and the gateway's log."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(logging.INFO)
        self.errors: list[str] = []
        """Errors that the gateway logged: always bugs."""
        self._now = now
        self._events: list[tuple[float, str, tuple[object, ...]]] = []

    def note(self, text: str, *values: object) -> None:
        """Add an event; *text* has a ``%s`` for each of *values*, which must not change."""
        self._events.append((self._now(), text, values))

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.ERROR:
            self.errors.append(f"{text} ({record.exc_info and record.exc_info[1]!r})")
        self.note("log: %s", text)

    def lines(self) -> Iterator[str]:
        """Yield the events as text, a line each."""
        for at, text, values in self._events:
            yield f"{at:12.6f}  {text % values}"

    def tail(self, uid: str = "") -> str:
        """Return the last lines; with *uid*, without lines about other reviews."""
        lines = [line for line in self.lines() if not uid or set(_REVIEW.findall(line)) <= {uid}]
        return "\n".join(lines[-SHOWN:])

    def digest(self) -> int:
        """Return a checksum of all events."""
        return zlib.crc32("\n".join(self.lines()).encode())

"""Records of a log as lines.

A record is one line. Its message can contain texts of workers, clients, files and the cluster, so the
formatter escapes the whole message: no text can begin another record or send commands to a terminal. The
lines of a traceback follow the record; each begins with ``CONTINUED``, with which no record begins.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from types import TracebackType

CONTINUED: Final = "    | "
MESSAGE_CHARS: Final = 8192
"""The longest message of a record: half of the 16 KiB at which container runtimes split a line."""
TRACEBACK_LINES: Final = 100
"""The longest traceback of a record; the middle of a longer one is left out."""
LINE_CHARS: Final = 1000
"""The longest line of a traceback."""


class LogFormatter(logging.Formatter):
    """Formats a record as one line, and its traceback as marked lines after it.

    Times are RFC 3339 in UTC, whatever the time zone of the machine is.
    """

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the time of *record*."""
        time = datetime.fromtimestamp(record.created, UTC)
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of *record*."""
        record.message = printable(record.getMessage(), MESSAGE_CHARS)
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        if record.exc_info:
            lines += _continued(self.formatException(record.exc_info))
        if record.stack_info:
            lines += _continued(self.formatStack(record.stack_info))
        return "\n".join(lines)


def _continued(text: str) -> list[str]:
    lines = text.split("\n")
    left_out = len(lines) - TRACEBACK_LINES
    if left_out > 0:
        half = TRACEBACK_LINES // 2
        lines[half:-half] = [f"({left_out} lines left out)"]
    return [CONTINUED + printable(line, LINE_CHARS) for line in lines]


def buffer_output() -> None:
    """Give standard output and error the buffer that ``PYTHONUNBUFFERED`` takes from them.

    Without a buffer Python drops the rest of a text if the system takes only a part of it, as it does when a
    signal arrives. Lines are still written at once. For a process of the program's own.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            buffered = open(  # noqa: SIM115 - the process closes it
                stream.fileno(), "w", 1, stream.encoding, stream.errors, closefd=False
            )
            setattr(sys, name, buffered)


def log_uncaught() -> None:
    """Log uncaught exceptions of all threads. For a process of the program's own."""
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def _log_uncaught(
    kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None
) -> None:
    error = error if error is not None else kind()
    if issubclass(kind, Exception):
        logging.critical("uncaught exception", exc_info=(kind, error, traceback))
    elif issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)

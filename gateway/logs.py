"""The one place where texts become log lines and lines of output.

A log record is one line. Texts of workers, clients, files and the cluster get into its message, so that the
formatter escapes it as a whole: no text can end the record and begin another one, or send a terminal a
command. The lines of a traceback follow the record, each with ``CONTINUED`` before it, which no record begins
with. Text that is written without the logging module passes through :func:`say` or :func:`out`.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Final, TextIO

from gateway.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

CONTINUED: Final = "    | "
MESSAGE_CHARS: Final = 8192
"""Of a record's message: half of the 16 KiB at which container runtimes split a line."""
TRACEBACK_LINES: Final = 100
"""Of a record's traceback; the middle of a longer one is left out."""
_LINE_CHARS: Final = 1000


class LogFormatter(logging.Formatter):
    """Formats a record as one line, and a traceback as marked lines after it."""

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
    return [CONTINUED + printable(line, _LINE_CHARS) for line in lines]


def set_up(level: int, form: str) -> None:
    """Send records from *level* on to standard error, formatted by *form*; warnings are records, too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)  # noqa: FBT003 - the standard library's only way


def log_uncaught() -> None:
    """Have what no code catches logged, in all threads, too. For a process of the program's own."""
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def _log_uncaught(
    kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None
) -> None:
    error = error if error is not None else kind()
    if issubclass(kind, Exception):
        logging.critical("an error that no code catches", exc_info=(kind, error, traceback))
    elif issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)


def say(*lines: object) -> None:
    """Write each of *lines* to standard error as one line, without unprintable characters."""
    _write(lines, sys.stderr)


def out(*lines: object) -> None:
    """Write each of *lines* to standard output as one line, without unprintable characters."""
    _write(lines, sys.stdout)


def _write(lines: Iterable[object], stream: TextIO | None) -> None:
    text = "".join(f"{printable(line, None)}\n" for line in lines)
    # A program that was started without the stream has None.
    if text and stream is not None:
        stream.write(text)
        stream.flush()

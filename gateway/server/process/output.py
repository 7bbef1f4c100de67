"""The standard output and error of a local worker, as records of the gateway's log.

A worker may print texts of reviews. Written to the gateway's own standard error they could be forged records.

A line of the worker's own log becomes a record of the same level, without its own time and level: a record
has one time, which is that of the gateway. Recognised are Python's and Go's usual forms, klog, and JSON
objects with a level and a message. A line that begins with white space continues the one before.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from typing import Final

import orjson

log = logging.getLogger("gateway.worker_output")
log.setLevel(logging.INFO)  # also in commands that log nothing else: the output has the errors of policies

LINE_BYTES: Final = 4096
"""A longer line is split into several records."""
_READ_BYTES: Final = 4096
"""Bytes per read. A larger read could block reviews for more than a millisecond."""
_LAST_READS: Final = 64
"""Reads of this size that empty a full pipe."""
_LEVELS: Final = {
    **dict.fromkeys(("warn", "warning"), logging.WARNING),
    **dict.fromkeys(("err", "error"), logging.ERROR),
    **dict.fromkeys(("critical", "fatal", "panic"), logging.CRITICAL),
}
"""By name; all others are INFO."""
_LEVEL_WORDS: Final = "trace|debug|info|notice|warn|warning|err|error|critical|fatal|panic"
_TIMED: Final = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?:[ \t]+|$)"
    rf"(?:\[?({_LEVEL_WORDS})\]?(?::[ \t]*|[ \t]+|$))?",
    re.IGNORECASE,
)
_UNTIMED: Final = re.compile(rf"({_LEVEL_WORDS.upper()})(?::[ \t]*|[ \t]+)")
"""A word in small letters may begin a sentence."""
_KLOG: Final = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6}[ \t]+\d+ ")
_KLOG_LEVELS: Final = {
    "I": logging.INFO,
    "W": logging.WARNING,
    "E": logging.ERROR,
    "F": logging.CRITICAL,
}


class Output:
    """A pipe whose lines are logged. Make it on a running event loop, and close it."""

    def __init__(self, name: str) -> None:
        """*name* is the prefix of each line."""
        self._name = name
        self._reading, self.writing = os.pipe()
        """The worker writes to ``writing``."""
        os.set_blocking(self._reading, False)
        self._rest = b""
        self._level = logging.INFO
        """The level of the last line that began a record."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._read)
        self._is_open = True

    def close(self) -> None:
        """Log the rest of the output, and close the pipe."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._reading)
        for _ in range(_LAST_READS):
            if not self._read():
                break
        self._log(self._rest)
        os.close(self._reading)
        os.close(self.writing)

    def _read(self) -> bool:
        """Log the next lines; return whether there was output."""
        try:
            found = os.read(self._reading, _READ_BYTES)
        except BlockingIOError:
            return False
        *lines, rest = (self._rest + found).split(b"\n")
        whole = len(rest) - len(rest) % LINE_BYTES
        for line in (*lines, rest[:whole]):
            self._log(line)
        self._rest = rest[whole:]
        return bool(found)

    def _log(self, line: bytes) -> None:
        for start in range(0, len(line), LINE_BYTES):
            text = line[start : start + LINE_BYTES].decode(errors="backslashreplace")
            if not start:
                level, text = record_in(text)
                if not text[:1].isspace():
                    self._level = level
            log.log(self._level, "%s: %s", self._name, text)


def record_in(line: str) -> tuple[int, str]:
    """Return the level of *line*, of the log of a worker, and its text without time and level.

    Debug messages have the level INFO: the worker has chosen to print them.
    """
    if line.startswith("{"):
        return _json_record(line)
    if klog := _KLOG.match(line):
        return _KLOG_LEVELS[klog[1]], line[klog.end() :]
    found = _TIMED.match(line) or _UNTIMED.match(line)
    level, text = (found[1], line[found.end() :]) if found else (None, line)
    return _LEVELS.get((level or "").lower(), logging.INFO), text.removeprefix("worker: ")


def _json_record(line: str) -> tuple[int, str]:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return logging.INFO, line
    level = next((found.pop(name) for name in ("level", "severity", "lvl") if name in found), None)
    message = next((found.pop(name) for name in ("msg", "message") if name in found), None)
    if not isinstance(level, str) or not isinstance(message, str):
        return logging.INFO, line
    others = {name: value for name, value in found.items() if name not in ("time", "ts", "timestamp")}
    text = f"{message} {orjson.dumps(others).decode()}" if others else message
    return _LEVELS.get(level.lower(), logging.INFO), text

"""Lines of logs and of output. All texts of the program are written here.

A log record is one line, see ``admission_gateway_worker.log_lines``. As JSON it is one object in one line,
with the traceback in it. Text that does not go through the logging module goes through :func:`print_error` or
:func:`print_output`.

Each record belongs to an area, by the name of its logger, and each area has a level. Records of libraries are
only logged from WARNING on, whatever the levels are: their debug messages quote what they read.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Final, Literal, Protocol, TextIO, get_args

from admission_gateway_worker.log_lines import LINE_CHARS, MESSAGE_CHARS, LogFormatter
from admission_gateway_worker.text import printable
from gateway.base.progress import hidden
from gateway.base.terminal import Styled, has_colours
from gateway.base.text import printable_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

Area = Literal["configuration", "workers", "serving", "cluster", "process"]
Level = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

AREAS: Final[tuple[Area, ...]] = get_args(Area)
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
DEFAULT_LEVEL: Final[Level] = "info"

_AREA_OF: Final[dict[str, Area]] = {
    **dict.fromkeys(
        ("app", "conditions", "config", "credentials", "importing", "reload", "snapshot"), "configuration"
    ),
    **dict.fromkeys(("dispatch", "worker_output", "policy_check"), "workers"),
    **dict.fromkeys(("admit", "shadow_calls", "decisions", "pages", "serving"), "serving"),
    **dict.fromkeys(("cluster_follower", "kubernetes", "reports"), "cluster"),
}
"""By one of the first two parts of the logger's name after ``gateway.``; all others belong to ``process``."""

_OWN: Final = ("gateway", "admission_gateway_worker", "root")
_TALKATIVE: Final = ("asyncio", "hpack", "httpcore2", "httpx2")
"""Libraries whose debug records take time although they are not logged."""

TEXT_FORM: Final = "%(asctime)s %(levelname)s %(message)s"
"""The form of text records of the gateway."""
TRACEBACK_CHARS: Final = 6144
"""The longest traceback of a JSON record: with the message less than 16 KiB."""


class JsonFormatter(LogFormatter):
    """Formats a record, with its traceback, as one JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of *record*."""
        members = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "area": area_of(record.name),
            "message": printable(record.getMessage(), MESSAGE_CHARS),
        }
        if record.exc_info:
            members["traceback"] = _shortened(self.formatException(record.exc_info))
        return printable_json(json.dumps(members, ensure_ascii=False))


def area_of(logger: str) -> Area:
    """Return the area of the records of *logger*."""
    return next((_AREA_OF[part] for part in logger.split(".")[1:3] if part in _AREA_OF), "process")


def _shortened(text: str) -> str:
    """Return a traceback for a JSON record, its middle left out if it is long."""
    lines = [printable(line, LINE_CHARS) for line in text.split("\n")]
    whole = "\n".join(lines)
    half = TRACEBACK_CHARS // 2
    return whole if len(whole) <= TRACEBACK_CHARS else f"{whole[:half]}\n(…)\n{whole[-half:]}"


class _Handler(logging.StreamHandler[TextIO]):
    def emit(self, record: logging.LogRecord) -> None:
        with hidden():
            super().emit(record)


def set_up(level: int, form: str) -> logging.Handler:
    """Write records from *level* on to standard error in the format *form*, with Python's warnings.

    Return the handler, which is in use unless the process has another one.
    """
    handler = _Handler(sys.stderr)
    handler.setFormatter(LogFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)  # noqa: FBT003 - the standard library's only way
    return handler


def set_up_program(level: int, *, is_verbose: bool) -> None:
    """As :func:`set_up` for a command of the gateway, whose libraries log from WARNING on.

    With *is_verbose* the records are those from DEBUG on.
    """
    handler = set_up(logging.DEBUG if is_verbose else level, TEXT_FORM)
    handler.addFilter(current.allows)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    current.is_debug = is_verbose


class Configured(Protocol):
    """What a configuration says of the log."""

    @property
    def format(self) -> LogFormat:
        """The form of the records."""

    @property
    def levels(self) -> Mapping[Area, Level]:
        """The level of each area that does not have ``DEFAULT_LEVEL``."""


class LogSettings:
    """The form and the levels of the log of this process, which can change while it runs."""

    def __init__(self) -> None:
        self.is_debug = False
        """Whether all areas have the level ``debug``, whatever is configured."""
        self._levels: Mapping[Area, Level] = {}
        self._thresholds: dict[Area, int] = {}
        """The level of each area. While it is empty, the levels of loggers decide."""

    def allows(self, record: logging.LogRecord) -> bool:
        """Whether *record* is logged."""
        if record.levelno < logging.WARNING and record.name.partition(".")[0] not in _OWN:
            return False
        return not self._thresholds or record.levelno >= self._thresholds[area_of(record.name)]

    def activate(self, settings: Configured) -> None:
        """Write records by *settings* from now on."""
        self._levels = settings.levels
        formatter = JsonFormatter() if settings.format == "json" else LogFormatter(TEXT_FORM)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, _Handler):
                handler.setFormatter(formatter)
        self._apply()

    def toggle_debug(self) -> None:
        """Log the debug records of all areas, or no longer."""
        self.is_debug = not self.is_debug
        self._apply()
        log.warning("log levels changed: %s", "debug for all areas" if self.is_debug else "as configured")

    def _apply(self) -> None:
        names = logging.getLevelNamesMapping()
        self._thresholds = {
            area: logging.DEBUG if self.is_debug else names[self._levels.get(area, DEFAULT_LEVEL).upper()]
            for area in AREAS
        }
        logging.getLogger().setLevel(min(self._thresholds.values()))


current: Final = LogSettings()
"""The settings of this process."""


def print_error(*lines: object) -> None:
    """Write each of *lines* to standard error as one line, without unprintable characters.

    Styled lines have colours at a terminal.
    """
    _write(lines, sys.stderr)


def print_output(*lines: object) -> None:
    """As :func:`print_error`, to standard output."""
    _write(lines, sys.stdout)


def print_text(text: str) -> None:
    """Write *text*, which is this program's own, to standard output as it is."""
    if sys.stdout is not None:
        with hidden():
            sys.stdout.write(text)
            sys.stdout.flush()


def _write(lines: Iterable[object], stream: TextIO | None) -> None:
    is_painted = has_colours(stream)
    text = "".join(
        f"{line.painted() if is_painted and isinstance(line, Styled) else printable(line, None)}\n"
        for line in lines
    )
    # The stream is None if the program was started without it.
    if text and stream is not None:
        with hidden():
            stream.write(text)
            stream.flush()

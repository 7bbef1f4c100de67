"""The mapping ``logging`` of a GatewayConfiguration: the form of the logs, and the decision log."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from gateway.base.logs import AREAS, DEFAULT_LEVEL, LEVELS, Area, Level, LogFormat
from gateway.base.text import shown
from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Group,
    Integer,
    Number,
    Read,
    Row,
    Text,
    Type,
    declare,
    optional,
    required,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gateway.config.kinds.declare import Schema
    from gateway.config.yaml.fields import Fields

LoggedDecisions = Literal["None", "Denied", "All"]

FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
LOGGED_DECISIONS: tuple[LoggedDecisions, ...] = get_args(LoggedDecisions)

MAX_PER_SECOND = 1_000_000
FILE_BYTES = (64 * 1024, 1024**4)
"""The least holds a record of the longest form; the most is more than a disk of a node has."""
MAX_KEPT_FILES = 1000


def _read_path(source: Fields, name: str) -> Path:
    path = source.folder / source.required_string(name)
    if not path.parent.is_dir():
        source.problem(name, f"found {shown(str(path))}, expected a file in a folder that exists")
    elif source.content.get(name) and path.is_dir():
        source.problem(name, f"found {shown(str(path))}, which is a folder, expected a file")
    return path


def _check_otlp(text: str) -> str | None:
    try:
        is_installed = find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        is_installed = False
    if not is_installed:
        return "requires OpenTelemetry: install the gateway with its optional dependencies, tracing"
    return _check_url(text)


def _check_url(text: str) -> str | None:
    try:
        url = urlsplit(text)
        is_right = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_right = False
    return None if is_right else f"found {shown(text)}, expected a URL such as http://collector:4318/v1/logs"


class _Levels(Type["Mapping[Area, Level]"]):
    """The areas with another level than ``DEFAULT_LEVEL``."""

    words = "mapping"
    _level = Choice(LEVELS)

    def read(self, source: Fields, name: str, default: object) -> Mapping[Area, Level]:
        fields = source.group(name)
        levels = {area: self._level.read(fields, area, DEFAULT_LEVEL) for area in AREAS}
        fields.finish()
        return {area: level for area, level in levels.items() if level != DEFAULT_LEVEL}

    def schema(self) -> Schema:
        return {"type": "object", "properties": {area: self._level.schema() for area in AREAS}}

    def rows(self, path: str) -> Iterator[Row]:
        for area in AREAS:
            yield Row(f"{path}.{area}", self._level.words, f"`{DEFAULT_LEVEL}`", "")


@dataclass(frozen=True, slots=True)
class DecisionFile(Declared):
    """A file with the decision log, one JSON object a line."""

    path: Path = required(Read("path", _read_path), "The file, in a folder that exists")
    max_bytes: int = declare(
        Integer(*FILE_BYTES, "bytes"),
        "At this size, at least 65,536, the file becomes `PATH.1`, and a new one begins",
        default=100 * 1024 * 1024,
    )
    keep: int = declare(
        Integer(0, MAX_KEPT_FILES, "files"),
        "Older files that are kept: `PATH.1` is the youngest. At most 1,000",
        default=5,
    )


@dataclass(frozen=True, slots=True)
class DecisionLogSettings(Declared):
    """The decision log besides the choice of decisions."""

    sample_percent: float = declare(
        Number(0, 100, "percent"),
        "Of the decisions that `decisions` leaves out, so many are logged too, from 0 to 100",
        default=0.0,
    )
    max_per_second: int = declare(
        Integer(1, MAX_PER_SECOND, "records per second"),
        "Of each process, from 1 to 1,000,000. Further records are dropped, and counted. Allowed requests"
        " leave a quarter of it to the others",
        default=1000,
    )
    secret_names: bool = declare(
        Boolean(), "Whether records of Secrets have the name of the object", default=False
    )
    file: DecisionFile | None = optional(
        Group(DecisionFile), "Writes to a file, one JSON object a line. The processes of a gateway share it"
    )
    otlp_endpoint: str = declare(
        Text("URL", _check_otlp),
        "Sends the records as OTLP logs over HTTP, such as to `http://collector:4318/v1/logs`",
        default="",
    )


@dataclass(frozen=True, slots=True)
class LoggingSettings(Declared):
    """The mapping ``logging``, with its defaults."""

    format: LogFormat = declare(Choice(FORMATS), "Form of the lines on standard error", default="text")
    decisions: LoggedDecisions = declare(
        Choice(LOGGED_DECISIONS),
        "The decisions that are logged: none; denials, failures and fail-opens; all",
        default="Denied",
    )
    decision_log: DecisionLogSettings = declare(
        Group(DecisionLogSettings),
        "Where the decision log goes, and its bounds. Standard error, unless `file` or `otlpEndpoint` is "
        "given",
        default=DecisionLogSettings(),
    )
    levels: Mapping[Area, Level] = declare(_Levels(), "Level of each [area](metrics.md#logs)", default={})

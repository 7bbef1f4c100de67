"""The mapping ``logging`` of a GatewayConfiguration: the form of the logs, and the decision log."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from gateway.base.logs import AREAS, DEFAULT_LEVEL, LEVELS, Area, Level, LogFormat
from gateway.base.text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.config.yaml.fields import Fields

LoggedDecisions = Literal["None", "Denied", "All"]

FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
LOGGED_DECISIONS: tuple[LoggedDecisions, ...] = get_args(LoggedDecisions)

MAX_PER_SECOND = 1_000_000
FILE_BYTES = (64 * 1024, 1024**4)
"""The least holds a record of the longest form; the most is more than a disk of a node has."""
MAX_KEPT_FILES = 1000


@dataclass(frozen=True, slots=True)
class DecisionFile:
    """A file with the decision log, one JSON object a line."""

    path: Path
    max_bytes: int = 100 * 1024 * 1024
    """Size at which the file is renamed to ``PATH.1``, and a new one begins."""
    keep: int = 5
    """Renamed files that are kept: ``PATH.1`` is the youngest."""


@dataclass(frozen=True, slots=True)
class DecisionLogSettings:
    """The decision log besides the choice of decisions.

    It is written to standard error unless there is a file or an endpoint.
    """

    sample_percent: float = 0.0
    """Of the decisions that ``decisions`` leaves out, so many percent are logged too."""
    max_per_second: int = 1000
    """Records of a process; further ones are dropped and counted."""
    secret_names: bool = False
    """Whether records of Secrets have the name of the object."""
    file: DecisionFile | None = None
    otlp_endpoint: str = ""
    """URL to which records are sent as OTLP logs; empty: they are not sent."""


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The mapping ``logging``, with its defaults."""

    format: LogFormat = "text"
    """The form of lines on standard error."""
    decisions: LoggedDecisions = "Denied"
    """``Denied``: denials, failures and fail-opens."""
    decision_log: DecisionLogSettings = field(default_factory=DecisionLogSettings)
    levels: Mapping[Area, Level] = field(default_factory=dict)
    """Areas with another level than ``gateway.base.logs.DEFAULT_LEVEL``."""


def read_logging(fields: Fields, folder: Path) -> LoggingSettings:
    """Return the settings behind *fields*, which stand in a file in *folder*."""
    default = LoggingSettings()
    settings = LoggingSettings(
        format=fields.choice("format", FORMATS, default.format),
        levels=_read_levels(fields.group("levels")),
        decisions=fields.choice("decisions", LOGGED_DECISIONS, default.decisions),
        decision_log=_read_decision_log(fields.group("decisionLog"), folder),
    )
    fields.finish()
    return settings


def _read_levels(fields: Fields) -> dict[Area, Level]:
    levels = {area: fields.choice(area, LEVELS, DEFAULT_LEVEL) for area in AREAS}
    fields.finish()
    return {area: level for area, level in levels.items() if level != DEFAULT_LEVEL}


def _read_decision_log(fields: Fields, folder: Path) -> DecisionLogSettings:
    default = DecisionLogSettings()
    settings = DecisionLogSettings(
        sample_percent=fields.number("samplePercent", default.sample_percent, 0, 100),
        max_per_second=fields.integer("maxPerSecond", default.max_per_second, 1, MAX_PER_SECOND),
        secret_names=fields.boolean("secretNames"),
        file=_read_file(fields.mapping("file"), folder),
        otlp_endpoint=fields.optional_string("otlpEndpoint", _check_otlp),
    )
    fields.finish()
    return settings


def _read_file(fields: Fields | None, folder: Path) -> DecisionFile | None:
    if fields is None:
        return None
    default = DecisionFile(Path())
    path = folder / fields.required_string("path")
    if not path.parent.is_dir():
        fields.problem("path", f"found {shown(str(path))}, expected a file in a folder that exists")
    elif fields.content.get("path") and path.is_dir():
        fields.problem("path", f"found {shown(str(path))}, which is a folder, expected a file")
    settings = DecisionFile(
        path,
        fields.integer("maxBytes", default.max_bytes, *FILE_BYTES),
        fields.integer("keep", default.keep, 0, MAX_KEPT_FILES),
    )
    fields.finish()
    return settings


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

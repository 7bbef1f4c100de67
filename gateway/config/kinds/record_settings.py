"""The mapping ``record`` of a GatewayConfiguration: which reviews are recorded, and in which files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.files import read_recording_key_file

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

JsonPath = tuple[str | None, ...]
"""Names of members, from an object; None: all members of a mapping, or all items of a list."""

MAX_PER_SECOND: Final = 1_000_000
MAX_PER_COMBINATION: Final = 1_000_000
FILE_BYTES: Final = (64 * 1024, 1024**4)
MAX_FILES: Final = 10_000
AGE_S: Final = (60.0, 365 * 86_400.0)
_STEP: Final = re.compile(r"\.?([A-Za-z_][\w-]*)|\.?(\*)|\[(\*)\]|\['([^'\\]+)'\]")
"""One step of a path: ``.name``, ``.*``, ``[*]`` or ``['name']``, of RFC 9535."""


@dataclass(frozen=True, slots=True)
class RedactionRule:
    """Values of objects that are replaced, besides those that always are."""

    kinds: tuple[str, ...]
    """Kinds without group and version; empty: all."""
    paths: tuple[JsonPath, ...]


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """The mapping ``record``, with its defaults."""

    folder: Path
    sample_percent: float = 10.0
    """Of all reviews, chosen by a hash of the uid."""
    per_combination: int = 10
    """Reviews of each combination of kind, operation, webhook and outcome that a process records in an hour,
    whatever the sample."""
    max_per_second: int = 100
    """Reviews of a process; further ones are dropped and counted."""
    max_file_bytes: int = 64 * 1024 * 1024
    """Size, compressed, at which a new file begins."""
    max_files: int = 16
    """Files in the folder, of all processes; the oldest are deleted."""
    max_age_s: float = 7 * 86_400.0
    """Seconds after which a file is deleted."""
    key_file: Path | None = None
    """Key of the hashes that replace values; None: a random one of the process."""
    redact: tuple[RedactionRule, ...] = ()


def read_record(fields: Fields | None, folder: Path) -> RecordSettings | None:
    """Return the settings behind *fields*, which stand in a file in *folder*; None: nothing is recorded."""
    if fields is None:
        return None
    default = RecordSettings(folder)
    settings = RecordSettings(
        folder=_read_folder(fields, folder),
        sample_percent=fields.number("samplePercent", default.sample_percent, 0, 100),
        per_combination=fields.integer("perCombination", default.per_combination, 0, MAX_PER_COMBINATION),
        max_per_second=fields.integer("maxPerSecond", default.max_per_second, 1, MAX_PER_SECOND),
        max_file_bytes=fields.integer("maxFileBytes", default.max_file_bytes, *FILE_BYTES),
        max_files=fields.integer("maxFiles", default.max_files, 1, MAX_FILES),
        max_age_s=fields.duration("maxAge", default.max_age_s, *AGE_S),
        key_file=read_recording_key_file(fields, "keyFile", folder),
        redact=tuple(map(_read_rule, fields.mappings("redact"))),
    )
    if not settings.sample_percent and not settings.per_combination:
        fields.problems.warn(fields.path, "records nothing: samplePercent and perCombination are 0")
    fields.finish()
    return settings


def _read_folder(fields: Fields, folder: Path) -> Path:
    text = fields.required_string("folder", lambda text: "contains a NUL character" if "\0" in text else None)
    path = folder / text
    if text and "\0" not in text and not (path.is_dir() or (path.parent.is_dir() and not path.exists())):
        found = f"found {shown(str(path))}"
        fields.problem("folder", f"{found}, expected a folder, or a new one in a folder that exists")
    return path


def _read_rule(fields: Fields) -> RedactionRule:
    kinds = fields.strings("kinds", lambda text: None if text else "is empty, expected a kind")
    paths = fields.strings("paths", lambda text: None if parse_path(text) else _bad_path(text))
    if not fields.has("paths"):
        fields.problem("paths", "is required")
    fields.finish()
    return RedactionRule(kinds, tuple(found for text in paths if (found := parse_path(text))))


def _bad_path(text: str) -> str:
    return f"found {shown(text)}, expected a path such as $.spec.containers[*].env[*].value or $.data['a.b']"


def parse_path(text: str) -> JsonPath | None:
    """Return the steps of the JSONPath *text*, whose ``$`` may be left out; None: it is not supported."""
    rest, steps = text.removeprefix("$"), list[str | None]()
    at = 0
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None or (at and rest[at] not in ".["):
            return None
        steps.append(step[1] or step[4])
        at = step.end()
    return tuple(steps) or None

"""The mapping ``record`` of a GatewayConfiguration: which reviews are recorded, and in which files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import (
    Declared,
    Duration,
    File,
    Groups,
    Integer,
    Number,
    Read,
    Texts,
    declare,
    required,
)
from gateway.config.kinds.files import read_recording_key_file

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

JsonPath = tuple[str | None, ...]
"""Names of members, from an object. None stands for all members of a mapping, or all items of a list."""

MAX_PER_SECOND: Final = 1_000_000
MAX_PER_COMBINATION: Final = 1_000_000
FILE_BYTES: Final = (64 * 1024, 1024**4)
MAX_FILES: Final = 10_000
AGE_S: Final = (60.0, 365 * 86_400.0)
_STEP: Final = re.compile(r"\.?([A-Za-z_][\w-]*)|\.?(\*)|\[(\*)\]|\['([^'\\]+)'\]")
"""One step of a path: ``.name``, ``.*``, ``[*]`` or ``['name']``, of RFC 9535."""


def _bad_path(text: str) -> str:
    return f"found {shown(text)}, expected a path such as $.spec.containers[*].env[*].value or $.data['a.b']"


def parse_path(text: str) -> JsonPath | None:
    """Return the steps of the JSONPath *text*, or None if it is not supported. ``$`` may be left out."""
    rest, steps = text.removeprefix("$"), list[str | None]()
    at = 0
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None or (at and rest[at] not in ".["):
            return None
        steps.append(step[1] or step[4])
        at = step.end()
    return tuple(steps) or None


def _read_folder(source: Fields, name: str) -> Path:
    text = source.required_string(name, lambda text: "contains a NUL character" if "\0" in text else None)
    path = source.folder / text
    if text and "\0" not in text and not (path.is_dir() or (path.parent.is_dir() and not path.exists())):
        found = f"found {shown(str(path))}"
        source.problem(name, f"{found}, expected a folder, or a new one in a folder that exists")
    return path


def _read_paths(source: Fields, name: str) -> tuple[JsonPath, ...]:
    paths = source.strings(name, lambda text: None if parse_path(text) else _bad_path(text))
    if not source.has(name):
        source.problem(name, "is required")
    return tuple(found for text in paths if (found := parse_path(text)))


@dataclass(frozen=True, slots=True)
class RedactionRule(Declared):
    """Values of objects that are replaced, besides those that always are."""

    paths: tuple[JsonPath, ...] = required(
        Read("list of strings", _read_paths, "array"),
        "From the object, with names and `[*]`, such as `$.spec.containers[*].env[*].value` or "
        "`$.data['a.b']`",
    )
    kinds: tuple[str, ...] = declare(
        Texts(check=lambda text: None if text else "is empty, expected a kind"),
        "Such as `ConfigMap`. Absent: all",
        default=(),
    )


@dataclass(frozen=True, slots=True)
class RecordSettings(Declared):
    """The mapping ``record``, with its defaults."""

    folder: Path = required(
        Read("path", _read_folder),
        "The folder of the files. It is made, for its owner alone, in a folder that exists",
    )
    sample_percent: float = declare(
        Number(0, 100, "percent"), "Of all reviews, from 0 to 100, by a hash of the uid", default=10.0
    )
    per_combination: int = declare(
        Integer(0, MAX_PER_COMBINATION, "reviews"),
        "Recorded whatever the sample, in an hour and process, of each combination of kind, operation, "
        "webhook and outcome",
        default=10,
    )
    max_per_second: int = declare(
        Integer(1, MAX_PER_SECOND, "reviews per second"),
        "Of each process, from 1 to 1,000,000. Further ones are dropped, and counted. The sample leaves a"
        " quarter of it to rare combinations",
        default=100,
    )
    max_file_bytes: int = declare(
        Integer(*FILE_BYTES, "bytes"),
        "Size of a compressed file, at least 65,536, at which the next one begins",
        default=64 * 1024 * 1024,
    )
    max_files: int = declare(
        Integer(1, MAX_FILES, "files"),
        "Files in the folder, from 1 to 10,000; the oldest are deleted",
        default=16,
    )
    max_age_s: float = declare(
        Duration(*AGE_S),
        "How long a file is kept after its last review, from 1m to 8760h",
        default=7 * 86_400.0,
        name="maxAge",
    )
    key_file: Path | None = declare(
        File(read_recording_key_file),
        "Key of the hashes that replace values, at least 16 random bytes. Absent: a random key of each "
        "process",
        default=None,
    )
    redact: tuple[RedactionRule, ...] = declare(
        Groups(RedactionRule), "Further values that are replaced", default=()
    )

    def check(self, source: Fields) -> None:
        """Warn if nothing is recorded."""
        if not self.sample_percent and not self.per_combination:
            source.problems.warn(source.path, "records nothing: samplePercent and perCombination are 0")

"""Reads mappings field by field, and reports every problem with its path.

A getter never raises: it adds to the ``Problems`` and returns a placeholder of the right type, so
that one run finds all problems. The caller has to drop the result if there are problems. An explicit
null equals an absent field, as in the Kubernetes API. Inside a list or a mapping of texts it is the empty
value where Go decodes the kind, and a problem in the gateway's own kinds, whose schemas do not allow it.

Source: sigs.k8s.io/json internal/golang/encoding/json decode.go (literalStore: null has no effect).
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from gateway.base.errors import Problem
from gateway.base.text import described, did_you_mean, one_of, shown
from gateway.pure.core.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Check = Callable[[str], str | None]
    """Returns the problem of a text, None if it is valid."""

S = TypeVar("S", bound=str)
D = TypeVar("D")

MAX_PROBLEMS = 1000
"""Problems of a document, and of a configuration: a file of another kind would have millions."""

RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+][0-9]{2}:[0-9]{2})"
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(slots=True)
class Problems:
    """The problems of one document, in the order in which they were found."""

    where: str
    """File, document, kind and name; completed once kind and name are known."""
    found: list[tuple[str, str]] = field(default_factory=list)
    """Field path and message."""
    questionable: list[tuple[str, str]] = field(default_factory=list)
    """Warnings: field path and message of values that are accepted, but probably a mistake."""
    folder: Path | None = None
    """Where relative paths of a webhook begin. None in a custom resource, which may name no files."""
    named_files: dict[str, str] = field(default_factory=dict)
    """The paths that :meth:`resolve` returned, and the texts from which they were made."""

    null_is_empty: bool = False
    """Whether null in a list or mapping is the empty value: the kind is one that the API server decodes."""

    @property
    def is_full(self) -> bool:
        """Whether it has ``MAX_PROBLEMS``; further problems are dropped."""
        return len(self.found) >= MAX_PROBLEMS

    def add(self, path: str, message: str) -> None:
        """Add a problem of the field at *path* (the whole document if it is empty)."""
        if not self.is_full:
            self.found.append((path, message))

    def warn(self, path: str, message: str) -> None:
        """Add a warning about the field at *path*."""
        if len(self.questionable) < MAX_PROBLEMS:
            self.questionable.append((path, message))

    def resolve(self, folder: Path, text: str) -> Path:
        """Return the path *text*, which begins in *folder* unless it is absolute."""
        path = folder / text
        self.named_files[str(path)] = text
        return path

    def errors(self) -> list[Problem]:
        """The problems, with their place."""
        return [Problem(self.where, path, message) for path, message in self.found]

    def warnings(self) -> list[Problem]:
        """The warnings, with their place."""
        return [Problem(self.where, path, message) for path, message in self.questionable]


def child(path: str, name: str) -> str:
    """The path of the field *name* in the mapping at *path*; a name with special characters is quoted."""
    if not _PLAIN_NAME.fullmatch(name):
        return f"{path}[{shown(name)}]"
    return f"{path}.{name}" if path else name


class Fields:
    """One mapping, read field by field. ``finish`` has to follow the last getter."""

    __slots__ = ("_known", "content", "path", "problems")

    def __init__(self, content: Mapping[str, object], path: str, problems: Problems) -> None:
        self.content = content
        self._known: dict[str, None] = {}
        self.path = path
        self.problems = problems

    @property
    def folder(self) -> Path:
        """Where relative paths begin. Not for a custom resource, which may name no files."""
        assert self.problems.folder is not None, "a custom resource may name no files"
        return self.problems.folder

    def at(self, name: str) -> str:
        """The path of the field *name*."""
        return child(self.path, name)

    def problem(self, name: str, message: str) -> None:
        """Add a problem of the field *name*."""
        self.problems.add(self.at(name), message)

    def has(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self._take(name) is not None

    def finish(self) -> None:
        """Add a problem for every field that was not read."""
        if self.content.keys() <= self._known.keys():
            return
        for name in (name for name in self.content if name not in self._known):
            if self.problems.is_full:
                # The search for similar names takes most of the time.
                return
            hint = did_you_mean(name, self._known) or f"; known fields: {', '.join(self._known)}"
            self.problem(name, f"unknown field{hint}")

    def finish_leniently(self) -> None:
        """Add a warning for every field that was not read, as its own tool ignores them."""
        for name in (name for name in self.content if name not in self._known):
            hint = did_you_mean(name, self._known)
            self.problems.warn(self.at(name), f"unknown field, which has no effect{hint}")

    def accept(self, *names: str) -> None:
        """Accept the fields *names* with any value: fields that only Kubernetes reads."""
        self._known.update(dict.fromkeys(names))

    def string(self, name: str, default: D, check: Check | None = None) -> str | D:
        """The text of the field, or *default*."""
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.problem(name, _not_a_string(value))
            return default
        if check and (message := check(value)):
            self.problem(name, message)
        return value

    def optional_string(self, name: str, check: Check | None = None) -> str:
        """The text of the field; the empty text if it is absent."""
        return self.string(name, "", check)

    def required_string(self, name: str, check: Check | None = None) -> str:
        """The text of the field; the empty text if it is absent, empty or not a text."""
        value = self.string(name, None, lambda text: check(text) if check and text else None)
        if not value and (value is not None or self._take(name) is None):
            self.problem(name, "is required")
        return value or ""

    def choice(self, name: str, allowed: tuple[S, ...], default: S | None = None) -> S:
        """One of the texts in *allowed*; the field is required if there is no *default*."""
        value = self._take(name)
        if value is None:
            if default is None:
                self.problem(name, f"is required; expected {one_of(allowed)}")
            return allowed[0] if default is None else default
        for candidate in allowed:
            if candidate == value:
                return candidate
        found = shown(value) if isinstance(value, str) else described(value)
        self.problem(name, f"found {found}, expected {one_of(allowed)}")
        return allowed[0]

    def boolean(self, name: str) -> bool:
        """Whether the field is true; absent, it is false."""
        value = self._take(name)
        if value is not None and not isinstance(value, bool):
            self.problem(name, f"found {described(value)}, expected true or false")
        return value is True

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """The whole number of the field, from *low* to *high*, or *default*."""
        value = self._take(name)
        if value is None:
            return default
        if type(value) is not int or not low <= value <= high:
            self.problem(name, f"found {described(value)}, expected a whole number from {low} to {high}")
            return default
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """The number of the field, from *low* to *high*, or *default*."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self.problem(name, f"found {described(value)}, expected a number from {low:g} to {high:g}")
            return default
        return float(value)

    def duration(self, name: str, default: float, low: float, high: float) -> float:
        """The seconds of a Go duration, from *low* to *high* seconds, or *default*."""
        value = self._take(name)
        if value is None:
            return default
        try:
            seconds = parse_duration(value) if isinstance(value, str) else math.nan
        except ValueError:
            seconds = math.nan
        if low <= seconds <= high:
            return seconds
        limits = f"from {format_duration(low)} to {format_duration(high)}"
        self.problem(name, f"found {described(value)}, expected a duration such as 100ms or 2s, {limits}")
        return default

    def time(self, name: str, default: float) -> float:
        """The time of the field, RFC 3339, in seconds since 1970, or *default*."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, str) and RFC_3339.fullmatch(value):
            with contextlib.suppress(ValueError, OverflowError):
                return datetime.fromisoformat(value).timestamp()
        self.problem(
            name, f"found {described(value)}, expected a time such as 2026-12-01T00:00:00Z (RFC 3339)"
        )
        return default

    def strings(self, name: str, check: Check | None = None) -> tuple[str, ...]:
        """The texts in a list; other values are left out."""
        return tuple(text for _, text in self.indexed_strings(name, check))

    def indexed_strings(self, name: str, check: Check | None = None) -> list[tuple[str, str]]:
        """The texts in a list, each with its path."""
        texts = []
        for path, value in self._elements(name, ""):
            if not isinstance(value, str):
                self.problems.add(path, _not_a_string(value))
                continue
            if check and (message := check(value)):
                self.problems.add(path, message)
            texts.append((path, value))
        return texts

    def string_map(self, name: str) -> dict[str, str]:
        """A mapping of texts to texts; other values are left out."""
        content = self._mapping(name) or {}
        if self.problems.null_is_empty:
            content = {key: "" if value is None else value for key, value in content.items()}
        for key, value in content.items():
            if not isinstance(value, str):
                self.problems.add(child(self.at(name), key), _not_a_string(value))
        return {key: value for key, value in content.items() if isinstance(value, str)}

    def mapping(self, name: str) -> Fields | None:
        """A reader of the mapping in the field; None if it is absent."""
        content = self._mapping(name)
        return None if content is None else Fields(content, self.at(name), self.problems)

    def required_mapping(self, name: str) -> Fields | None:
        """As ``mapping``, but an absent field is a problem."""
        if self._take(name) is None:
            self.problem(name, "is required")
        return self.mapping(name)

    def required_group(self, name: str) -> Fields:
        """A reader of the mapping in the field; without one, which is a problem, it reports no others."""
        return self.required_mapping(name) or Fields({}, self.at(name), Problems(self.problems.where))

    def group(self, name: str) -> Fields:
        """A reader of the mapping in the field, or of an empty one."""
        return self.mapping(name) or Fields({}, self.at(name), self.problems)

    def mappings(self, name: str) -> list[Fields]:
        """Readers of the mappings in a list."""
        readers = []
        for path, value in self._elements(name, {}):
            if isinstance(value, dict):
                readers.append(Fields(value, path, self.problems))
            else:
                self.problems.add(path, f"found {described(value)}, expected a mapping")
        return readers

    def _take(self, name: str) -> object:
        self._known[name] = None
        return self.content.get(name)

    def _mapping(self, name: str) -> dict[str, object] | None:
        value = self._take(name)
        if value is None or isinstance(value, dict):
            return value
        self.problem(name, f"found {described(value)}, expected a mapping")
        return None

    def _elements(self, name: str, empty: object) -> Iterator[tuple[str, object]]:
        """Yield path and value of each element; null may be *empty*."""
        value = self._take(name)
        if isinstance(value, list):
            for index, element in enumerate(value):
                is_empty = element is None and self.problems.null_is_empty
                yield f"{self.at(name)}[{index}]", empty if is_empty else element
        elif value is not None:
            self.problem(name, f"found {described(value)}, expected a list")


def _not_a_string(value: object) -> str:
    # Plain YAML words such as yes, on and 1.10 are not texts: the most frequent mistake.
    quote = "; put it in quotes" if isinstance(value, bool | int | float) else ""
    return f"found {described(value)}, expected a string{quote}"

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
from typing import TYPE_CHECKING, Protocol, TypeVar

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

GATEWAY_CONFIGURATION = "GatewayConfiguration"
SOME_POLICY = "Policy"
"""For ``Problems.lacking``: the document that is absent is a policy of any name."""
MAX_PROBLEMS = 1000
"""Problems of a document, and of a configuration: a file of another kind would have millions."""

RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+][0-9]{2}:[0-9]{2})"
)
_PLACE = re.compile(r"line (\d{1,9}), column (\d{1,9}): (.*)", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Places(Protocol):
    """Where the fields of a file's documents are."""

    file: Path

    def place(self, number: int, path: str, message: str) -> tuple[int, int]:
        """Return line and column of the field at *path* in document *number*, about which *message* is."""


@dataclass(slots=True)
class Problems:
    """The problems of one document, in the order in which they were found."""

    where: str
    """File, document, kind and name; completed once kind and name are known."""
    label: str = ""
    """Kind and name alone."""
    found: list[tuple[str, str]] = field(default_factory=list)
    """Field path and message."""
    lacking: dict[tuple[str, str], str] = field(default_factory=dict)
    """The problems that another document is absent, and its name, ``SOME_POLICY`` or
    ``GATEWAY_CONFIGURATION``."""
    questionable: list[tuple[str, str]] = field(default_factory=list)
    """Warnings: field path and message of values that are accepted, but probably a mistake."""
    folder: Path | None = None
    """Where relative paths of a webhook begin. None in a custom resource, which may name no files."""
    named_files: dict[str, str] = field(default_factory=dict)
    """The paths that :meth:`resolve` returned, and the texts from which they were made."""

    source: Places | None = None
    """Knows where the fields are. None for what is in no file."""
    number: int = 0
    """Of the document in the file, from 1."""
    parsed: int = 0
    """How many of the problems are the parser's, whose messages begin with their places."""
    null_is_empty: bool = False
    """Whether null in a list or mapping is the empty value: the kind is one that the API server decodes."""

    @property
    def is_full(self) -> bool:
        """Whether it has ``MAX_PROBLEMS``; further problems are dropped."""
        return len(self.found) >= MAX_PROBLEMS

    def add(self, path: str, message: str, lacks: str | None = None) -> None:
        """Add a problem of the field at *path* (the whole document if it is empty).

        *lacks* is the name of the document whose absence is the problem, or ``SOME_POLICY``.
        """
        # Two readers of one field may find the same.
        if not self.is_full and (path, message) not in self.found:
            self.found.append((path, message))
            if lacks is not None:
                self.lacking[path, message] = lacks

    def add_for_gateway(self, path: str, message: str) -> None:
        """Add a problem that another GatewayConfiguration solves."""
        self.add(path, message, lacks=GATEWAY_CONFIGURATION)

    def add_for_policy(self, path: str, message: str) -> None:
        """Add a problem that another policy, or another GatewayConfiguration, solves."""
        self.add(path, message, lacks=SOME_POLICY)

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
        return [self.problem(*found, is_parsed=index < self.parsed) for index, found in enumerate(self.found)]

    def warnings(self) -> list[Problem]:
        """The warnings, with their place."""
        return [self.problem(path, message) for path, message in self.questionable]

    def place(self, path: str) -> str:
        """Where the field at *path* is, for messages: file, line and column, kind and name."""
        if self.source is None:
            return f"{self.where}, {path}" if path else self.where
        return self.problem(path, "").where

    def problem(self, path: str, message: str, *, is_parsed: bool = False) -> Problem:
        """Return *message* about the field at *path*, with its place.

        *is_parsed* is whether the message is a parser's and begins with its place.
        """
        source = self.source
        if source is None:
            return Problem(self.where, path, message)
        line, column, message = (is_parsed and position_in(message)) or (
            *source.place(self.number, path, message),
            message,
        )
        where = f"{source.file}:{line}:{column}"
        label = f"{where}: {self.label}" if self.label else where
        return Problem(label, path, message, str(source.file), line, column)


def position_in(message: str) -> tuple[int, int, str] | None:
    """Return line, column and the rest of *message*, a parser's; None if it begins with no place."""
    named = _PLACE.fullmatch(message)
    return None if named is None else (int(named[1]), int(named[2]), named[3])


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

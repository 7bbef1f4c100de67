"""YAML and JSON texts to plain values: dicts, lists, texts, numbers, booleans and None.

Refused, each with its place, are duplicate keys, keys that are not texts, values that JSON cannot carry, deep
nesting, and aliases that unfold to more than memory holds. What a document means is not known here.

YAML is composed here from the parser's events, and not by ``CSafeLoader``, whose composer is recursive C code
without a bound: 100,000 opening brackets end the process by a stack overflow.

Source: YAML 1.1; its merge key type (``<<``). RFC 8259.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import yaml

from gateway.base.text import described, shown
from gateway.config.yaml.fields import MAX_PROBLEMS, child, position_in
from gateway.config.yaml.scalars import MAX_DIGITS, is_int64, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_NESTING = 100
"""Levels. A configuration needs ten; Namespace objects go to orjson, which stops at 254."""
MAX_VALUES = 1_000_000
"""Keys and values of a YAML file with all aliases written out; a long text counts once per 64 characters."""

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {None, "!", f"{_TAG}str"}
_PLAIN_TAGS = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float")}
_COLLECTION_TAGS = {None, "!", f"{_TAG}map", f"{_TAG}seq"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_SEPARATOR = re.compile(r"^---[ \t\r]*$", re.MULTILINE)
_TOO_DEEP = f"nested deeper than {MAX_NESTING} levels"
_HALF_PAIR = "half of a surrogate pair is not a character"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Parsed:
    """One document of a file."""

    number: int
    """From 1. Empty documents count in YAML."""
    root: object = None
    """None also if the document cannot be read to its end."""
    found: list[tuple[str, str]] = field(default_factory=list)
    """The problems: the path in the document, and a message."""


def problems_in(documents: Iterable[Parsed]) -> Iterator[tuple[int, int, str]]:
    """Yield line, column and text of each problem of *documents*, all of one file."""
    for path, message in (problem for one in documents for problem in one.found):
        line, column, text = position_in(message) or (1, 1, message)
        yield line, column, ": ".join(filter(None, (path, text)))


class _UnreadableError(Exception):
    """The rest of the file is not read; the text is the reason."""


def parse_json(text: str, lines_before: int = 0) -> Iterator[Parsed]:
    """Yield the documents in *text*, which lines ``---`` separate. Never raises, whatever *text* is.

    *lines_before* are the lines of the file before *text*, for the lines in messages.
    """
    for number, part, before in json_parts(text, lines_before):
        yield _JsonReader(Parsed(number), before).read(part)


def json_parts(text: str, lines_before: int) -> Iterator[tuple[int, str, int]]:
    """Yield number and text of each JSON document in *text*, and the lines of the file before it."""
    number = 0
    for part in _SEPARATOR.split(text):
        if part.strip():
            number += 1
            yield number, part, lines_before
        lines_before += part.count("\n")


class _JsonReader:
    """Reads one document."""

    def __init__(self, document: Parsed, lines_before: int) -> None:
        self._document = document
        self._lines_before = lines_before
        self._duplicates: dict[int, tuple[object, list[str]]] = {}
        """By the identity of a mapping: the mapping, and its keys that it has more than once."""

    def read(self, text: str) -> Parsed:
        """Return the document in *text*."""
        document = self._document
        try:
            root = json.loads(text, object_pairs_hook=self._mapping, parse_int=_json_integer)
            document.found += islice(self._problems(root, 1), MAX_PROBLEMS)
            # What reads the document further, to find more problems, need not know of halves of pairs.
            document.root = _whole(root) if document.found else root
        except json.JSONDecodeError as error:
            line = self._lines_before + error.lineno
            document.found = [("", f"line {line}, column {error.colno}: invalid JSON: {error.msg}")]
        except RecursionError:
            document.found = [("", _TOO_DEEP)]
        return document

    def _mapping(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            self._duplicates[id(found)] = found, [name for name in found if counts[name] > 1]
        return found

    def _problems(self, value: object, levels: int) -> Iterator[tuple[str, str]]:
        """Yield path and message of everything in *value* that is refused.

        Raises:
            RecursionError: it is nested too deep.
        """
        if isinstance(value, str):
            if _has_surrogate(value):
                yield "", _HALF_PAIR
        elif isinstance(value, int | float):
            if not (is_int64(value) if isinstance(value, int) else math.isfinite(value)):
                yield "", "the number is too large, or not finite"
        elif isinstance(value, dict | list):
            if levels > MAX_NESTING:
                raise RecursionError
            if id(value) in self._duplicates:
                yield from ((child("", key), "duplicate key") for key in self._duplicates[id(value)][1])
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(key, str) and _has_surrogate(key):
                    yield child("", key), _HALF_PAIR
                for path, message in self._problems(item, levels + 1):
                    start = child("", key) if isinstance(key, str) else f"[{key}]"
                    yield f"{start}.{path}" if path and path[0] != "[" else start + path, message


def _json_integer(text: str) -> int | float:
    return int(text) if len(text) <= MAX_DIGITS else math.inf


def _whole(value: object) -> object:
    """Return *value* with U+FFFD for each half of a surrogate pair, which cannot be written as UTF-8."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def parse_yaml(text: str, lines_before: int = 0) -> Iterator[Parsed]:
    """Yield the documents in *text*. Never raises, whatever *text* is.

    After a syntax error, whose line and column count from 1, or a passed bound, the rest of the text is not
    read. Values that an alias repeats are shared. *lines_before* are the lines of the file before *text*, for
    the lines in messages.
    """
    reader = _YamlReader(text, lines_before)
    try:
        yield from reader.documents()
        return
    except _UnreadableError as error:
        message = str(error)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's own scanner lets errors of chr() and int() through, for example for "\\UFFFFFFFF".
        message = _syntax_message(error, text, lines_before)
    # An error behind a complete document belongs to the next one.
    broken = reader.begun or Parsed(reader.number + 1)
    broken.found.append(("", message))
    yield broken


def _syntax_message(error: Exception, text: str, lines_before: int) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        reason = ", ".join(part for part in (error.problem, error.context) if part)
        return f"line {lines_before + mark.line + 1}, column {mark.column + 1}: {reason}"
    # PyYAML and libyaml give different positions of a character that YAML forbids.
    if match := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: match.start()]
        line, column = lines_before + before.count("\n") + 1, len(before) - before.rfind("\n")
        return f"line {line}, column {column}: the character U+{ord(match[0]):04X} is not allowed in YAML"
    return " ".join(str(error).split())


class _Anchored(NamedTuple):
    """The value of an alias."""

    value: object
    values: int
    """The number of values in it, see ``MAX_VALUES``."""
    height: int
    """Levels of nesting inside."""


class _YamlReader:
    """Composes one document after the other from the events of the parser."""

    def __init__(self, text: str, lines_before: int) -> None:
        self.number = 0
        """The number of the last document."""
        self.begun: Parsed | None = None
        """The document that is not complete."""
        self._events = yaml.parse(text, Loader=_Loader)
        self._lines_before = lines_before
        self._anchors: dict[str, _Anchored] = {}
        self._values = 0
        self._path: list[str | int | None] = []
        """The present key or index of each open collection; None between two keys."""
        self._height = 0
        """Levels of nesting in the values of the present collection so far."""

    def documents(self) -> Iterator[Parsed]:
        """Yield the documents. Raises _UnreadableError or what PyYAML raises."""
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.number += 1
                self._anchors.clear()
                self.begun = document = Parsed(self.number)
                root = self._value(next(self._events))
                next(self._events)
                document.root, self.begun = root, None
                yield document

    def _value(self, event: yaml.Event) -> object:
        before = self._values
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.ScalarEvent):
            self._count(1 + len(event.value) // 64, event)
            value, height = self._scalar(event), 0
        else:
            assert isinstance(event, yaml.CollectionStartEvent)
            value, height = self._collection(event)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, self._values - before, height)
        return value

    def _alias(self, event: yaml.AliasEvent) -> object:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            self._refuse(event, f"the alias *{event.anchor} has no complete value before it")
        self._count(anchored.values, event)
        self._check_nesting(anchored.height, event)
        self._height = max(self._height, anchored.height)
        return anchored.value

    def _scalar(self, event: yaml.ScalarEvent) -> object:
        text: str = event.value
        if _has_surrogate(text):
            self._problem(event, _HALF_PAIR)
            return None
        is_plain = event.implicit[0] and event.tag is None
        if not is_plain and event.tag in _TEXT_TAGS:
            return text
        if not is_plain and event.tag not in _PLAIN_TAGS:
            self._problem(event, f"the tag {shown(event.tag)} is not supported")
            return None
        try:
            return resolve(text)
        except ValueError as error:
            self._problem(event, f"found {shown(text)}: {error}")
            return None

    def _collection(self, event: yaml.CollectionStartEvent) -> tuple[object, int]:
        if event.tag not in _COLLECTION_TAGS:
            self._problem(event, f"the tag {shown(event.tag)} is not supported")
        # An alias inside refers to the collection itself, not to an earlier value of that name.
        self._anchors.pop(event.anchor or "", None)
        self._check_nesting(1, event)
        self._count(1, event)
        outer, self._height = self._height, 0
        self._path.append(None)
        value = self._mapping() if isinstance(event, yaml.MappingStartEvent) else self._list()
        self._path.pop()
        height = self._height + 1
        self._height = max(outer, height)
        return value, height

    def _list(self) -> list[object]:
        values: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._path[-1] = len(values)
            values.append(self._value(event))
        return values

    def _mapping(self) -> dict[str, object]:
        found: dict[str, object] = {}
        merged: list[dict[str, object]] = []
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            self._path[-1] = None
            key = self._key(event, lines)
            is_merged = is_merge(event)
            self._path[-1] = None if is_merged else key
            event = next(self._events)
            value = self._value(event)
            if is_merged:
                merged += self._to_merge(value, event)
            elif key is not None:
                found[key] = value
        for each in merged:
            for name, value in each.items():
                found.setdefault(name, value)
        return found

    def _key(self, event: yaml.Event, lines: dict[str, int]) -> str | None:
        """Return the key, or None if it is refused. *lines* has the keys before it."""
        key = self._value(event)
        if not isinstance(key, str):
            quote = "" if isinstance(key, dict | list) else "; put it in quotes"
            self._problem(event, f"found {described(key)} as a key, expected a string{quote}")
            return None
        if key in lines:
            self._problem(event, f"duplicate key {shown(key)}, first in line {lines[key]}")
            return None
        lines[key] = self._line(event)
        return key

    def _to_merge(self, value: object, event: yaml.Event) -> Iterator[dict[str, object]]:
        for source in value if isinstance(value, list) else [value]:
            if isinstance(source, dict):
                yield source
            else:
                self._problem(event, f"found {described(source)} to merge, expected a mapping or a list")

    def _count(self, values: int, event: yaml.Event) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            self._refuse(event, f"the file has more than {MAX_VALUES:,} values, aliases written out")

    def _check_nesting(self, levels: int, event: yaml.Event) -> None:
        if len(self._path) + levels > MAX_NESTING:
            self._refuse(event, _TOO_DEEP)

    def _problem(self, event: yaml.Event, message: str) -> None:
        path = ""
        for part in self._path:
            if part is not None:
                path = child(path, part) if isinstance(part, str) else f"{path}[{part}]"
        assert self.begun is not None
        self.begun.found.append((path, f"{self._place(event)}: {message}"))
        if len(self.begun.found) >= MAX_PROBLEMS:
            self._refuse(event, "too many problems; the rest of the file is not read")

    def _line(self, event: yaml.Event) -> int:
        assert event.start_mark is not None  # absent only in events that are made to be written
        return self._lines_before + event.start_mark.line + 1

    def _place(self, event: yaml.Event) -> str:
        assert event.start_mark is not None  # as in _line
        return f"line {self._line(event)}, column {event.start_mark.column + 1}"

    def _refuse(self, event: yaml.Event, message: str) -> NoReturn:
        raise _UnreadableError(f"{self._place(event)}: {message}")


def is_merge(event: yaml.Event) -> bool:
    """Whether *event* is the key ``<<``, which merges mappings."""
    return (
        isinstance(event, yaml.ScalarEvent)
        and event.value == "<<"
        and event.implicit[0]
        and event.tag is None
    )

"""YAML text to plain values: dicts, lists, texts, numbers, booleans and None.

Built from the parser's events in one pass without recursion, so that deep nesting, aliases that unfold to
more than memory holds, doubled keys and keys that are no text are found where they stand, with the line.
JSON is read as the subset of YAML that it is. Nothing here knows what a document means.

Source: YAML 1.1; its merge key type (``<<``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from gateway.config.fields import MAX_PROBLEMS, child
from gateway.config.scalars import resolve
from gateway.text import described, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NESTING = 100
"""Levels. What is configured needs ten; Namespace objects go to orjson, which stops at 254."""
MAX_VALUES = 1_000_000
"""Keys and values of a file with all aliases written out; a long text counts once per 64 characters."""

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {None, "!", f"{_TAG}str"}
_PLAIN_TAGS = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float")}
_COLLECTION_TAGS = {None, "!", f"{_TAG}map", f"{_TAG}seq"}
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE | re.ASCII
)
_ODD_IN_YAML = {
    code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF)
}
"""JSON texts may hold these as they are; YAML refuses them, or takes them for line breaks."""

_PIECE_CHARS = 64 * 1024
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Parsed:
    """One document of a file."""

    number: int
    """From 1, empty documents counted."""
    root: object = None
    is_complete: bool = False
    """Whether the end was reached; ``root`` is None otherwise."""
    found: list[tuple[str, str]] = field(default_factory=list)
    """What is wrong: the path in the document, and a message that names the line."""


def parse(text: str, *, json_only: bool = False) -> Iterator[Parsed]:
    """Yield the documents in *text*. Never raises, whatever *text* is.

    Where the syntax is broken or a bound is passed, the last one is not complete and says so (line and
    column count from 1), and the rest of the text is not read. Values that an alias repeats are shared.
    """
    if json_only:
        text = _as_yaml(text)
    builder = _Builder(json_only=json_only)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if builder.take(event):
                yield builder.document
        return
    except _UnreadableError as error:
        message = str(error)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's own scanner lets errors of chr() and int() through, for "\\UFFFFFFFF" as an example.
        message = _syntax_message(error, text)
    # What is wrong after a document that is complete belongs to the one that would have come next.
    broken = builder.document
    if broken.is_complete or not broken.number:
        broken = Parsed(broken.number + 1)
    broken.found.append(("", message))
    yield broken


def _as_yaml(text: str) -> str:
    """Return JSON in words that YAML has, too. By pieces: other threads may have something urgent to do."""
    if not text.isascii() or "\x7f" in text:
        pieces = (text[begin : begin + _PIECE_CHARS] for begin in range(0, len(text), _PIECE_CHARS))
        text = "".join(piece.translate(_ODD_IN_YAML) for piece in pieces)
    return _SURROGATE_PAIR.sub(_join_surrogates, text) if "\\ud" in text or "\\uD" in text else text


def _join_surrogates(match: re.Match[str]) -> str:
    # JSON writes what is past U+FFFF as two escapes, which YAML does not know.
    high, low = int(match[2], 16), int(match[3], 16)
    return match[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _syntax_message(error: Exception, text: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        reason = ", ".join(part for part in (error.problem, error.context) if part)
        return f"line {mark.line + 1}, column {mark.column + 1}: {reason}"
    # The parsers do not agree on what they count up to a character that YAML forbids.
    if match := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: match.start()]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return f"line {line}, column {column}: the character U+{ord(match[0]):04X} may not stand in a file"
    return " ".join(str(error).split())


class _UnreadableError(Exception):
    """The rest of the file is not worth reading; the text says why, and in which line."""


class _Word:
    """A marker that no document can hold."""


_MERGE = _Word()
_NO_KEY = _Word()
_DROPPED = _Word()


@dataclass(frozen=True, slots=True)
class _Anchored:
    """What an alias stands for."""

    value: object
    values: int
    height: int
    """Levels of nesting inside."""


class _Frame:
    """A mapping or list that is not complete yet."""

    __slots__ = ("anchor", "height", "key", "line", "lines", "merged", "spent", "value")

    def __init__(self, event: yaml.CollectionStartEvent, spent: int) -> None:
        self.value: dict[str, object] | list[object] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.anchor: str | None = event.anchor
        self.line = _line(event)
        self.key: str | _Word = _NO_KEY
        self.lines: dict[str, int] = {}
        self.merged: list[dict[str, object]] = []
        self.spent = spent
        self.height = 1


class _Builder:
    """Takes parse events and builds one document after the other."""

    def __init__(self, *, json_only: bool) -> None:
        self.document = Parsed(0)
        self._json_only = json_only
        self._frames: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._spent = 0

    def take(self, event: yaml.Event) -> bool:
        """Take the next *event*; return whether it completes ``document``."""
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.CollectionStartEvent():
                self._open(event)
            case yaml.CollectionEndEvent():
                self._close()
            case yaml.DocumentStartEvent():
                self.document = Parsed(self.document.number + 1)
                self._anchors = {}
            case yaml.DocumentEndEvent():
                self.document.is_complete = True
        return self.document.is_complete and isinstance(event, yaml.DocumentEndEvent)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        values = 1 + len(event.value) // 64
        self._spend(values, event)
        value = self._resolved(event)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, values, 0)
        self._put(value, _line(event))

    def _resolved(self, event: yaml.ScalarEvent) -> object:
        text: str = event.value
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            self._problem(_line(event), "half of a surrogate pair is no character")
            return None
        is_plain = event.implicit[0] and event.tag is None
        if is_plain and text == "<<":
            return _MERGE
        if not is_plain and event.tag in _TEXT_TAGS:
            return text
        if not is_plain and event.tag not in _PLAIN_TAGS:
            self._problem(_line(event), f"the tag {shown(event.tag)} is not supported")
            return None
        try:
            return resolve(text, json_only=self._json_only)
        except ValueError as error:
            self._problem(_line(event), f"found {shown(text)}: {error}")
            return None

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            raise _UnreadableError(f"line {_line(event)}: *{event.anchor} names no complete value before it")
        self._spend(anchored.values, event)
        self._check_nesting(anchored.height, event)
        if self._frames:
            self._frames[-1].height = max(self._frames[-1].height, anchored.height + 1)
        self._put(anchored.value, _line(event))

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        if event.tag not in _COLLECTION_TAGS:
            self._problem(_line(event), f"the tag {shown(event.tag)} is not supported")
        if event.anchor:
            # An alias inside would refer to the value itself, not to an earlier one of that name.
            self._anchors.pop(event.anchor, None)
        self._check_nesting(1, event)
        self._frames.append(_Frame(event, self._spent))
        self._spend(1, event)

    def _close(self) -> None:
        frame = self._frames.pop()
        if isinstance(frame.value, dict):
            for merged in frame.merged:
                for name in merged.keys() - frame.value.keys():
                    frame.value[name] = merged[name]
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchored(frame.value, self._spent - frame.spent, frame.height)
        if self._frames:
            self._frames[-1].height = max(self._frames[-1].height, frame.height + 1)
        self._put(frame.value, frame.line)

    def _put(self, value: object, line: int) -> None:
        kept = "<<" if value is _MERGE else value
        if not self._frames:
            self.document.root = kept
            return
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            frame.value.append(kept)
        elif frame.key is _NO_KEY:
            frame.key = self._key(frame, value, line)
        else:
            if frame.key is _MERGE:
                self._merge(frame, value, line)
            elif isinstance(frame.key, str):
                frame.value[frame.key] = kept
            frame.key = _NO_KEY

    def _key(self, frame: _Frame, value: object, line: int) -> str | _Word:
        name = "<<" if value is _MERGE else value
        if not isinstance(name, str):
            quote = "" if isinstance(value, dict | list) else "; put it in quotes"
            self._problem(line, f"found {described(value)} as a key, expected a string{quote}")
            return _DROPPED
        if name in frame.lines:
            self._problem(line, f"duplicate key {shown(name)}, first in line {frame.lines[name]}")
            return _DROPPED
        frame.lines[name] = line
        return _MERGE if value is _MERGE else name

    def _merge(self, frame: _Frame, value: object, line: int) -> None:
        for source in value if isinstance(value, list) else [value]:
            if isinstance(source, dict):
                frame.merged.append(source)
            else:
                self._problem(line, f"found {described(source)} to merge, expected a mapping or a list")

    def _spend(self, values: int, event: yaml.Event) -> None:
        self._spent += values
        if self._spent > MAX_VALUES:
            raise _UnreadableError(
                f"line {_line(event)}: the file has more than {MAX_VALUES:,} values, aliases written out"
            )

    def _check_nesting(self, levels: int, event: yaml.Event) -> None:
        if len(self._frames) + levels > MAX_NESTING:
            raise _UnreadableError(f"line {_line(event)}: nested deeper than {MAX_NESTING} levels")

    def _problem(self, line: int, message: str) -> None:
        path = ""
        for frame in self._frames:
            if isinstance(frame.value, list):
                path += f"[{len(frame.value)}]"
            elif isinstance(frame.key, str):
                path = child(path, frame.key)
        self.document.found.append((path, f"line {line}: {message}"))
        if len(self.document.found) >= MAX_PROBLEMS:
            raise _UnreadableError(f"line {line}: too much is wrong to read on")


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # absent only in events that are made to be written
    return event.start_mark.line + 1

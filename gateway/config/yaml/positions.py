"""Where the keys and items of a YAML or JSON document are in its text.

Positions come from the parser's events. Lines end at line feeds alone, as in editors and on the pages of code
hosts, although YAML 1.1 has further line breaks.

Source: YAML 1.1 (aliases, the merge key ``<<``).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

from gateway.config.yaml.parsing import MAX_NESTING, is_merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.yaml.field_paths import FieldPath

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ESCAPE: Final = re.compile(r"\\(?:u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)


class Region(NamedTuple):
    """A part of one line. All numbers count from 1, columns in Unicode characters."""

    line: int
    column: int
    end_column: int
    """The column behind the last character."""


@dataclass(slots=True)
class Node:
    """One value."""

    region: Region
    """Its first line."""
    members: dict[str | int, tuple[Region, Node]] = field(default_factory=dict)
    """By key the region of the key, or by index that of the item."""
    merged: list[Node] = field(default_factory=list)
    """What ``<<`` merges into a mapping."""
    items: int = -1
    """The number of items of a list. -1 for others."""

    def member(self, key: str | int) -> tuple[Region, Node] | None:
        """Return the region and the value of *key*, perhaps of a mapping that is merged."""
        found = self.members.get(key)
        for node in self.merged if found is None else ():
            found = found or node.member(key)
        return found


class _TooDeepError(Exception):
    """The text nests deeper than manifests do."""


def positions(text: str, lines_before: int = 0, *, is_json: bool = False) -> list[Node | None]:
    """Return the root of each document in *text*; only those before an error. Never raises.

    *lines_before* are the lines of the file before *text*.
    """
    composer = _Composer(text, lines_before, is_json=is_json)
    found: list[Node | None] = []
    with suppress(yaml.YAMLError, ValueError, OverflowError, _TooDeepError, StopIteration):
        found.extend(composer.documents())
    return found


def region_of(root: Node, path: FieldPath) -> tuple[Region, int]:
    """Return the key at *path*, or else of its nearest parent, and how many parts of *path* lead to it."""
    region, _, length = member_at(root, path)
    return region, length


def member_at(root: Node, path: FieldPath) -> tuple[Region, Node, int]:
    """As ``region_of``, with the value of the key."""
    region, node = root.region, root
    for number, part in enumerate(path):
        found = node.member(part)
        if found is None:
            return region, node, number
        region, node = found
    return region, node, len(path)


def _yaml_of(text: str) -> str:
    """Return JSON as YAML with the same positions: without tabs, and without halves of surrogate pairs."""
    return _ESCAPE.sub(lambda found: "......" if len(found[0]) > 2 else found[0], text).replace("\t", " ")


class _Composer:
    """Makes the nodes of one document after the other from the events of the parser."""

    def __init__(self, text: str, lines_before: int, *, is_json: bool) -> None:
        self._json = text if is_json else None
        self._events: Iterator[yaml.Event] = yaml.parse(_yaml_of(text) if is_json else text, Loader=_Loader)
        self._lines_before = lines_before
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._length = len(text)
        self._anchors: dict[str, Node] = {}

    def documents(self) -> Iterator[Node | None]:
        """Yield the root of each document."""
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                _, root = self._value(next(self._events), 0)
                next(self._events)
                yield root

    def _value(self, event: yaml.Event, levels: int) -> tuple[Region, Node]:
        if levels > MAX_NESTING:
            raise _TooDeepError
        region = self._region(event)
        if isinstance(event, yaml.AliasEvent):
            # The alias is where the value is used, and what is in it is where the anchor is.
            return region, self._anchors.get(event.anchor or "") or Node(region)
        node = Node(region)
        if event.anchor:  # type: ignore[attr-defined]
            self._anchors[event.anchor] = node  # type: ignore[attr-defined]
        if isinstance(event, yaml.SequenceStartEvent):
            node.items = 0
            while not isinstance(following := next(self._events), yaml.SequenceEndEvent):
                node.members[node.items] = self._value(following, levels + 1)
                node.items += 1
        elif isinstance(event, yaml.MappingStartEvent):
            self._mapping(node, levels)
        return region, node

    def _mapping(self, node: Node, levels: int) -> None:
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            region, _ = self._value(key, levels + 1)
            _, value = self._value(next(self._events), levels + 1)
            if is_merge(key):
                sources = [one for _, one in value.members.values()] if value.items >= 0 else [value]
                # A mapping cannot merge itself, which a hostile text may say.
                node.merged += [one for one in sources if one is not node]
            elif isinstance(key, yaml.ScalarEvent):
                node.members.setdefault(self._text_of(key), (region, value))

    def _text_of(self, key: yaml.ScalarEvent) -> str:
        if self._json is None or key.start_mark is None or key.end_mark is None:
            return str(key.value)
        return str(json.loads(self._json[key.start_mark.index : key.end_mark.index]))

    def _region(self, event: yaml.Event) -> Region:
        assert event.start_mark is not None and event.end_mark is not None  # noqa: PT018 - those of a text
        start, end = event.start_mark.index, event.end_mark.index
        row = bisect_right(self._starts, start) - 1
        begin = self._starts[row]
        line_end = self._starts[row + 1] - 1 if row + 1 < len(self._starts) else self._length
        column = start - begin + 1
        end_column = min(end, line_end) - begin + 1
        return Region(self._lines_before + row + 1, column, max(end_column, column + 1))

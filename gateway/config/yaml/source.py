"""The text of a configuration file: where the fields of its documents are, for messages about them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.config.yaml.field_paths import parse_field
from gateway.config.yaml.parsing import json_parts
from gateway.config.yaml.positions import member_at, positions

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.positions import Node, Region

_IN_EXPRESSION: Final = re.compile(r"(?:cannot succeed on [^:]{1,300}: )?(\d{1,6}):(\d{1,6}): ")
"""How an error of an expression begins: line and column in its text."""
_BLOCK: Final = re.compile(r"\|[-+]?(?=\s|$)")


@dataclass(slots=True)
class Source:
    """The text of one file. Positions are looked up when one is needed: few files have problems."""

    file: Path
    text: str
    _roots: dict[int, Node | None] | None = field(default=None, repr=False)

    @property
    def is_json(self) -> bool:
        """Whether the text is JSON, not YAML."""
        return self.file.suffix == ".json"

    def place(self, number: int, path: str, message: str) -> tuple[int, int]:
        """Return where the field at *path* in document *number* is, or its nearest parent that is written.

        The place is that of a key, or of an item of a list. An error in an expression has its own place, or
        that of the expression if the file writes it with escapes or folded.
        """
        root = self._root(number)
        if root is None:
            return 1, 1
        keys = parse_field(path)
        region, node, length = member_at(root, keys)
        if (error := _IN_EXPRESSION.match(message)) and length == len(keys):
            region = node.region
            if exact := self._in_text(region, int(error[1]), int(error[2])):
                return exact
        return region.line, region.column

    def _root(self, number: int) -> Node | None:
        if self._roots is None:
            if self.is_json:
                parts = (
                    (part, positions(text, before, is_json=True))
                    for part, text, before in json_parts(self.text, 0)
                )
                self._roots = {part: found[0] for part, found in parts if found}
            else:
                self._roots = dict(enumerate(positions(self.text), 1))
        return self._roots.get(number)

    def _in_text(self, region: Region, line: int, column: int) -> tuple[int, int] | None:
        """Return the place of *line* and *column* in the text at *region*; None if the file may differ.

        Escapes and folded lines move what follows them.
        """
        lines = self.text.split("\n")
        begin = lines[region.line - 1][region.column - 1 :]
        if _BLOCK.match(begin):
            written = next((one for one in lines[region.line :] if one.strip()), "")
            indent = len(written) - len(written.lstrip(" "))
            end = min(region.line + line, len(lines))
            if lines[end - 1].startswith(" " * indent):
                return end, indent + column
            # Behind the last line break of the text.
            while not lines[end - 1].startswith(" " * indent):
                end -= 1
            return end, len(lines[end - 1]) + 1
        if begin[:1] in ("|", ">", "&", "!"):
            return None
        quote = begin[:1] if begin[:1] in ("'", '"') else ""
        at = region.column + len(quote) + column - 1
        passed = begin[len(quote) : len(quote) + column - 1]
        is_exact = line == 1 and at <= region.end_column and not (quote and {quote, "\\"} & set(passed))
        return (region.line, at) if is_exact else None

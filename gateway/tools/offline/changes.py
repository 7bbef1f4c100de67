"""The difference of two objects as text: lines of YAML with ``-`` and ``+``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import yaml

from admission_gateway_worker.text import printable
from gateway.base.terminal import Style, Styled

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT_LINES: Final = 3
_STYLES: Final[dict[str, Style]] = {"-": "removed", "+": "added"}


class _Dumper(yaml.SafeDumper):
    """Writes equal values twice, instead of an anchor and an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class _FastDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The same in C, except that it escapes characters beyond U+FFFF."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def changes(before: object, after: object) -> Iterator[str]:
    """Yield the lines that differ between two JSON values, with a few lines around them; none if equal.

    Keys are sorted, so the order of keys makes no difference. Each line is printable.
    """
    lines = difflib.unified_diff(_lines(before), _lines(after), n=CONTEXT_LINES, lineterm="")
    for number, line in enumerate(lines):
        if number >= 2:  # the first two would name files
            yield line if not line.startswith("@@") else "@@"


def coloured(line: str, indent: str = "") -> Styled:
    """Return a *line* of :func:`changes`, after *indent*, with the colours of a terminal."""
    return Styled(indent, (line, _STYLES.get(line[:1], "")))


def as_yaml(value: object) -> str:
    """Return *value* as block YAML with sorted keys and a line break at the end."""
    try:
        text = _dump(value, _FastDumper)
    except UnicodeEncodeError:  # half of a surrogate pair
        text = _dump(value, _Dumper)
    return (_dump(value, _Dumper) if "\\U000" in text else text).removesuffix("...\n")


def _dump(value: object, dumper: type[yaml.SafeDumper]) -> str:
    text: str = yaml.dump(
        value, Dumper=dumper, sort_keys=True, allow_unicode=True, default_flow_style=False, width=1 << 30
    )
    return text


def _lines(value: object) -> list[str]:
    if value is None:
        return []
    return [printable(line, None) for line in as_yaml(value).split("\n")[:-1]]

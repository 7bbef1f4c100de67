"""Lines of reports for people that several commands print alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NOT_CALLED: Final = "webhooks that are not called, because of their sideEffects"
"""The title of a section."""


def number_of(number: int, name: str) -> str:
    """Return *number* with *name*, in the plural unless it is one."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def section(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield *title* and *lines* below it, after an empty line; nothing if there are no lines."""
    shown = [f"  {line}" for line in lines]
    if shown:
        yield from ("", f"{title}:", *shown)


def counted(title: str, counts: Iterable[dict[str, Any]], of: str) -> Iterator[str]:
    """Yield the section *title*: of each of *counts* the number in its member *of*, and its ``reason``."""
    yield from section(title, (f"{one[of]:>7,}  {printable(one['reason'])}" for one in counts))

"""JSON values as YAML for people, as lines and as differences. Secrets have been removed before."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
import yaml

from gateway.server.pages.state import encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.server.pages.state import Json

MAX_LINES: Final = 3000
"""The most lines of a text. The time of a difference can grow with the square of it."""
SHOWN_WEBHOOKS: Final = 500
"""Webhooks of each phase that are shown. The JSON has all."""


class DiffLine(NamedTuple):
    """One line of a difference."""

    kind: str
    """``plus``, ``minus``, ``place`` or ``same``."""
    text: str


class Section(NamedTuple):
    """One part of the configuration."""

    title: str
    lines: Sequence[str]
    left_out: int
    """Further objects, which are not shown."""


def lines_of(value: object) -> list[str]:
    """Return *value* as lines of YAML, at most ``MAX_LINES``."""
    try:
        text = _yaml(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        text = _yaml(orjson.loads(encoded(value)))
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"# and {len(lines) - MAX_LINES} more lines"]
    return lines


def _yaml(value: object) -> str:
    text: str = yaml.dump(value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1000)
    return text


_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def difference(before: Sequence[str], after: Sequence[str]) -> list[DiffLine]:
    """Return the unified difference of two texts."""
    found = list(unified_diff(before, after, lineterm="", n=3))[2:]
    kinds = {"+": "plus", "-": "minus", "@": "place"}
    return [DiffLine(kinds.get(line[:1], "same"), line) for line in found]


def sections(configuration: Json) -> list[Section]:
    """Return the *configuration* page as sections."""
    found = [Section("GatewayConfiguration", lines_of(configuration["gateway"]), 0)]
    for title, member in (
        ("Worker pools", "pools"),
        ("Mutating webhooks", "mutating"),
        ("Validating webhooks", "validating"),
        ("Exceptions", "exceptions"),
        ("Namespaces", "namespaces"),
    ):
        objects = configuration[member]
        lines = [line for one in objects[:SHOWN_WEBHOOKS] for line in lines_of([one])]
        found.append(Section(title, lines, max(len(objects) - SHOWN_WEBHOOKS, 0)))
    return found

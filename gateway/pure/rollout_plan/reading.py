"""Reads the members of documents that other processes wrote."""

from __future__ import annotations

from typing import Any

from admission_gateway_worker.text import printable
from gateway.base.text import described, one_of, shown
from gateway.pure.rollout_plan.evidence import MAX_COUNT

Json = dict[str, Any]


class InvalidState(ValueError):
    """The document is not the state of a plan."""


def mapping(value: object, name: str) -> Json:
    """Return *value*, which has to be a mapping; these functions raise ``InvalidState``."""
    if not isinstance(value, dict):
        raise InvalidState(f"{name}: found {described(value)}, expected a mapping")
    return value


def items(found: Json, name: str, least: int, most: int) -> list[object]:
    """Return the list *name* of *found*, which has *least* to *most* items."""
    value = found.get(name)
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise InvalidState(f"{name}: found {described(value)}, expected a list of {least} to {most}")
    return value


def text(found: Json, name: str, most: int) -> str:
    """Return the text *name* of *found*."""
    value = found.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise InvalidState(f"{name}: found {described(value)}, expected a text of at most {most} characters")
    return printable(value, most)


def count(found: Json, name: str, most: int = MAX_COUNT) -> int:
    """Return the number *name* of *found*."""
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidState(f"{name}: found {described(value)}, expected a number from 0 to {most}")
    return value


def one_from(found: Json, name: str, allowed: tuple[Any, ...]) -> Any:  # noqa: ANN401 - one of *allowed*
    """Return the text *name* of *found*, one of *allowed*."""
    value = found.get(name)
    if value not in allowed:
        raise InvalidState(f"{name}: found {shown(value)}, expected {one_of(allowed)}")
    return value

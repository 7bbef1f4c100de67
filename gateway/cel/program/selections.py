"""Steps from a value to its parts: ``a.b[c]``, ``a.?b`` and ``a[?b]``.

Source: cel-go interpreter/attributes.go (applyQualifiers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.cel.errors import EvaluationError
from gateway.cel.indexing import Missing, find
from gateway.cel.meter import METER
from gateway.cel.values import NONE, Optional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.cel.program.code import Code, Frame


@dataclass(frozen=True, slots=True)
class Step:
    """One step from a value to a part of it."""

    field: str
    """The name of the field, if there is no *key*."""
    key: Code | None
    is_optional: bool
    cost: int
    """1 for the step, and the cost of the key in addition to the cost that it charges itself."""


def select(root: Code, steps: Sequence[Step], after: int = 0) -> Code:
    """Return the code that goes from the value of *root* through *steps*.

    The steps have been charged before. If one fails or finds nothing, the rest is paid back, and *after*, the
    cost of what follows the steps.
    """
    rest = after
    parts: list[tuple[str, Code | None, bool, int]] = []
    for step in reversed(steps):
        parts.insert(0, (step.field, step.key, step.is_optional, rest))
        rest += step.cost
    whole = rest

    def run(frame: Frame) -> object:
        try:
            value = root(frame)
        except EvaluationError:
            METER.left += whole
            raise
        is_optional = False
        if type(value) is Optional:
            if not value.present:
                METER.left += whole
                return value
            value, is_optional = value.value, True
        for field, key_code, is_question, rest in parts:
            is_optional = is_optional or is_question
            try:
                key = field if key_code is None else key_code(frame)
                if type(value) is dict and type(key) is str and key in value:
                    value = value[key]
                else:
                    value = find(value, key)
            except Missing as missing:
                METER.left += rest
                if not is_optional:
                    raise EvaluationError(str(missing)) from None
                METER.left += 1
                return NONE
            except EvaluationError:
                METER.left += rest + is_optional
                raise
        return Optional(value) if is_optional else value

    return run


def select_path(slot: int, path: tuple[str, ...], slow: Code) -> Code:
    """Return the code of ``variable.a.b``; *slow* runs if anything on the way is not a map with the field."""

    def run(frame: Frame) -> object:
        value = frame[slot]
        try:
            for field in path:
                value = value[field]  # type: ignore[index]
        except (KeyError, TypeError):
            return slow(frame)
        return value

    return run

"""Fields and elements of values of any type: ``a.b[c]``, ``has(a.b)``, ``a.?b`` and ``a[?b]``.

Source: cel-go interpreter/attributes.go (applyQualifiers, refQualify), common/types/list.go, map.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.cel.errors import EvaluationError
from gateway.cel.meter import METER
from gateway.cel.values import NONE, Optional, Uint, go_type, show, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Code = Callable[[list[object]], object]

KEY_TYPES: Final = frozenset({str, int, Uint, bool, float})
"""Types of values that may stand between brackets."""
_NUMBERS: Final = frozenset({int, Uint, float})


@dataclass(frozen=True, slots=True)
class Step:
    """One step from a value to a part of it."""

    field: str
    """The name of the field, where there is no *key*."""
    key: Code | None
    is_optional: bool
    cost: int
    """Of the step itself 1, and what the key costs beside what it charges itself."""


def invalid_key(key: object) -> EvaluationError:
    """The error of a *key* that is of none of the types that may stand between brackets."""
    return EvaluationError(f"invalid qualifier type: {go_type(key)}")


def select(root: Code, steps: Sequence[Step], after: int = 0) -> Code:
    """Return the code that goes from the value of *root* through *steps*.

    The steps have been paid for. Where one of them fails or finds nothing the rest is paid back, as well as
    *after*, the cost of what follows them.
    """
    rest = after
    parts: list[tuple[str, Code | None, bool, int]] = []
    for step in reversed(steps):
        parts.insert(0, (step.field, step.key, step.is_optional, rest))
        rest += step.cost
    whole = rest

    def run(frame: list[object]) -> object:
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
            except _Missing as missing:
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


class _Missing(Exception):
    """A value has no such part."""


def find(value: object, key: object) -> object:
    """Return the part of *value* at *key*.

    Raises:
        _Missing: there is none.
        EvaluationError: there cannot be any.
    """
    if type(key) not in KEY_TYPES:
        raise invalid_key(key)
    if type(value) is dict:
        if key in value and is_key(value, key):
            return value[key]
        raise _Missing(f"no such key: {show(key)}")
    if type(value) is list:
        at = _position(key)
        if 0 <= at < len(value):
            return value[at]
        raise _Missing(f"index out of bounds: {show(key)}")
    raise _Missing(f"no such key: {show(key)}")


def _position(key: object) -> int:
    if type(key) not in _NUMBERS:
        raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
    at = int(key) if not isinstance(key, float) or key.is_integer() else None  # type: ignore[call-overload]
    if at is None or not -(1 << 63) <= at < 1 << 63:
        raise EvaluationError(f"unsupported index value {show(key)} in list")
    return at  # type: ignore[no-any-return]


def is_key(container: dict[object, object], key: object) -> bool:
    """Say whether *key*, which Python finds in *container*, is a key of it.

    To Python 1, 1.0 and true are one; in CEL a bool is no number, and an integer finds no double.
    """
    kind = type(key)
    if kind is str or (kind not in _NUMBERS and kind is not bool):
        return True
    stored = type(next(iter(container)))
    if stored not in _NUMBERS and stored is not bool:
        # Keys of several types, which only a literal with dyn(...) has.
        stored = next(type(each) for each in container if each == key)
    if kind is bool or stored is bool:
        return kind is stored
    return kind is float or stored is not float


def has_field(operand: object, field: str) -> bool:
    """``has(operand.field)``: false also where *operand* can have no fields, as null."""
    if isinstance(operand, Optional):
        if not operand.present:
            return False
        operand = operand.value
    if isinstance(operand, list):
        raise EvaluationError("unsupported index type 'string' in list")
    return isinstance(operand, dict) and field in operand

"""Fields of values of any type: ``a.b``, ``has(a.b)`` and ``a.?b``.

Source: cel-go interpreter/attributes.go (refQualify), common/types/optional.go.
"""

from __future__ import annotations

from gateway.cel.errors import EvaluationError
from gateway.cel.values import NONE, Optional


def select_field(operand: object, field: str) -> object:
    """``operand.field``, which of an optional is an optional.

    Raises:
        EvaluationError: there is no such field.
    """
    if isinstance(operand, Optional):
        return optional_field(operand, field)
    _refuse_list(operand)
    if isinstance(operand, dict) and field in operand:
        return operand[field]
    raise EvaluationError(f"no such key: {field}")


def has_field(operand: object, field: str) -> bool:
    """``has(operand.field)``: false also where *operand* can have no fields, as null."""
    if isinstance(operand, Optional):
        return operand.present and has_field(operand.value, field)
    _refuse_list(operand)
    return isinstance(operand, dict) and field in operand


def optional_field(operand: object, field: str) -> Optional:
    """``operand.?field``."""
    if isinstance(operand, Optional):
        return optional_field(operand.value, field) if operand.present else operand
    _refuse_list(operand)
    if isinstance(operand, dict) and field in operand:
        return Optional(operand[field])
    return NONE


def _refuse_list(operand: object) -> None:
    if isinstance(operand, list):
        raise EvaluationError("unsupported index type 'string' in list")

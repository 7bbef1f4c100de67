"""The size of a value as JSON, found out before anything writes it.

A value whose parts are shared can have 2^n parts at a cost of n. Each of them counts as often as it occurs.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.meter import VALUE, count_steps
from gateway.pure.cel.values import Optional, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTAINER: Final = 10
"""The number of values that take as long as an empty list or map."""
_COUNTED: Final = 100_000
"""Steps that are counted together: they take at most a millisecond."""
_NUMBER: Final = 4
"""Bytes of a value that is neither a text nor a container."""


def json_bytes(value: object, limit: int) -> int:
    """Return about the bytes of *value* as JSON, or any number above *limit* if it has more.

    A character counts as one byte, and a number as four. Parts and texts are counted in steps.

    Raises:
        CostExceeded: there are too many steps.
    """
    size = steps = 0
    waiting: list[object] = [[value]]
    while waiting and size <= limit:
        one = waiting.pop()
        if isinstance(one, Struct):
            one = one.fields
        parts: Iterable[object]
        if isinstance(one, dict):
            parts, number = chain(one, one.values()), 2 * len(one)
        elif isinstance(one, list):
            parts, number = one, len(one)
        else:
            parts, number = ([one.value] if isinstance(one, Optional) else []), 1
        steps += (number + _CONTAINER) * VALUE
        if steps > _COUNTED:
            count_steps(steps)
            steps = 0
        size += number + 1
        text = 0
        for each in parts:
            kind = type(each)
            if kind is str or kind is bytes:
                text += len(each) + 2  # type: ignore[arg-type]
            elif kind is list or kind is dict or kind is Struct or kind is Optional:
                waiting.append(each)
            else:
                text += _NUMBER
        size += text
        steps += text // 4
    count_steps(steps)
    return size

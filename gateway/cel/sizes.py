"""The size of a value as JSON, found out before anything writes it.

A value whose parts are shared can have 2^n parts at a cost of n. Each of them counts as often as it occurs.
"""

from __future__ import annotations

from typing import Final

import orjson

from gateway.cel.meter import count_steps, count_values

_CONTAINER: Final = 10
"""The number of values that take as long as an empty list or map."""
_EXACT_FROM: Final = 16
"""A part of the limit, from which on the size is found out exactly: an escaped character has six bytes."""


def json_bytes(value: object, limit: int) -> int:
    """Return the bytes of *value*, plain JSON, as JSON: about; more than *limit* if it has more.

    Its parts and texts are counted in steps.

    Raises:
        CostExceeded: there are too many steps.
        TypeError: it has no JSON form.
    """
    size = 0
    waiting = [value]
    while waiting and size <= limit:
        one = waiting.pop()
        if isinstance(one, dict):
            count_values(2 * len(one) + _CONTAINER)
            size += 2 + 2 * len(one)
            waiting += one
            waiting += one.values()
        elif isinstance(one, list):
            count_values(len(one) + _CONTAINER)
            size += 2 + len(one)
            waiting += one
        elif isinstance(one, str):
            size += len(one) + 2
            count_steps(len(one) // 4)
        else:
            size += 1
    return len(orjson.dumps(value)) if limit // _EXACT_FROM < size <= limit else size

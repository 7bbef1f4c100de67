"""Long computations as generators, which yield between steps so that their caller can do other work."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

Result = TypeVar("Result")


def finish(steps: Generator[None, None, Result]) -> Result:
    """Run all *steps* at once and return their result: for work that is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result

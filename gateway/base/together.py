"""Runs coroutines together, so that none is left behind after the error of another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def together(*work: Coroutine[object, object, Any]) -> list[Any]:
    """Return the results of *work*, in order, when all have ended.

    After the first error the others are cancelled. The error is raised when they have ended, unlike that of
    ``asyncio.gather``, which leaves them running.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise

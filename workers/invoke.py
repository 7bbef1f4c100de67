"""Calling a policy, as far as it goes without waiting.

An async function that cannot suspend is driven to its end here, without a task. Any other is handed back
as a coroutine to be run in a task: things such as ``asyncio.timeout`` ask for the current task, so not even
its first step can be taken outside of one.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from workers.answer import Outcome, ended, raised

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import CodeType, CoroutineType

    from workers.policy import Policy
    from workers.review import Review

    Unfinished = CoroutineType[Any, Any, object]


@lru_cache(maxsize=1024)
def never_suspends(code: CodeType) -> bool:
    """Whether a coroutine of this code runs to its end in one step: it has no await, async for or with.

    Each of these is compiled to a YIELD_VALUE (CPython 3.11 and newer).
    """
    return not any(step.opname == "YIELD_VALUE" for step in dis.get_instructions(code))


def run(policy: Policy, review: Review) -> Outcome | Unfinished:
    """Call the policy and return its outcome, or the coroutine that ``outcome_of`` is to wait for."""
    try:
        result: object = policy.function(review)
        if result is not None and inspect.isawaitable(result):
            coroutine = cast("Unfinished", result if inspect.iscoroutine(result) else _awaited(result))
            if not never_suspends(coroutine.cr_code):
                return coroutine
            try:
                coroutine.send(None)
            except StopIteration as stop:
                result = stop.value
    except (Exception, SystemExit, asyncio.CancelledError, BaseExceptionGroup) as problem:
        return raised(policy, review, problem)
    return ended(policy, review, result)


async def outcome_of(policy: Policy, review: Review, coroutine: Unfinished) -> Outcome:
    """Wait for the coroutine of *policy* and return its outcome.

    Raises:
        asyncio.CancelledError: it was cancelled, or cancelled itself.
    """
    try:
        result = await coroutine
    except asyncio.CancelledError:
        raise
    except (Exception, SystemExit, BaseExceptionGroup) as problem:
        return raised(policy, review, problem)
    return ended(policy, review, result)


async def _awaited(result: Awaitable[None]) -> None:
    return await result

"""Calls a policy synchronously, if it cannot suspend.

An async function that cannot suspend runs to its end without a task. Any other async function is returned as
a coroutine for a task: even its first step may need the current task, for example in ``asyncio.timeout``.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from admission_gateway_worker.answer import Outcome, outcome_of_exception, outcome_of_result
from admission_gateway_worker.traceparent import continued

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import CodeType, CoroutineType

    from admission_gateway_worker.policy import Policy
    from admission_gateway_worker.review import Review

    Unfinished = CoroutineType[Any, Any, object]


@lru_cache(maxsize=1024)
def never_suspends(code: CodeType) -> bool:
    """Whether a coroutine of this code runs in one step, without await, async for and async with.

    CPython 3.11 and later compile each of these to YIELD_VALUE.
    """
    return not any(step.opname == "YIELD_VALUE" for step in dis.get_instructions(code))


def run(policy: Policy, review: Review) -> Outcome | Unfinished:
    """Call the policy in the trace of the review.

    Return its outcome, or a coroutine for ``outcome_of``.
    """
    if review.traceparent:
        with continued(review.traceparent):
            return _run(policy, review)
    return _run(policy, review)


def _run(policy: Policy, review: Review) -> Outcome | Unfinished:
    try:
        result: object = policy.function(review)
        if result is not None and inspect.isawaitable(result):
            coroutine = cast("Unfinished", result if inspect.iscoroutine(result) else _awaited(result))
            if not never_suspends(coroutine.cr_code):
                review.isolate()
                return coroutine
            try:
                coroutine.send(None)
            except StopIteration as stop:
                result = stop.value
    except (Exception, SystemExit, asyncio.CancelledError, BaseExceptionGroup) as problem:
        outcome = outcome_of_exception(policy, review, problem)
    else:
        review.give_back()
        return outcome_of_result(policy, review, result)
    # After the end of the exception, whose traceback refers to the variables of the policy.
    review.give_back()
    return outcome


async def outcome_of(policy: Policy, review: Review, coroutine: Unfinished) -> Outcome:
    """Await the coroutine of *policy* and return its outcome.

    Raises:
        asyncio.CancelledError: the task was cancelled.
    """
    try:
        result = await coroutine
    except asyncio.CancelledError:
        raise
    except (Exception, SystemExit, BaseExceptionGroup) as problem:
        return outcome_of_exception(policy, review, problem)
    return outcome_of_result(policy, review, result)


async def _awaited(result: Awaitable[None]) -> None:
    return await result

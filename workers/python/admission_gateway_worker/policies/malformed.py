"""Denies objects that are not of the form of their kind, instead of a failure of the policy.

The API server sends built-in kinds in their form only. Files that are reviewed without one may have any form.
"""

from __future__ import annotations

import inspect
import logging
from functools import wraps
from typing import TYPE_CHECKING, Final, cast

from admission_gateway_worker.answer import failure_text
from admission_gateway_worker.review import Denied, MalformedPayload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission_gateway_worker import Review
    from admission_gateway_worker.policy import PolicyFunction

_PROBLEMS: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a policy raises that reads a field of another type."""

log = logging.getLogger("admission_gateway_worker")


def denying_malformed(function: PolicyFunction) -> PolicyFunction:
    """Return *function* with a denial (400) where it raises an error because of the form of an object.

    The error is also logged, since it may be one of the policy.
    """
    if inspect.iscoroutinefunction(function):
        waiting = cast("Callable[[Review], Awaitable[None]]", function)

        @wraps(function)
        async def asynchronous(review: Review) -> None:
            try:
                await waiting(review)
            except _PROBLEMS as problem:
                raise _denial(review, problem) from problem

        return asynchronous

    @wraps(function)
    def synchronous(review: Review) -> Awaitable[None] | None:
        try:
            return function(review)
        except _PROBLEMS as problem:
            raise _denial(review, problem) from problem

    return synchronous


def _denial(review: Review, problem: Exception) -> Exception:
    if isinstance(problem, MalformedPayload):
        return problem
    kind = review.kind.get("kind") or "object"
    log.warning("a policy cannot read the %s of the review %s", kind, review.uid, exc_info=problem)
    field = _null(review.object)
    found = f"{field} is null" if field else "a field has a wrong type, or is missing"
    text = f"the {kind} is malformed: {found} ({failure_text(problem)})"
    return Denied(text, code=400, reason="BadRequest", field=field or None)


def _null(found: object) -> str:
    """Return the path of a list's element in *found* that is null; empty if there is none."""
    places = [("", found)]
    while places:
        path, value = places.pop()
        if isinstance(value, dict):
            places += ((f"{path}.{key}".lstrip("."), part) for key, part in value.items())
        elif isinstance(value, list):
            if None in value:
                return f"{path}[{value.index(None)}]"
            places += ((f"{path}[{index}]", part) for index, part in enumerate(value))
    return ""

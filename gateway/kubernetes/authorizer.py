"""Asks the API server's authorizer what matchConditions want to know of the user who made a request.

A question is a SubjectAccessReview. Its answer counts for one review alone: rights that were taken away are
gone for the next one.

Source: k8s.io/api authorization/v1 types.go; k8s.io/apiserver pkg/cel/library/authz.go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import orjson

from gateway.core.conditions import AccessDecision
from gateway.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.core.conditions import AccessCheck
    from gateway.kubernetes.access import ClusterAccess

log = logging.getLogger(__name__)

PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ASK_WITHIN_S: Final = 5.0
_HEAD: Final = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}


class Authorizer:
    """The authorizer of one cluster. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(
        self, check: AccessCheck, within_s: float, found: Callable[[AccessDecision], None]
    ) -> Callable[[], None]:
        """Find out about *check* for *found*, and return what withdraws the question.

        *found* is called once, later, and with an error where there was no answer within *within_s* seconds,
        or ``ASK_WITHIN_S`` if that is less.
        """
        task = asyncio.get_running_loop().create_task(self._tell(check, within_s, found))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def withdraw() -> None:
            task.cancel()

        return withdraw

    async def close(self) -> None:
        """Wait for the answers that are still out: reviews wait for them."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell(
        self, check: AccessCheck, within_s: float, found: Callable[[AccessDecision], None]
    ) -> None:
        try:
            async with asyncio.timeout(max(0.0, min(within_s, ASK_WITHIN_S))):
                answer = await self._ask(check)
        except TimeoutError:
            answer = AccessDecision(error="the API server has not answered in time")
        except ClusterError as error:
            answer = AccessDecision(error=str(error))
        except Exception:
            log.exception("the authorizer cannot be asked: internal error")
            answer = AccessDecision(error="internal error: the gateway's log has the details")
        found(answer)

    async def _ask(self, check: AccessCheck) -> AccessDecision:
        body = orjson.dumps({**_HEAD, "spec": orjson.Fragment(check.spec)})
        async with self._access.api() as api:
            answered = await api.post(PATH, body)
        match answered:
            case {"status": {"allowed": bool(allowed)} as status}:
                # Why it could not be found out counts only where nobody allows it.
                error = "" if allowed else str(status.get("evaluationError") or "")
                return AccessDecision(allowed, str(status.get("reason") or ""), error)
        return AccessDecision(error="the API server answered something that is no SubjectAccessReview")

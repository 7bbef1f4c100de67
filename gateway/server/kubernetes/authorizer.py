"""Sends SubjectAccessReviews of matchConditions to the API server's authorizer.

A decision is used in one review only, so that a revoked right takes effect in the next one.

Source: k8s.io/api authorization/v1 types.go; k8s.io/apiserver pkg/cel/library/authz.go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.errors import ClusterError
from gateway.pure.core.conditions import AccessDecision

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.core.conditions import AccessCheck
    from gateway.server.kubernetes.access import ClusterAccess

log = logging.getLogger(__name__)

PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MAX_TIMEOUT_S: Final = 5.0
_HEAD: Final = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}


class ClusterAuthorizer:
    """The authorizer of one cluster. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._tasks: set[asyncio.Task[None]] = set()

    def authorize(
        self, check: AccessCheck, timeout_s: float, on_result: Callable[[AccessDecision], None]
    ) -> Callable[[], None]:
        """Get the decision on *check*, and return a function that cancels this.

        *on_result* is called once, later, and with an error if there is no decision within *timeout_s*
        seconds or ``MAX_TIMEOUT_S``.
        """
        task = asyncio.get_running_loop().create_task(self._run(check, timeout_s, on_result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def cancel() -> None:
            task.cancel()

        return cancel

    async def close(self) -> None:
        """Wait for the checks that are not complete, since reviews wait for them."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(
        self, check: AccessCheck, timeout_s: float, on_result: Callable[[AccessDecision], None]
    ) -> None:
        try:
            async with asyncio.timeout(max(0.0, min(timeout_s, MAX_TIMEOUT_S))):
                decision = await self._decide(check)
        except TimeoutError:
            decision = AccessDecision(error="the API server has not answered in time")
        except ClusterError as error:
            decision = AccessDecision(error=str(error))
        except Exception:
            log.exception("check of the authorizer failed: internal error")
            decision = AccessDecision(error="internal error: the gateway's log has the details")
        on_result(decision)

    async def _decide(self, check: AccessCheck) -> AccessDecision:
        review = {**_HEAD, "spec": orjson.Fragment(check.spec)}
        async with self._access.api() as api:
            answer = await api.write("POST", PATH, review)
        match answer:
            case {"status": {"allowed": bool(allowed)} as status}:
                return AccessDecision(
                    allowed,
                    str(status.get("reason") or ""),
                    denied=status.get("denied") is True,
                    evaluation_error=str(status.get("evaluationError") or ""),
                )
        return AccessDecision(error="the API server's answer is not a SubjectAccessReview")

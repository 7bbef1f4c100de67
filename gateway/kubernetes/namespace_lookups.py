"""Asks the API server for single namespaces, for reviews that come before the watch has told of them.

A namespace and its first objects are often made by the same command, a moment apart. Since 1.35 the API
server asks likewise when a selector needs a namespace that its informer does not know. Only the answers are
shared, by those who wait for the same one; nothing of them is kept.

Source: kubernetes/apiserver plugin/webhook/predicates/namespace/matcher.go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.core.verdict import Failed, FailureReason
from gateway.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.core.namespace import Namespace

    Known = Namespace | Failed | None

log = logging.getLogger(__name__)

LOOK_UP_WITHIN_S: Final = 2.0


class NamespaceLookups:
    """Questions for single namespaces. Make it on a running event loop."""

    def __init__(self, ask: Callable[[str], Awaitable[Namespace | None]]) -> None:
        """*ask* returns the namespace of a name, None where there is none, or raises ClusterError."""
        self._ask = ask
        self._waiting: dict[str, dict[_Waiter, None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def look_up(self, name: str, within_s: float, found: Callable[[Known], None]) -> Callable[[], None]:
        """Find the namespace *name* for *found*, and return what withdraws the question.

        *found* is called once, later, and with Failed where there was no answer within *within_s* seconds, or
        within ``LOOK_UP_WITHIN_S`` of the moment when the first of those who wait had asked.
        """
        waiters = self._waiting.get(name)
        if waiters is None:
            waiters = self._waiting[name] = {}
            task = asyncio.get_running_loop().create_task(self._find(name, waiters))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiter = _Waiter(name, within_s, found)
        waiters[waiter] = None
        return waiter.withdraw

    async def close(self) -> None:
        """Wait for the answers that are still out."""
        await asyncio.gather(*self._tasks)

    async def _find(self, name: str, waiters: dict[_Waiter, None]) -> None:
        answer: Known
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN_S):
                answer = await self._ask(name)
        except TimeoutError:
            answer = _too_late(name)
        except ClusterError as error:
            answer = _failed(name, str(error))
        except Exception:
            log.exception("a namespace cannot be looked up: internal error")
            answer = _failed(name, "internal error: the gateway's log has the details")
        finally:
            # Whoever comes from now on asks anew.
            del self._waiting[name]
        for waiter in waiters:
            waiter.tell(answer)


class _Waiter:
    """One review that waits."""

    def __init__(self, name: str, within_s: float, found: Callable[[Known], None]) -> None:
        self._found: Callable[[Known], None] | None = found
        self._timer = asyncio.get_running_loop().call_later(
            max(0.0, within_s), lambda: self.tell(_too_late(name))
        )

    def tell(self, answer: Known) -> None:
        found, self._found = self._found, None
        self._timer.cancel()
        if found is not None:
            found(answer)

    def withdraw(self) -> None:
        self._found = None
        self._timer.cancel()


def _too_late(name: str) -> Failed:
    # Without how long that was, which is never quite the same.
    return _failed(name, "the API server has not answered in time")


def _failed(name: str, why: str) -> Failed:
    return Failed(FailureReason.NAMESPACE, f'namespace "{name}" cannot be looked up: {why}')

"""The calls in flight at one address, whoever is there: a worker, or an HTTPS server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.core.call import Call
    from gateway.core.verdict import Failed
    from gateway.dispatch.deadlines import Deadlines
    from gateway.dispatch.pending import Pending


class Ledger:
    """Keeps the calls in flight; to be derived from by what carries them out."""

    def __init__(self, max_in_flight: int, deadlines: Deadlines) -> None:
        self.in_flight = 0
        self.slots: dict[Pending, None] = {}
        """What was submitted and has not ended, the oldest first."""
        self._ignorable: dict[Pending, None] = {}
        """Slots with calls of webhooks with failurePolicy Ignore."""
        self._max_in_flight = max_in_flight
        self._deadlines = deadlines
        self._idle: asyncio.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has as many calls in flight as its ``maxInFlight`` allows."""
        return self.in_flight >= self._max_in_flight

    def reserve(self, pending: Pending, call: Call) -> None:
        """Add *call* to those of *pending*, which is to be submitted; from now on it is in flight."""
        pending.add(call)
        self.in_flight += 1
        if call.invocation.webhook.failure_policy == "Ignore":
            self._ignorable[pending] = None

    def withdraw(self, pending: Pending, index: int, code: str) -> None:
        """Forget a call whose answer is no longer wanted; it is counted as *code*, and the asker not told."""
        raise NotImplementedError

    def shed(self, failure: Failed) -> bool:
        """Make room for a call: end one of a webhook with failurePolicy Ignore, if there is one.

        Its asker is told of the *failure* later, since whoever wants the room is in the middle of something.
        """
        while self._ignorable:
            pending = next(iter(self._ignorable))
            for index, call in enumerate(pending.calls):
                if call is not None and call.invocation.webhook.failure_policy == "Ignore":
                    self.withdraw(pending, index, "CANCELLED")
                    asyncio.get_running_loop().call_soon(pending.asker.answered, pending, call, failure)
                    return True
            del self._ignorable[pending]
        return False

    def _enter(self, pending: Pending) -> None:
        self._deadlines.add(pending)
        self.slots[pending] = None

    def _let_go(self, pending: Pending, index: int) -> None:
        self.in_flight -= 1
        pending.calls[index] = None
        pending.open -= 1
        if not pending.open:
            self._deadlines.remove(pending)
            self.slots.pop(pending, None)
            if self._ignorable:
                self._ignorable.pop(pending, None)
            if pending.alarm is not None:
                pending.alarm.cancel()
        if self._idle is not None and not self.in_flight:
            self._idle.set()

    async def _wait_until_idle(self, grace_s: float) -> None:
        """Let calls in flight end for up to *grace_s* seconds."""
        if self.in_flight:
            self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)

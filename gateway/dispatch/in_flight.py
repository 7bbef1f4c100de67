"""The calls in flight at one address, whoever is there: a worker, or an HTTPS server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.core.call import Call
    from gateway.core.verdict import Failed
    from gateway.dispatch.calls import CallGroup
    from gateway.dispatch.timer_wheel import TimerWheel


class InFlightCalls:
    """Keeps the calls in flight; to be derived from by what carries them out."""

    def __init__(self, max_in_flight: int, deadlines: TimerWheel) -> None:
        self.in_flight = 0
        self.slots: dict[CallGroup, None] = {}
        """What was submitted and has not ended, the oldest first."""
        self._ignorable: dict[CallGroup, None] = {}
        """Slots with calls of webhooks with failurePolicy Ignore."""
        self._max_in_flight = max_in_flight
        self._timers = deadlines
        self._idle: asyncio.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has as many calls in flight as its ``maxInFlight`` allows."""
        return self.in_flight >= self._max_in_flight

    def reserve(self, group: CallGroup, call: Call) -> None:
        """Add *call* to those of *group*, which is to be submitted; from now on it is in flight."""
        group.add(call)
        self.in_flight += 1
        if call.invocation.webhook.failure_policy == "Ignore":
            self._ignorable[group] = None

    def withdraw(self, group: CallGroup, index: int, code: str) -> None:
        """Cancel a call and count it with status *code*; the observer is not called."""
        raise NotImplementedError

    def shed(self, failure: Failed) -> bool:
        """Make room for a call: end one of a webhook with failurePolicy Ignore, if there is one.

        The observer gets *failure* in a later iteration of the loop, because the caller is not reentrant.
        """
        while self._ignorable:
            group = next(iter(self._ignorable))
            for index, call in enumerate(group.calls):
                if call is not None and call.invocation.webhook.failure_policy == "Ignore":
                    self.withdraw(group, index, "CANCELLED")
                    asyncio.get_running_loop().call_soon(group.observer.on_verdict, group, call, failure)
                    return True
            del self._ignorable[group]
        return False

    def _enter(self, group: CallGroup) -> None:
        self._timers.add(group)
        self.slots[group] = None

    def _let_go(self, group: CallGroup, index: int) -> None:
        self.in_flight -= 1
        group.calls[index] = None
        group.open_count -= 1
        if not group.open_count:
            self._timers.remove(group)
            self.slots.pop(group, None)
            if self._ignorable:
                self._ignorable.pop(group, None)
            if group.hedge_timer is not None:
                group.hedge_timer.cancel()
        if self._idle is not None and not self.in_flight:
            self._idle.set()

    async def _wait_until_idle(self, grace_s: float) -> None:
        """Let calls in flight end for up to *grace_s* seconds."""
        if self.in_flight:
            self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)

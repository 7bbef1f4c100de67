"""How fast an audit may go, so that it takes little from other clients of the API server and other programs.

Three bounds hold at the same time: requests and objects a second, and a share of the CPU. The share is that
of this process. Workers that it starts are processes of their own.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LONGEST_S: Final = 60.0
"""The longest pause at a time."""


class Pace:
    """The bounds of one audit. Make it when the audit begins."""

    def __init__(
        self,
        requests_per_second: float,
        objects_per_second: float = 0.0,
        cpu_share: float = 0.0,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        """0 stands for no bound. *cpu_share* is a part of one CPU."""
        self._request_s = 1 / requests_per_second if requests_per_second else 0.0
        self._object_s = 1 / objects_per_second if objects_per_second else 0.0
        self._cpu_share = cpu_share
        self._sleep, self._now, self._cpu_s = sleep, now, cpu_s
        self._free_at = now()
        """When the next request may be sent."""
        self._cpu_before, self._cpu_at = cpu_s(), now()
        self.requests = 0
        """How many were sent."""

    async def request(self, objects: int = 0) -> None:
        """Wait until the next request may be sent. The answer to the one before had so many *objects*."""
        self._free_at = await self._wait(objects) + self._request_s
        self.requests += 1

    async def evaluate(self, objects: int) -> None:
        """Wait until so many *objects*, which came without a request, may be evaluated."""
        self._free_at = await self._wait(objects)

    async def _wait(self, objects: int) -> float:
        """Wait until the bounds hold for *objects* more, and return the time at which they do."""
        now = self._now()
        self._free_at += objects * self._object_s
        wait_s = max(self._free_at - now, self._cpu_wait_s(now))
        while wait_s > 0:
            await self._sleep(min(wait_s, _LONGEST_S))
            wait_s -= _LONGEST_S
        return max(self._free_at, now)

    def _cpu_wait_s(self, now: float) -> float:
        """Return the seconds after which the CPU time since the last request is within the share."""
        used_s, passed_s = self._cpu_s() - self._cpu_before, now - self._cpu_at
        wait_s = used_s / self._cpu_share - passed_s if self._cpu_share else 0.0
        self._cpu_before, self._cpu_at = self._cpu_s(), now + max(wait_s, 0.0)
        return wait_s

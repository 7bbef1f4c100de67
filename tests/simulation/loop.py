"""An event loop whose clock is a number: when nothing is ready it jumps to the next timer, and nothing waits.

Connections and look-ups of names go to a simulated network instead of the kernel; there are no threads.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

START_S: Final = 1000.0
"""The initial time."""
MOST_TURNS: Final = 20_000
"""Iterations of the loop without progress of the clock that count as a tight loop."""


class Stuck(AssertionError):
    """What was to happen never will: nothing is ready, and no timer is set; or the clock stands still."""


class Net(Protocol):
    """What the loop asks instead of the kernel."""

    async def connect(
        self, made: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to a port; OSError if that fails."""

    async def look_up(self, host: str) -> list[str]:
        """Return the IPv4 addresses of a name; socket.gaierror if that fails."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. Make a new one for each run, and end it with ``close``."""

    def __init__(self) -> None:
        super().__init__()
        self.network: Net | None = None
        self.mishaps: list[str] = []
        """What reached the loop's exception handler: always a bug."""
        self._clock_s = START_S
        self._selector = _Clock(self)
        self.set_exception_handler(self._note)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock_s

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self._clock_s += seconds

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that are set and will strike."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return [timer for timer in scheduled if not timer.cancelled()]

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run *main* to its end, and close the loop.

        Raises:
            Stuck: it will never end.
        """
        try:
            self.run_until_complete(main)
        finally:
            # Only after a failure are there any.
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            if left:
                self.run_until_complete(asyncio.wait(left))
            self.close()

    async def create_connection(  # type: ignore[override] # of its many options, what is used here
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        assert not any(options.values()), f"not simulated: {options}"
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    async def look_up(self, host: str, port: int) -> list[tuple[int, str]]:
        """Stand in for ``name_lookup.look_up``."""
        assert self.network is not None
        assert port
        return [(socket.AF_INET, address) for address in await self.network.look_up(host)]

    def _note(self, _: asyncio.AbstractEventLoop, mishap: dict[str, Any]) -> None:
        self.mishaps.append(f"{mishap.get('message')}: {mishap.get('exception')!r}")

    # What BaseEventLoop leaves to those who wait for real.

    def _process_events(self, event_list: list[object]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        pass


class _Clock:
    """Stands where a selector would: instead of waiting it puts the clock forward."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Stuck("nothing is ready and no timer is set: what is waited for never comes")
        if timeout > 0:
            self._turns = 0
            self._loop.advance(timeout)
        else:
            self._turns += 1
            if self._turns > MOST_TURNS:
                self._turns = 0
                raise Stuck(f"the loop spins: {MOST_TURNS} turns in one instant")
        return []

"""An event loop on virtual time: when nothing is ready, its clock jumps to the next timer.

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
MAX_TURNS: Final = 20_000
"""Iterations of the loop without progress of the clock that count as a tight loop."""


class Stuck(AssertionError):
    """The loop cannot finish: nothing is ready and no timer is set, or the clock stands still."""


class Net(Protocol):
    """The network that the loop uses instead of the kernel's."""

    async def connect(
        self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to a port; OSError if that fails."""

    async def look_up(self, host: str) -> list[str]:
        """Return the IPv4 addresses of a name; socket.gaierror if that fails."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of one run; close it with ``close``."""

    is_in_memory = True
    """Nothing outside the process decides when something happens."""

    def __init__(self) -> None:
        super().__init__()
        self.network: Net | None = None
        self.errors: list[str] = []
        """Errors that reached the loop's exception handler: always bugs."""
        self._clock_s = START_S
        self._selector = _Clock(self)
        self.set_exception_handler(self._note)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock_s

    def jump(self, timeout: float) -> None:
        """Advance the clock to the next timer, which is *timeout* away."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        # The sum may be off by a rounding error, and those of many sums change the order of timers.
        is_next = bool(timers) and timers[0].when() - self._clock_s == timeout
        self._clock_s = timers[0].when() if is_next else self._clock_s + timeout

    def advance(self, seconds: float) -> None:
        """Advance the clock by *seconds*."""
        self._clock_s += seconds

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that are set and not cancelled."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return [timer for timer in scheduled if not timer.cancelled()]

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run *main* to its end, and close the loop.

        Raises:
            Stuck: it cannot end.
        """
        try:
            self.run_until_complete(main)
        finally:
            # Tasks are left only after a failure.
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            if left:
                self.run_until_complete(asyncio.wait(left))
            self.close()

    async def create_connection(  # type: ignore[override] # only the options in use
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

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    # Abstract methods of BaseEventLoop.

    def _process_events(self, event_list: list[object]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        pass


class _Clock:
    """The selector of the loop: advances the clock instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Stuck("nothing is ready and no timer is set")
        if timeout > 0:
            self._turns = 0
            self._loop.jump(timeout)
        else:
            self._turns += 1
            if self._turns > MAX_TURNS:
                self._turns = 0
                raise Stuck(f"the loop spins: {MAX_TURNS} turns in one instant")
        return []

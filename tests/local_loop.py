"""An event loop on virtual time with real unix sockets, whose ends are all on this loop.

What is written to a unix socket can be read at once. So when no socket is ready, nothing is under way, and
the clock jumps to the next timer. There must be no threads, and no other processes.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest import mock

from tests.simulation.loop import MAX_TURNS, START_S, Stuck

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
TICK_S: Final = 1e-5
"""Time between two readings of ``time.monotonic``, so that slices of work end."""


class LocalLoop(asyncio.SelectorEventLoop):
    """The event loop of one run."""

    def __init__(self) -> None:
        self.clock_s = START_S
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.clock_s

    def tick(self) -> float:
        """Return the virtual time for ``time.monotonic``, and let it pass."""
        self.clock_s += TICK_S
        return self.clock_s


class _Selector(selectors.DefaultSelector):
    """Advances the clock instead of waiting."""

    def __init__(self, loop: LocalLoop) -> None:
        super().__init__()
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise Stuck("no socket is ready and no timer is set")
        if not ready and timeout:
            self._loop.clock_s += timeout
            self._turns = 0
        self._turns += 1
        if self._turns > MAX_TURNS:
            self._turns = 0
            raise Stuck(f"the loop spins: {MAX_TURNS} turns in one instant")
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* to its end on a loop of its own, whose time ``time.monotonic`` returns too.

    Raises:
        Stuck: it cannot end.
    """
    with asyncio.Runner(loop_factory=LocalLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, LocalLoop)
        with mock.patch.object(time, "monotonic", loop.tick):
            return runner.run(main)

"""The share of the event loop that connections to workers get for what answers no call.

Reviews of all pools and the admin port share one event loop with the bytes that workers send. So a worker's
bytes are processed in slices of a few milliseconds. A worker whose bytes answer calls gets its next slice at
once. What else workers send, from pings to garbage, gets ``SHARE`` of the time in total, however many workers
send it, and the worker that has cost the least goes first. It waits in the kernel's buffers meanwhile.

CPU time of the thread is counted, not time that passes: a busy machine makes nobody suspicious.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

Result = TypeVar("Result")

SLICE_S: Final = 0.002
"""After which a connection lets others go on."""
SHARE: Final = 0.2
BURST_S: Final = 0.005
"""What may be used at once after a time in which nothing was."""
VERDICT_S: Final = 0.0005
"""CPU that every answered call pays for: several times what frames and messages of an honest worker cost."""
MOST_CREDIT_S: Final = 0.001
MOST_DEBT_S: Final = 0.5
"""CPU for nothing after which a connection is ended. An honest worker never gets to a hundredth of it."""
FORGIVEN_S: Final = 0.01
"""CPU for nothing that is forgiven in each second."""
SMALL_READ_BYTES: Final = 1024
"""Reads up to this, of workers with credit, cost less than measuring them would be worth."""


class Account:
    """What one address has cost for nothing. The address keeps it over all of its connections."""

    __slots__ = ("_at", "_debt_s")

    def __init__(self) -> None:
        self._debt_s = 0.0
        self._at = 0.0

    @property
    def has_credit(self) -> bool:
        """Whether the calls that were answered have paid for everything else."""
        return self._debt_s < 0

    @property
    def debt_s(self) -> float:
        """Seconds of CPU that no answer has paid for; below zero is credit."""
        return self._debt_s

    def charge(self, cpu_s: float, now: float) -> None:
        """Add *cpu_s* that answered no call; *now* is the loop's time."""
        debt_s = self._debt_s
        if debt_s > 0:
            debt_s = max(0.0, debt_s - (now - self._at) * FORGIVEN_S)
        self._at = now
        self._debt_s = min(MOST_DEBT_S, debt_s + cpu_s)

    def pay(self, verdicts: int) -> None:
        """Subtract what so many answered calls pay for."""
        self._debt_s = max(-MOST_CREDIT_S, self._debt_s - verdicts * VERDICT_S)


class Reader(Protocol):
    """What waits for its turn."""

    account: Account

    def read_on(self) -> None:
        """Take a slice, and wait again if there is more."""


class Share:
    """Hands out slices on one event loop."""

    cpu: Callable[[], float] = staticmethod(time.thread_time)
    """CPU time of this thread, in seconds."""
    clock: Callable[[], float] = staticmethod(time.perf_counter)
    """What slices are measured by, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._room_s = BURST_S
        self._at = loop.time()
        self._waiting: dict[Reader, None] = {}
        self._timer: asyncio.Handle | None = None

    def may_read(self) -> bool:
        """Whether a reader without credit may take a slice now."""
        return not self._waiting and self._room() > 0

    def spend(self, cpu_s: float) -> None:
        """Take note of CPU that a reader without credit has used."""
        self._room_s -= cpu_s

    def wait(self, reader: Reader) -> None:
        """Have *reader* read on when it is its turn."""
        self._waiting[reader] = None
        if self._timer is None:
            self._set_timer()

    def leave(self, reader: Reader) -> None:
        """Forget *reader*."""
        self._waiting.pop(reader, None)

    def _room(self) -> float:
        now = self._loop.time()
        self._room_s = min(BURST_S, self._room_s + (now - self._at) * SHARE)
        self._at = now
        return self._room_s

    def _set_timer(self) -> None:
        room_s = self._room()
        if room_s > 0:
            # In the next turn of the loop: in this one others may have to be heard.
            self._timer = self._loop.call_soon(self._give_turn)
        else:
            self._timer = self._loop.call_later(-room_s / SHARE + 0.001, self._give_turn)

    def _give_turn(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        if self._room() <= 0:
            self._set_timer()
            return
        reader = min(self._waiting, key=lambda waiting: waiting.account.debt_s)
        del self._waiting[reader]
        try:
            reader.read_on()
        finally:
            if self._waiting and self._timer is None:
                self._set_timer()


_SHARES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Share]] = WeakKeyDictionary()


def share_of(loop: asyncio.AbstractEventLoop) -> Share:
    """Return the one that all connections on *loop* use."""
    share = _SHARES.get(loop)
    if share is None:
        share = _SHARES[loop] = Share(loop)
    return share


async def in_slices(steps: Generator[object, None, Result], account: Account) -> Result:
    """Return what *steps* return, taken a slice at a time when it is the turn of *account*'s address."""
    loop = asyncio.get_running_loop()
    share = share_of(loop)
    waiter = _TurnWaiter(account, loop)
    while True:
        if not account.has_credit and not share.may_read():
            await waiter.next(share)
        cpu_s, end = share.cpu(), share.clock() + SLICE_S
        try:
            while share.clock() < end:
                next(steps)
        except StopIteration as last:
            result: Result = last.value
            return result
        finally:
            cost_s = share.cpu() - cpu_s
            account.charge(cost_s, loop.time())
            share.spend(cost_s)
        await asyncio.sleep(0)


class _TurnWaiter:
    """A reader that has a coroutine go on."""

    def __init__(self, account: Account, loop: asyncio.AbstractEventLoop) -> None:
        self.account = account
        self._loop = loop
        self._turn: asyncio.Future[None] | None = None

    async def next(self, share: Share) -> None:
        """Return when it is this reader's turn."""
        self._turn = self._loop.create_future()
        share.wait(self)
        try:
            await self._turn
        finally:
            share.leave(self)

    def read_on(self) -> None:
        """Take a slice."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

"""The CPU budget of the event loop for worker input that answers no call.

Reviews of all pools and the admin port share one event loop with the bytes that workers send. Input is
therefore processed in slices of a few milliseconds. A worker whose input answers calls gets its next slice at
once. All other input, from pings to garbage, gets ``SHARE`` of the loop's time in total, however many workers
send it, and the worker with the lowest cost goes first. Unprocessed input stays in the kernel's buffers.

The cost is CPU time of the thread, not elapsed time, so that a busy machine does not make workers look
expensive.

``gateway.base.work_queue`` divides the loop's time too, but between long computations of the gateway itself,
which must all be done. Here the purpose is to slow down the input of a misbehaving worker.
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
"""Length of a slice."""
SHARE: Final = 0.2
"""Share of the loop's time for input that answers no call."""
BURST_S: Final = 0.005
"""CPU time that may be used at once after a time without use."""
VERDICT_S: Final = 0.0005
"""CPU time that each answered call pays for: several times the cost of receiving a verdict."""
MAX_CREDIT_S: Final = 0.001
MAX_DEBT_S: Final = 0.5
"""Unpaid CPU time after which a connection is ended. A correct worker never gets to a hundredth of it."""
FORGIVEN_PER_S: Final = 0.01
"""Unpaid CPU time that is forgiven in each second."""
SMALL_READ_BYTES: Final = 1024
"""Smaller reads of workers with credit are not measured: measuring would cost more than processing."""


class CpuAccount:
    """The unpaid CPU time of one address, over all its connections."""

    __slots__ = ("_at", "debt_s", "has_credit")

    def __init__(self) -> None:
        self.debt_s = 0.0
        """Seconds of unpaid CPU time; negative: credit. Only the methods change it."""
        self.has_credit = False
        """Whether answered calls have paid for all input."""
        self._at = 0.0

    def charge(self, cpu_s: float, now: float) -> None:
        """Add *cpu_s* that answered no call; *now* is the loop's time."""
        debt_s = self.debt_s
        if debt_s > 0:
            debt_s = max(0.0, debt_s - (now - self._at) * FORGIVEN_PER_S)
        self._at = now
        self.debt_s = debt_s = min(MAX_DEBT_S, debt_s + cpu_s)
        self.has_credit = debt_s < 0

    def pay(self, verdicts: int) -> None:
        """Subtract the CPU time that *verdicts* pay for."""
        self.debt_s = debt_s = max(-MAX_CREDIT_S, self.debt_s - verdicts * VERDICT_S)
        self.has_credit = debt_s < 0


class Reader(Protocol):
    """A connection that waits for its next slice."""

    account: CpuAccount

    def read_slice(self) -> None:
        """Process input for one slice, and wait again if there is more."""


class CpuBudget:
    """Gives slices to the readers of one event loop."""

    cpu: Callable[[], float] = staticmethod(time.thread_time)
    """CPU time of this thread, in seconds."""
    clock: Callable[[], float] = staticmethod(time.perf_counter)
    """The clock by which slices end, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._available_s = BURST_S
        self._at = loop.time()
        self._waiting: dict[Reader, None] = {}
        self._timer: asyncio.Handle | None = None

    def is_available(self) -> bool:
        """Whether a reader without credit may have a slice now."""
        return not self._waiting and self._available() > 0

    def spend(self, cpu_s: float) -> None:
        """Subtract CPU time that a reader without credit has used."""
        self._available_s -= cpu_s

    def wait(self, reader: Reader) -> None:
        """Call ``reader.read_slice`` when it is the reader's turn."""
        self._waiting[reader] = None
        if self._timer is None:
            self._set_timer()

    def leave(self, reader: Reader) -> None:
        """Remove *reader* from the waiting ones."""
        self._waiting.pop(reader, None)

    def _available(self) -> float:
        now = self._loop.time()
        self._available_s = min(BURST_S, self._available_s + (now - self._at) * SHARE)
        self._at = now
        return self._available_s

    def _set_timer(self) -> None:
        available_s = self._available()
        if available_s > 0:
            # In the next iteration of the loop: in this one other callbacks may be due.
            self._timer = self._loop.call_soon(self._give_slice)
        else:
            self._timer = self._loop.call_later(-available_s / SHARE + 0.001, self._give_slice)

    def _give_slice(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        if self._available() <= 0:
            self._set_timer()
            return
        reader = min(self._waiting, key=lambda waiting: waiting.account.debt_s)
        del self._waiting[reader]
        try:
            reader.read_slice()
        finally:
            if self._waiting and self._timer is None:
                self._set_timer()


_BUDGETS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, CpuBudget]] = WeakKeyDictionary()


def budget_of(loop: asyncio.AbstractEventLoop) -> CpuBudget:
    """Return the budget that all connections on *loop* share."""
    budget = _BUDGETS.get(loop)
    if budget is None:
        budget = _BUDGETS[loop] = CpuBudget(loop)
    return budget


async def run_in_slices(steps: Generator[object, None, Result], account: CpuAccount) -> Result:
    """Return the result of *steps*, run in slices that *account*'s address pays for."""
    loop = asyncio.get_running_loop()
    budget = budget_of(loop)
    waiter = _SliceWaiter(account, loop)
    while True:
        if not account.has_credit and not budget.is_available():
            await waiter.next(budget)
        cpu_s, end = budget.cpu(), budget.clock() + SLICE_S
        try:
            while budget.clock() < end:
                next(steps)
        except StopIteration as last:
            result: Result = last.value
            return result
        finally:
            cost_s = budget.cpu() - cpu_s
            account.charge(cost_s, loop.time())
            budget.spend(cost_s)
        await asyncio.sleep(0)


class _SliceWaiter:
    """A reader that resumes a coroutine."""

    def __init__(self, account: CpuAccount, loop: asyncio.AbstractEventLoop) -> None:
        self.account = account
        self._loop = loop
        self._turn: asyncio.Future[None] | None = None

    async def next(self, budget: CpuBudget) -> None:
        """Return when the next slice begins."""
        self._turn = self._loop.create_future()
        budget.wait(self)
        try:
            await self._turn
        finally:
            budget.leave(self)

    def read_slice(self) -> None:
        """Resume the coroutine."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

"""The timer wheel: items expire at most a tick early and never late, and none remain at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.dispatch.timer_wheel import TICK_S, TimerWheel

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeLoop:
    """Timers that run when the test moves the clock."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> FakeLoop.Timer:
        entry = (self.time + delay_s, callback)
        self.timers.append(entry)
        return FakeLoop.Timer(self, entry)

    class Timer:
        def __init__(self, loop: FakeLoop, entry: tuple[float, Callable[[], None]]) -> None:
            self.loop, self.entry = loop, entry

        def cancel(self) -> None:
            if self.entry in self.loop.timers:
                self.loop.timers.remove(self.entry)

    def run_until(self, end: float) -> None:
        while self.timers:
            entry = min(self.timers, key=lambda one: one[0])
            if entry[0] > end:
                break
            self.timers.remove(entry)
            self.time = max(self.time, entry[0])
            entry[1]()
        self.time = end


class Item:
    def __init__(self, expires_at: float, loop: FakeLoop) -> None:
        self.expires_at = expires_at
        self.struck_at: float | None = None
        self._loop = loop

    def expire(self) -> None:
        assert self.struck_at is None
        self.struck_at = self._loop.time


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.booleans()), max_size=40))
def test_each_item_expires_once_up_to_a_tick_early(
    plan: list[tuple[float, float, bool]],
) -> None:
    loop: Any = FakeLoop()
    timers = TimerWheel(loop, lambda: loop.time)
    items: list[tuple[Item, bool, float]] = []
    for delay_s, ahead_s, is_removed in sorted(plan, key=lambda entry: entry[0]):
        loop.run_until(delay_s)
        item = Item(loop.time + ahead_s, loop)
        timers.add(item)
        if is_removed:
            timers.remove(item)
        items.append((item, is_removed, loop.time))
    loop.run_until(10)
    assert not len(timers)
    assert not loop.timers
    for item, is_removed, added_at in items:
        if is_removed:
            assert item.struck_at is None
        else:
            assert item.struck_at is not None
            assert max(added_at, item.expires_at - TICK_S - 1e-9) <= item.struck_at
            assert item.struck_at <= max(added_at, item.expires_at + 1e-9)


def test_an_item_added_while_others_expire_is_kept() -> None:
    loop: Any = FakeLoop()
    timers = TimerWheel(loop, lambda: loop.time)
    second = Item(0.1, loop)

    class First(Item):
        def expire(self) -> None:
            super().expire()
            timers.add(second)

    timers.add(First(0.05, loop))
    loop.run_until(1)
    assert second.struck_at is not None

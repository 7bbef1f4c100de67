"""Waits for an event, bounded so that broken code fails a test instead of blocking it; and threads."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

POLL_EVERY_S: Final = 0.005


def eventually(condition: Callable[[], T], what: str = "the condition") -> T:
    """Call *condition* until it returns something true, and return that.

    Raises:
        AssertionError: it did not within ``PATIENCE_S`` seconds; the text names *what* and the last value.
    """
    give_up = monotonic() + PATIENCE_S
    while not (value := condition()):
        assert monotonic() < give_up, f"not within {PATIENCE_S:g} s: {what}; last value {value!r}"
        sleep(POLL_EVERY_S)
    return value


async def until(condition: Callable[[], T], what: str = "the condition") -> T:
    """As :func:`eventually`, on an event loop.

    The bound is real time, except on a loop where everything is in memory: it passes no real time.
    """
    loop = asyncio.get_running_loop()
    now = loop.time if getattr(loop, "is_in_memory", False) else monotonic
    give_up = now() + PATIENCE_S
    while not (value := condition()):
        assert now() < give_up, f"not within {PATIENCE_S:g} s: {what}; last value {value!r}"
        await asyncio.sleep(POLL_EVERY_S)
    return value


def together(action: Callable[[], T], refusal: type[Exception], times: int = 8) -> tuple[list[T], int]:
    """Call *action* in threads that begin together; return the results, and how many raised *refusal*."""
    results: list[T] = []
    refused: list[Exception] = []
    barrier = threading.Barrier(times)

    def run() -> None:
        barrier.wait()
        try:
            results.append(action())
        except refusal as error:
            refused.append(error)

    threads = [threading.Thread(target=run) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, len(refused)


@contextmanager
def in_thread(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter *context* on an event loop in a thread, until the end of the block."""
    entered: list[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = []
    is_entered = threading.Event()

    async def run() -> None:
        ended = asyncio.Event()
        async with context as value:
            entered.append((value, asyncio.get_running_loop(), ended))
            is_entered.set()
            await ended.wait()

    def run_in_thread() -> None:
        try:
            asyncio.run(run())
        finally:
            is_entered.set()

    thread = threading.Thread(target=run_in_thread)
    thread.start()
    is_entered.wait()
    try:
        yield entered[0][0]
    finally:
        for _, loop, ended in entered:
            loop.call_soon_threadsafe(ended.set)
        thread.join()

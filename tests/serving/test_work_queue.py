"""Long work on an event loop: in order, a step at a time, and with everything else in between."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from admission_gateway_worker.json_patch.steps import finish
from gateway.base.work_queue import WorkQueue
from tests.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Generator


EVENT_LOOPS = ("asyncio", "uvloop")


def counting(log: list[str], name: str, steps: int) -> Generator[None, None, str]:
    for number in range(steps):
        log.append(f"{name}{number}")
        yield
    return name


async def test_work_is_done_in_order_with_everything_else_between_its_steps() -> None:
    queue, log = WorkQueue(), list[str]()
    loop = asyncio.get_running_loop()

    def tick() -> None:
        log.append(".")
        if len(log) < 10_000:
            loop.call_soon(tick)

    loop.call_soon(tick)
    results = await asyncio.gather(*(queue.run(counting(log, name, 3)) for name in "ab"))
    assert results == ["a", "b"]
    steps = ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [entry for entry in log if entry != "."] == steps
    places = [log.index(step) for step in steps]
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(places))


def test_the_pause_is_as_long_as_the_step() -> None:
    """A timer that is set during a step, for a little less than that took, comes before the next step."""

    async def main() -> None:
        loop, cpu_s, log = asyncio.get_running_loop(), [0.0], list[str]()

        def working() -> Generator[None, None, None]:
            for _ in range(3):
                cpu_s[0] += 0.1
                log.append("step")
                loop.call_later(0.05, log.append, "timer")
                yield

        await WorkQueue(lambda: cpu_s[0]).run(working())
        assert log == ["step", "timer"] * 3

    VirtualLoop().run(main())


def working(log: list[str], name: str, steps: int, cpu_s: list[float]) -> Generator[None, None, None]:
    """Work whose every step takes a tenth of a second."""
    for _ in range(steps):
        log.append(name)
        cpu_s[0] += 0.1
        yield


def test_queues_of_one_loop_share_its_time() -> None:
    """However many there are, one step is made at a time, and a pause follows it."""

    async def main() -> None:
        cpu_s, log = [0.0], list[str]()
        loop = asyncio.get_running_loop()

        def tick() -> None:
            log.append(".")
            loop.call_later(0.03, tick)

        tick()
        queues = [WorkQueue(lambda: cpu_s[0]) for _ in range(5)]
        await asyncio.gather(*(queue.run(working(log, "step", 2, cpu_s)) for queue in queues))
        assert "step" in log
        assert ("step", "step") not in itertools.pairwise(log)

    VirtualLoop().run(main())


def test_a_queue_with_much_work_does_not_hold_up_another() -> None:
    async def main() -> None:
        cpu_s, log = [0.0], list[str]()
        full, other = WorkQueue(lambda: cpu_s[0]), WorkQueue(lambda: cpu_s[0])
        floods = [asyncio.ensure_future(full.run(working(log, "f", 5, cpu_s))) for _ in range(100)]
        while len(log) < 3:
            await asyncio.sleep(0.01)
        begin = len(log)
        await other.run(working(log, "o", 3, cpu_s))
        assert log[begin:].count("f") <= 5
        for flood in floods:
            flood.cancel()

    VirtualLoop().run(main())


def test_a_queue_of_more_weight_gets_more_of_the_time() -> None:
    async def main() -> None:
        cpu_s, log = [0.0], list[str]()
        heavy, light = WorkQueue(lambda: cpu_s[0], weight=4), WorkQueue(lambda: cpu_s[0])
        waiting = asyncio.ensure_future(light.run(working(log, "l", 100, cpu_s)))
        await heavy.run(working(log, "h", 12, cpu_s))
        assert 2 <= log.count("l") <= 5
        waiting.cancel()

    VirtualLoop().run(main())


async def test_failed_and_cancelled_work_leaves_the_turn_to_the_next() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("no such body")

    queue, log = WorkQueue(), list[str]()
    cancelled = asyncio.ensure_future(queue.run(counting(log, "c", 100)))
    failed, well = (asyncio.ensure_future(queue.run(work)) for work in (failing(), counting(log, "w", 2)))
    while len(log) < 2:
        await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(ValueError, match="no such body"):
        await failed
    assert await well == "w"
    assert cancelled.cancelled()
    assert len(log) < 10
    assert log[-2:] == ["w0", "w1"]
    assert len(queue) == 0


def test_short_work_is_finished_at_once() -> None:
    assert finish(counting([], "a", 3)) == "a"

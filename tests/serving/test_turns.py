"""Long work on an event loop: in order, a step at a time, and with everything else in between."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from gateway.turns import Turns, finish

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.serving.kit import Run


def counting(log: list[str], name: str, steps: int) -> Generator[None, None, str]:
    for number in range(steps):
        log.append(f"{name}{number}")
        yield
    return name


def test_work_is_done_in_order_with_everything_else_between_its_steps(run: Run) -> None:
    async def main() -> None:
        turns, log = Turns(), list[str]()
        loop = asyncio.get_running_loop()

        def tick() -> None:
            log.append(".")
            if len(log) < 10_000:
                loop.call_soon(tick)

        loop.call_soon(tick)
        results = await asyncio.gather(*(turns.run(counting(log, name, 3)) for name in "ab"))
        assert results == ["a", "b"]
        steps = ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert [entry for entry in log if entry != "."] == steps
        places = [log.index(step) for step in steps]
        assert all(later - earlier > 1 for earlier, later in itertools.pairwise(places))

    run(main())


def test_the_pause_is_as_long_as_the_step(run: Run) -> None:
    """A timer that is set during a step, for a little less than that took, comes before the next step."""

    async def main() -> None:
        loop, cpu_s, log = asyncio.get_running_loop(), [0.0], list[str]()

        def working() -> Generator[None, None, None]:
            for _ in range(3):
                cpu_s[0] += 0.1
                log.append("step")
                loop.call_later(0.05, log.append, "timer")
                yield

        await Turns(lambda: cpu_s[0]).run(working())
        assert log == ["step", "timer"] * 3

    run(main())


def test_what_fails_or_is_cancelled_leaves_the_turn_to_the_next(run: Run) -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("no such body")

    async def main() -> None:
        turns, log = Turns(), list[str]()
        cancelled = asyncio.ensure_future(turns.run(counting(log, "c", 100)))
        failed, well = (asyncio.ensure_future(turns.run(work)) for work in (failing(), counting(log, "w", 2)))
        while len(log) < 2:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(ValueError, match="no such body"):
            await failed
        assert await well == "w"
        assert cancelled.cancelled()
        assert len(log) < 10
        assert log[-2:] == ["w0", "w1"]
        assert len(turns) == 0

    run(main())


def test_short_work_is_finished_at_once() -> None:
    assert finish(counting([], "a", 3)) == "a"

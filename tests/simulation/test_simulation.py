"""Thousands of seeded scenarios on virtual time: overlapping reviews, faulty workers, new configurations."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.check import check
from tests.simulation.loop import START_S, Stuck, VirtualLoop

STEP = 100
FAULTY_SEEDS = [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(STEP, 2000, STEP))]
"""The first seeds of each chunk of ``STEP``; `make test` runs one chunk, `make test-all` all."""
QUIET_SEEDS = range(0, 100, STEP)
REPEATED_SEEDS = range(10)


@pytest.mark.parametrize("first", FAULTY_SEEDS)
def test_with_faults_every_law_holds_and_every_failure_has_a_cause(first: int) -> None:
    for seed in range(first, first + STEP):
        check(seed)


@pytest.mark.parametrize("first", QUIET_SEEDS)
def test_without_faults_no_review_takes_longer_than_its_calls_one_after_another(first: int) -> None:
    for seed in range(first, first + STEP):
        check(seed, is_quiet=True)


def test_a_seed_repeats_the_same_run() -> None:
    for seed in REPEATED_SEEDS:
        assert list(check(seed).journal.lines()) == list(check(seed).journal.lines()), f"with seed {seed}"


def test_timers_run_in_virtual_time() -> None:
    loop = VirtualLoop()
    struck: list[float] = []

    async def wait() -> None:
        loop.call_later(30.0, lambda: struck.append(loop.time()))
        await asyncio.sleep(86_400.0)
        struck.append(loop.time())

    loop.run(wait())
    assert struck == pytest.approx([START_S + 30.0, START_S + 86_400.0])


def test_a_wait_without_an_end_and_a_tight_loop_are_detected() -> None:
    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    for forever in (waits, spins):
        with pytest.raises(Stuck):
            VirtualLoop().run(forever())

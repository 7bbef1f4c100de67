"""Thousands of seeded worlds on virtual time: overlapping reviews, faulty workers, new configurations."""

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
def test_whatever_goes_wrong_every_law_holds_and_every_failure_has_a_cause(first: int) -> None:
    for seed in range(first, first + STEP):
        check(seed)


@pytest.mark.parametrize("first", QUIET_SEEDS)
def test_where_nothing_goes_wrong_nobody_waits_longer_than_if_asked_one_by_one(first: int) -> None:
    for seed in range(first, first + STEP):
        check(seed, is_quiet=True)


def test_a_seed_gives_the_same_run_again() -> None:
    for seed in REPEATED_SEEDS:
        assert list(check(seed).journal.lines()) == list(check(seed).journal.lines()), f"with seed {seed}"


def test_a_day_passes_at_once_and_to_the_second() -> None:
    loop = VirtualLoop()
    struck: list[float] = []

    async def wait() -> None:
        loop.call_later(30.0, lambda: struck.append(loop.time()))
        await asyncio.sleep(86_400.0)
        struck.append(loop.time())

    loop.run(wait())
    assert struck == pytest.approx([START_S + 30.0, START_S + 86_400.0])


def test_what_never_comes_and_what_never_ends_are_both_said() -> None:
    async def waits_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    for forever in (waits_for_nobody, spins):
        with pytest.raises(Stuck):
            VirtualLoop().run(forever())

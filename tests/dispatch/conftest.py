"""A world with real sockets, on each event loop that the gateway runs on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.kit import PATIENCE_S
from tests.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture(params=["uvloop", "asyncio"])
def on_each_loop(request: pytest.FixtureRequest) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    """Run a coroutine function with a World that is closed, and checked for leftovers, after it."""

    def run(test: Callable[[World], Awaitable[None]]) -> None:
        async def body() -> None:
            world = World()
            try:
                await asyncio.wait_for(test(world), PATIENCE_S)
            finally:
                await world.close()

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(body())

    return run

"""Signals during the start and the run of a gateway; this process gets real ones."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from gateway.base.errors import ConfigError
from gateway.server.process.serve import Signals
from tests.kit import PATIENCE_S
from tests.waiting import until


class Gateway:
    """Records its actions; each lasts until the test releases it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.acts = asyncio.Semaphore(0)

    async def act(self, name: str) -> None:
        self.log.append(name)
        try:
            await self.acts.acquire()
        except asyncio.CancelledError:
            self.log.append(f"{name} cancelled")
            raise
        self.log.append(f"{name} done")


async def send_signal(number: signal.Signals) -> None:
    """Send a signal to this process, and let the event loop handle it."""
    os.kill(os.getpid(), number)
    for _ in range(3):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_ends_the_start(number: signal.Signals) -> None:
    async def main() -> list[str]:
        signals, gateway = Signals(), Gateway()
        following = asyncio.create_task(signals.follow(gateway.act("start"), lambda: gateway.act("reload")))
        await until(lambda: gateway.log)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(following, PATIENCE_S)
        return gateway.log

    assert asyncio.run(main()) == ["start", "start cancelled"]


def test_a_reload_signal_takes_effect_after_the_current_action() -> None:
    async def main() -> list[str]:
        signals, gateway = Signals(), Gateway()
        following = asyncio.create_task(signals.follow(gateway.act("start"), lambda: gateway.act("reload")))
        await until(lambda: gateway.log)
        await send_signal(signal.SIGHUP)
        await send_signal(signal.SIGHUP)
        assert gateway.log == ["start"]
        gateway.acts.release()
        await until(lambda: gateway.log[-1] == "reload")
        await send_signal(signal.SIGHUP)
        gateway.acts.release()
        await until(lambda: gateway.log.count("reload") == 2)
        gateway.acts.release()
        await until(lambda: gateway.log.count("reload done") == 2)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(following, PATIENCE_S)
        return gateway.log

    assert asyncio.run(main()) == ["start", "start done", *("reload", "reload done") * 2]


def test_an_error_of_the_start_is_raised() -> None:
    async def main() -> None:
        async def start() -> None:
            raise ConfigError([])

        async def reload() -> None:
            raise AssertionError

        await Signals().follow(start(), reload)

    with pytest.raises(ConfigError):
        asyncio.run(main())

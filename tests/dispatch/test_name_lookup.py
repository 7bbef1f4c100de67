"""DNS look-ups: their results and errors, and that no look-up waits for another."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from gateway.engine.dispatch.name_lookup import look_up
from tests.kit import PATIENCE_S


def test_an_address_is_its_own_answer() -> None:
    assert asyncio.run(look_up("127.0.0.3", 80)) == [(socket.AF_INET, "127.0.0.3")]
    assert asyncio.run(look_up("::1", 80)) == [(socket.AF_INET6, "::1")]


def test_a_name_has_its_addresses() -> None:
    assert (socket.AF_INET, "127.0.0.1") in asyncio.run(look_up("localhost", 80))


@pytest.mark.parametrize(
    ("name", "error"), [("no-such-host.invalid", socket.gaierror), ("a" * 80, ValueError)]
)
def test_a_name_without_addresses_is_an_error(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        asyncio.run(look_up(name, 80))


def test_look_ups_without_an_answer_do_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **options: Any) -> list[Any]:
        if host.startswith("dead"):
            assert answer.wait(PATIENCE_S)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return real(host, *arguments, **options)

    async def test() -> None:
        dead = [asyncio.create_task(look_up(f"dead{number}", 80)) for number in range(50)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(look_up("localhost", 80), PATIENCE_S)
        assert not any(task.done() for task in dead)
        answer.set()
        ended = await asyncio.gather(*dead, return_exceptions=True)
        assert all(isinstance(error, socket.gaierror) for error in ended)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        asyncio.run(test())
    finally:
        answer.set()

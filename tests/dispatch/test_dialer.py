"""Connections that end while they are set up."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import uvloop

from gateway.engine.dispatch.dialer import Dialer, Unreachable, _IgnoreEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DIALS = 400


@contextmanager
def flapping_listener(path: Path) -> Iterator[None]:
    """Listen at *path* for some milliseconds at a time, without accepting connections."""
    over, chance = threading.Event(), random.Random(1)

    def listen() -> None:
        while not over.is_set():
            path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
                listener.listen(8)
                over.wait(chance.random() * 0.004)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    "new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)
def test_a_connection_that_ends_during_its_set_up_leaves_no_socket(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """A leaked socket would be closed when another file already has its descriptor."""
    path = tmp_path / "s"

    async def dial() -> set[str]:
        dialer, errors = Dialer(f"unix:{path}", None, None), set()
        for _ in range(DIALS):
            with pytest.raises(Unreachable) as unreachable:
                await dialer.dial("/", _IgnoreEvents())
            errors.add(str(unreachable.value).partition(": ")[2])
        await dialer.close()
        return errors

    with warnings.catch_warnings(record=True) as warned, flapping_listener(path):
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            errors = runner.run(dial())
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert any("Connection reset" in text for text in errors), errors

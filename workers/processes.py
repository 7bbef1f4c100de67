"""Several processes on one port: each is the same command started afresh, never a fork.

The parent keeps the ports (bound, not listening, so that no connection is lost to it), starts the children,
starts another for one that dies, and passes the stop on. A child ends when its parent does, however that
came about: it holds one end of a pipe that then closes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from workers.listen import Address, StartError, bind_tcp, claim, parse_address

if TYPE_CHECKING:
    import socket

    from workers.main import Options

CHILD_VARIABLE: Final = "ADMISSION_GATEWAY_WORKER_CHILD"
"""Carries the ChildOrders. Not an option, since the command line of a child is its parent's."""

RESTART_DELAY_S: Final = 1.0
"""A child that dies at once is not to be restarted in a busy loop."""

log = logging.getLogger("workers")


@dataclass(frozen=True, slots=True)
class ChildOrders:
    """What a child is told: where to listen, and two file descriptors."""

    listen: list[str]
    ready: int
    """To write a line to when it serves."""
    alive: int
    """Readable (at its end) once the parent is gone."""

    def report_ready(self, stopping: asyncio.Event) -> None:
        """Tell the parent, and set *stopping* when the parent is gone; if it is set by then, exit at once."""
        os.write(self.ready, b"ready\n")
        os.close(self.ready)
        loop = asyncio.get_running_loop()

        def on_parent_gone() -> None:
            loop.remove_reader(self.alive)
            if stopping.is_set():
                os._exit(1)
            stopping.set()

        loop.add_reader(self.alive, on_parent_gone)


async def supervise(options: Options, policies: int) -> int:
    """Run ``options.processes`` children until told to stop; returns 0 if they all stopped in order.

    Raises:
        StartError: an address cannot be bound, or a child did not come up; it has said why on stderr.
    """
    from workers.main import say, stop_on_signals

    stopping = asyncio.Event()
    stop_on_signals(stopping)
    kept = [_keep(parse_address(text)) for text in options.listen]
    listen = [str(address) for address, _ in kept]
    alive, held = os.pipe()
    children = [_Child(listen, alive) for _ in range(options.processes)]
    try:
        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(child.start()) for child in children]
        if not all(start.result() for start in starts):
            raise StartError(f"not all of the {options.processes} processes came up")
        say(f"serving {policies} policies on {', '.join(listen)}")
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(child.keep(stopping)) for child in children]
        return int(any(end.result() != 0 for end in ends))
    finally:
        for child in children:
            child.stop()
        os.close(held)
        os.close(alive)
        for _, reserved in kept:
            reserved.close()


def _keep(address: Address) -> tuple[Address, socket.socket]:
    """Return the address with a port, and the socket that keeps it."""
    if address.port:
        claim(address)  # also finds another worker that shares its port, which would get half of the calls
    reserved = bind_tcp(address, reuse_port=True)
    return replace(address, port=reserved.getsockname()[1]), reserved


class _Child:
    """One child process after another."""

    def __init__(self, listen: list[str], alive: int) -> None:
        self._listen = listen
        self._alive = alive
        self._running: asyncio.subprocess.Process | None = None

    async def start(self) -> bool:
        """Start one and return whether it came up."""
        reading, writing = os.pipe()
        orders = ChildOrders(self._listen, writing, self._alive)
        try:
            # A session of its own: Ctrl-C in a terminal reaches the parent only, which passes it on once.
            self._running = await asyncio.create_subprocess_exec(
                *(sys.executable, *sys.orig_argv[1:]),
                env={**os.environ, CHILD_VARIABLE: json.dumps(asdict(orders))},
                pass_fds=(writing, self._alive),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        return await _has_line(reading)

    async def keep(self, stopping: asyncio.Event) -> int:
        """Keep one running until *stopping*, then stop it; returns the last one's exit status."""
        stop = asyncio.create_task(stopping.wait())
        try:
            while True:
                assert self._running is not None
                end = asyncio.create_task(self._running.wait())
                await asyncio.wait({end, stop}, return_when=asyncio.FIRST_COMPLETED)
                if stopping.is_set():
                    self.stop()
                    return await end
                log.warning(
                    "process %d ended with status %s; starting another", self._running.pid, end.result()
                )
                await asyncio.wait({stop}, timeout=RESTART_DELAY_S)
                if stopping.is_set():
                    return 0
                await self.start()
        finally:
            stop.cancel()

    def stop(self) -> None:
        """Ask it to drain, if it runs."""
        if self._running is not None and self._running.returncode is None:
            self._running.send_signal(signal.SIGTERM)


async def _has_line(reading: int) -> bool:
    """Wait for a line or the end of the pipe, close it, and return which it was."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(reading, readable.set)
    try:
        await readable.wait()
        return bool(os.read(reading, 16))
    finally:
        loop.remove_reader(reading)
        os.close(reading)

"""Runs several worker processes that share a port. Each is a new process of the same command, not a fork.

The parent reserves the ports (bound, not listening), starts and restarts the children, and forwards the
shutdown signal. A child also shuts down when its parent ends for any reason: a pipe between them closes.

This is not shared with ``gateway.server.process``, because the SDK is independent of the gateway's runtime.
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

from admission_gateway_worker.counters import Counters, shared
from admission_gateway_worker.listen import Address, StartError, parse_address, reserve_tcp

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from admission_gateway_worker.main import Options
    from admission_gateway_worker.metrics import MetricsServer

CHILD_VARIABLE: Final = "ADMISSION_GATEWAY_WORKER_CHILD"
"""Environment variable with the ChildSettings; the command line of a child is that of its parent."""

RESTART_DELAY_S: Final = 1.0
"""Delay before a restart, so that a child that fails at once does not cause a busy loop."""

log = logging.getLogger("admission_gateway_worker")


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """Settings of a child: listening addresses, and two file descriptors."""

    listen: list[str]
    ready: int
    """Pipe to which the child writes a line when it serves."""
    alive: int
    """Pipe that is at its end when the parent has ended."""
    counters: int
    """File of the counters; -1 without metrics."""

    def report_ready(self, stopping: asyncio.Event) -> None:
        """Report to the parent; set *stopping* when the parent ends, or exit if it is already set."""
        os.write(self.ready, b"ready\n")
        os.close(self.ready)
        loop = asyncio.get_running_loop()

        def on_parent_end() -> None:
            loop.remove_reader(self.alive)
            if stopping.is_set():
                os._exit(1)
            stopping.set()

        loop.add_reader(self.alive, on_parent_end)


async def supervise(options: Options, policies: Sequence[str]) -> int:
    """Run ``options.processes`` children until a signal; return 0 if all exited with status 0.

    Raises:
        StartError: an address cannot be bound, or a child failed to start, which it reports on stderr.
    """
    from admission_gateway_worker.main import say, say_metrics, stop_on_signals

    stopping = asyncio.Event()
    stop_on_signals(stopping)
    reserved = [_reserve(parse_address(text)) for text in options.listen]
    listen = [str(address) for address, _ in reserved]
    alive, held = os.pipe()
    has_metrics = bool(options.metrics_listen)
    children = [
        _Child(listen, alive, shared(len(policies)) if has_metrics else -1) for _ in range(options.processes)
    ]
    metrics = _metrics(children, policies) if has_metrics else None
    try:
        if metrics is not None:
            await metrics.start(options.metrics_listen)
        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(child.start()) for child in children]
        if not all(start.result() for start in starts):
            raise StartError(f"not all of the {options.processes} processes started")
        say_metrics("" if metrics is None else metrics.address)
        say(f"serving {len(policies)} policies on {', '.join(listen)}")
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(child.keep(stopping)) for child in children]
        return int(any(end.result() != 0 for end in ends))
    finally:
        for child in children:
            child.close()
        if metrics is not None:
            metrics.stop()
        os.close(held)
        os.close(alive)
        for _, bound in reserved:
            for sock in bound:
                sock.close()


def _metrics(children: Sequence[_Child], policies: Sequence[str]) -> MetricsServer:
    from admission_gateway_worker.metrics import MetricsServer, WorkerCollector

    counters = [Counters(policies, child.counters) for child in children]
    return MetricsServer(
        WorkerCollector(policies, counters, lambda: [child.pid for child in children if child.pid])
    )


def _reserve(address: Address) -> tuple[Address, list[socket.socket]]:
    """Return the address with its port, and the sockets that reserve it."""
    reserved = reserve_tcp(address)
    return replace(address, port=reserved[0].getsockname()[1]), reserved


class _Child:
    """A child process with its restarts."""

    def __init__(self, listen: list[str], alive: int, counters: int) -> None:
        """*counters* is the descriptor of a file, -1 without metrics."""
        self._listen = listen
        self._alive = alive
        self.counters = counters
        self._running: asyncio.subprocess.Process | None = None

    async def start(self) -> bool:
        """Start a process and return whether it serves."""
        reading, writing = os.pipe()
        settings = ChildSettings(self._listen, writing, self._alive, self.counters)
        passed = (writing, self._alive, self.counters) if self.counters >= 0 else (writing, self._alive)
        try:
            # In a separate session Ctrl-C reaches only the parent, which forwards it once.
            self._running = await asyncio.create_subprocess_exec(
                *(sys.executable, *sys.orig_argv[1:]),
                env={**os.environ, CHILD_VARIABLE: json.dumps(asdict(settings))},
                pass_fds=passed,
                start_new_session=True,
            )
        finally:
            os.close(writing)
        return await _has_line(reading)

    async def keep(self, stopping: asyncio.Event) -> int:
        """Restart the process until *stopping*, then stop it; return the last exit status."""
        stop = asyncio.create_task(stopping.wait())
        try:
            while True:
                assert self._running is not None
                end = asyncio.create_task(self._running.wait())
                await asyncio.wait({end, stop}, return_when=asyncio.FIRST_COMPLETED)
                if stopping.is_set():
                    self.stop()
                    return await end
                log.warning("process %d exited with status %s; restarting", self._running.pid, end.result())
                await asyncio.wait({stop}, timeout=RESTART_DELAY_S)
                if stopping.is_set():
                    return 0
                await self.start()
        finally:
            stop.cancel()

    @property
    def pid(self) -> int:
        """The process id; 0 if the process has ended."""
        return self._running.pid if self._running is not None and self._running.returncode is None else 0

    def close(self) -> None:
        """Stop the process, and close the file of the counters."""
        self.stop()
        if self.counters >= 0:
            os.close(self.counters)

    def stop(self) -> None:
        """Send SIGTERM, if the process runs."""
        if self._running is not None and self._running.returncode is None:
            self._running.send_signal(signal.SIGTERM)


async def _has_line(reading: int) -> bool:
    """Return whether the pipe has a line rather than its end; closes the pipe."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(reading, readable.set)
    try:
        await readable.wait()
        return bool(os.read(reading, 16))
    finally:
        loop.remove_reader(reading)
        os.close(reading)

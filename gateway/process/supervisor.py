"""Several gateway processes behind one port, and the one admin port that speaks for all of them.

Each process is started fresh (a fork would take gRPC's threads apart) and listens at the same address with
SO_REUSEPORT, so that the kernel spreads connections. One that ends is started again; until it listens,
connections go to the others, so that it makes neither the gateway unready nor a scrape impossible. Nothing is
shared between them: each loads the configuration and keeps its own connections to the workers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from gateway.app import STARTING
from gateway.config.addresses import parse_host_port
from gateway.errors import ConfigError, Problem, Unavailable
from gateway.process.children import Child
from gateway.process.totals import Totals
from gateway.serving.admin import AdminRoutes
from gateway.serving.connection_table import ConnectionTable
from gateway.serving.files import Changes
from gateway.serving.listener import Listener
from gateway.serving.message import error_response
from gateway.serving.tls import server_context
from gateway.telemetry.scrape import Unreachable, fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gateway.config.model import Config
    from gateway.options import Options

log = logging.getLogger(__name__)

_POLL_S: Final = 0.25
_END_SHOWS_S: Final = 0.5
_STARTING: Final = error_response(503, STARTING).body.rstrip().removesuffix(b'"}')
"""How the answer begins of a process that does not listen yet; it may say what it waits for."""
_STOP_MARGIN_S: Final = 5.0
"""What a process gets beyond its ``drainSeconds`` before it is killed."""


class Supervisor:
    """The parent of several gateway processes. Make it on a running event loop."""

    def __init__(
        self,
        options: Options,
        config: Config,
        arguments: list[str],
        runtime: Path,
        on_config: Callable[[Config], None],
    ) -> None:
        """*on_config* is called with each configuration that loads, first before the processes start."""
        self._options = options
        self._on_config = on_config
        self._config = config
        self._arguments = arguments
        self._count = config.gateway.processes
        self._drain_s = config.gateway.drain_s
        """The longest of all configurations so far: a process may still serve an earlier one."""
        self._runtime = runtime
        self._children: list[Child] = []
        self._not_ready: str | None = "starting"
        self._is_announced = False
        self._changes = Changes(options.fingerprint)
        self._is_reload_due = False
        self._reload_due: set[int] = set()
        """The processes that are still to be told to load the configuration again."""
        self._listening: dict[int, int] = {}
        """By number, the process id of the one that was seen to have started."""
        self._totals = Totals()
        self._poller: asyncio.Task[None] | None = None
        self._held: socket.socket | None = None
        self._admin = Listener(
            config.gateway.admin_listen,
            ConnectionTable(AdminRoutes(lambda: self._not_ready, self._exposition)),
        )

    async def start(self) -> None:
        """Start the processes.

        Raises:
            ConfigError: an address cannot be listened on, or the certificate cannot be used.
        """
        server_context(self._config.gateway.tls)
        await self._admin.start()
        self._held = _hold_port(self._config.gateway.listen)
        self._on_config(self._config)
        host, port = self._config.gateway.listen.rpartition(":")[0], self._held.getsockname()[1]
        for number in range(self._count):
            command = [
                *(sys.executable, "-m", "gateway", *self._arguments),
                *("--listen", f"{host}:{port}", "--child", f"{number}:{self._runtime}"),
            ]
            self._children.append(Child(f"gateway process {number}", command))
        self._poller = asyncio.create_task(self._poll())

    async def reload(self) -> None:
        """Have all processes load the configuration again, each as soon as it answers."""
        self._is_reload_due = True
        self._reload_due.update(range(self._count))

    async def stop(self) -> None:
        """Have all processes answer what is in flight, and end them."""
        self._not_ready = "draining"
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        grace_s = self._drain_s + _STOP_MARGIN_S
        await asyncio.gather(*(child.stop(grace_s) for child in self._children))
        if self._held is not None:
            self._held.close()
        await self._admin.close()

    def kill(self) -> None:
        """End all processes at once."""
        for child in self._children:
            child.kill()

    async def _poll(self) -> None:
        """Follow the readiness of the processes, and the configuration for what the parent itself does."""
        while True:
            states = await asyncio.gather(*(self._ask(number) for number in range(self._count)))
            self._not_ready = self._why_not_ready(states)
            if self._not_ready is None and not self._is_announced:
                self._is_announced = True
                self._announce()
            if self._is_reload_due or self._changes.are_due():
                await self._load()
            await asyncio.sleep(_POLL_S)

    async def _load(self) -> None:
        self._is_reload_due = False
        state = self._changes.look()
        try:
            config = await asyncio.to_thread(self._options.load)
        except ConfigError as error:
            # Each process says what is wrong with it.
            log.debug("configuration refused")
            self._changes.refused(state, str(error))
            return
        self._on_config(config)
        self._drain_s = max(self._drain_s, config.gateway.drain_s)
        self._changes.accepted(state)

    def _why_not_ready(self, states: Sequence[str | None]) -> str | None:
        """Return why not, for what each process says; None: ready.

        One that is started again takes no connections, and the others take them all. At the first start all
        are waited for.
        """
        unready = [
            f"process {number}: {state}"
            for number, state in enumerate(states)
            if state and not (self._is_announced and self._is_down(number))
        ]
        if not unready and not any(state is None for state in states):
            unready = ["no process serves"]
        return "; ".join(unready) or None

    def _is_down(self, number: int) -> bool:
        """Whether the process *number* does not listen: it has ended, or was not seen to have started."""
        pid = self._children[number].pid
        return pid is None or self._listening.get(number) != pid

    def _announce(self) -> None:
        assert self._held is not None
        listen, admin_listen = self._config.gateway.listen, self._config.gateway.admin_listen
        log.info(
            "serving on https://%s:%d, admin on http://%s:%d: %d processes",
            *(listen.rpartition(":")[0], self._held.getsockname()[1]),
            *(admin_listen.rpartition(":")[0], self._admin.port, self._count),
        )

    async def _ask(self, number: int) -> str | None:
        """Return why process *number* is not ready."""
        pid = self._children[number].pid
        try:
            status, body = await self._fetch(number, "/readyz")
        except Unreachable as error:
            return str(error)
        if number in self._reload_due:
            # One that does not answer yet may not expect the signal yet, and would end by it.
            self._reload_due.remove(number)
            self._children[number].signal(signal.SIGHUP)
        if pid is not None and (status == 200 or not body.startswith(_STARTING)):
            self._listening[number] = pid
        return None if status == 200 else body.decode(errors="replace")

    async def _fetch(self, number: int, target: str) -> tuple[int, bytes]:
        """Return status and body of what process *number* answers on its admin port.

        Raises:
            Unreachable: it does not answer; if it has ended, that is known by now.
        """
        try:
            return await fetch(admin_socket(self._runtime, number), target)
        except Unreachable:
            # An end shows in the connections a moment before it shows in the process.
            if not self._is_down(number):
                await self._children[number].ended_within(_END_SHOWS_S)
            raise

    async def _exposition(self) -> tuple[bytes, str]:
        found = await asyncio.gather(*(self._metrics_of(number) for number in range(self._count)))
        expositions = dict(filter(None, found))
        if not expositions:
            raise Unavailable("no process serves")
        return self._totals.add(expositions, {child.pid for child in self._children if child.pid is not None})

    async def _metrics_of(self, number: int) -> tuple[int, bytes] | None:
        """Return the process id and the exposition of process *number*; None: it does not serve."""
        child = self._children[number]
        pid = child.pid
        try:
            status, body = await self._fetch(number, "/metrics")
        except Unreachable as error:
            if self._is_down(number):
                return None
            raise Unavailable(f"process {number}: {error}") from None
        if status != 200:
            raise Unavailable(f"process {number}: /metrics answers with status {status}")
        # Otherwise it ended meanwhile, and nobody knows whether this is its last word.
        return (pid, body) if pid is not None and pid == child.pid else None


def admin_socket(runtime: Path, number: int) -> Path:
    """Return where the gateway process *number* serves its admin port."""
    return runtime / f"gateway-{number}.sock"


def _hold_port(address: str) -> socket.socket:
    """Return a socket that keeps the port of *address* for processes that share it; it does not listen."""
    try:
        host, port = parse_host_port(address)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, where = found[0]
        held = socket.socket(family, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(where)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = Problem("", "", f"cannot listen on {address}: {reason}")
        raise ConfigError([problem]) from None
    return held

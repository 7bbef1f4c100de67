"""The parent of several gateway processes behind one port, with one admin port for all of them.

Each process is a new interpreter (a fork would break gRPC's threads) and gets sockets of the same address
(``gateway.server.process.shared_port``). An ended process is started again. Until it serves, the other
processes accept its connections, and the gateway stays ready and can be scraped. Apart from sockets the
processes share nothing: each loads the configuration and has its own connections to workers. A process that
hangs is replaced (``gateway.server.process.liveness``).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.base.errors import ConfigError, Unavailable
from gateway.base.file_changes import FileChanges
from gateway.observe.telemetry.aggregation import FetchError, ProcessMetrics, fetch
from gateway.server.app import DRAINING, STARTING
from gateway.server.pages.routes import Pages
from gateway.server.process.all_processes import AllProcesses
from gateway.server.process.children import Child
from gateway.server.process.liveness import BEAT_S, Liveness, sample_of
from gateway.server.process.shared_port import SharedPort
from gateway.server.serving.admin import VERBOSE, WARNING, AdminRoutes, admin_listener
from gateway.server.serving.message import error_response
from gateway.server.serving.page_access import PageAccess
from gateway.server.serving.tls import server_context

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.observe.telemetry.exposition import Exposition
    from gateway.server.options import Options
    from gateway.server.process.local_workers import LocalWorkers

log = logging.getLogger(__name__)

_POLL_S: Final = 0.25
_END_NOTIFIED_S: Final = 0.5
_STARTING: Final = error_response(503, STARTING).body.rstrip().removesuffix(b'"}')
"""The beginning of the /readyz answer of a process that does not listen yet; the reason may follow."""
_STOP_MARGIN_S: Final = 5.0
"""Seconds after ``drainSeconds`` until a process is killed."""


class Supervisor:
    """The parent of several gateway processes. Make it on a running event loop."""

    def __init__(
        self,
        options: Options,
        config: Config,
        arguments: list[str],
        runtime: Path,
        workers: LocalWorkers,
    ) -> None:
        """*workers* are those of the processes."""
        self._options = options
        self._workers = workers
        self._config = self._in_force = config
        self._arguments = arguments
        self._count = config.gateway.processes
        self._drain_s = config.gateway.drain_s
        """The longest of all configurations so far: a process may still have an earlier one in force."""
        self._runtime = runtime
        self._children: list[Child] = []
        self._not_ready: str | None = STARTING
        self._is_announced = False
        self._changes = FileChanges(options.fingerprint)
        self._is_reload_due = False
        self._reload_due: set[int] = set()
        """The processes that have not been sent SIGHUP since the last reload request."""
        self._is_debug: dict[int, tuple[int, bool]] = {}
        """By number, the process id of a process and whether it logs debug records of all areas."""
        self._starts_debug = logs.current.is_debug
        """The same of a new process, which has the command line of the parent."""
        self._listening: dict[int, int] = {}
        """By number, the process id of a process that has begun to listen."""
        self._metrics = ProcessMetrics()
        self._tasks: list[asyncio.Task[None]] = []
        self._liveness: list[Liveness] = []
        self._port: SharedPort | None = None
        self._page_access = PageAccess(config.gateway.pages, config.gateway.admin_listen)
        sockets = [admin_socket(runtime, number) for number in range(self._count)]
        pages = Pages(AllProcesses(sockets), lambda: self._page_access)
        routes = AdminRoutes(lambda: self._not_ready, self._exposition, pages, self._warnings)
        self._admin = admin_listener(config.gateway.admin_listen, routes, self._refresh_pages)

    async def start(self) -> None:
        """Start the processes.

        Raises:
            ConfigError: an address cannot be listened on, the certificate cannot be used, or there are no
                webhooks.
        """
        server_context(self._config.gateway.tls)
        self._options.require_webhooks_in_files(self._config, None)
        await self._admin.start()
        self._port = port = SharedPort(self._config.gateway.listen, self._count)
        self._activate(self._config)
        self._liveness = [Liveness(heartbeat_pipe(self._runtime, number)) for number in range(self._count)]
        for number in range(self._count):
            command = [
                *(sys.executable, "-m", "gateway", *self._arguments),
                *("--listen", port.address, "--child", f"{number}:{port.arguments()}:{self._runtime}"),
            ]
            self._children.append(Child(f"gateway process {number}", command, descriptors=port.descriptors))
        self._tasks = [asyncio.create_task(self._poll()), asyncio.create_task(self._replace_hanging())]

    async def reload(self) -> None:
        """Send all processes SIGHUP, each as soon as it answers."""
        self._is_reload_due = True
        self._reload_due.update(range(self._count))

    async def stop(self) -> None:
        """End all processes after they have answered the requests in flight."""
        self._not_ready = DRAINING
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Before the processes do: the last one that closes a socket closes the port.
        if self._port is not None:
            self._port.close()
        grace_s = self._drain_s + _STOP_MARGIN_S
        await asyncio.gather(*(child.stop(grace_s) for child in self._children))
        for liveness in self._liveness:
            liveness.close()
        await self._admin.close()

    def kill(self) -> None:
        """Kill all processes."""
        for child in self._children:
            child.kill()

    async def _poll(self) -> None:
        """Poll the readiness of the processes, and reload the parent's own configuration."""
        while True:
            states = await asyncio.gather(*(self._poll_one(number) for number in range(self._count)))
            self._not_ready = self._why_not_ready(states)
            assert self._port is not None
            self._port.note(
                is_served=not all(map(self._is_down, range(self._count))),
                has_failed=all(child.status > 0 for child in self._children),
            )
            if self._not_ready is None and not self._is_announced:
                self._is_announced = True
                self._announce()
            if self._is_reload_due or self._changes.is_due():
                await self._load()
            await asyncio.sleep(_POLL_S)

    async def _replace_hanging(self) -> None:
        """Kill each process that hangs: the kernel gives it connections, and nobody answers them."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(BEAT_S)
            for number, (child, liveness) in enumerate(zip(self._children, self._liveness, strict=True)):
                pid = child.pid
                sample = None if pid is None else sample_of(pid)
                has_listened = self._listening.get(number) == pid
                if liveness.hangs(pid, loop.time(), sample, has_listened=has_listened):
                    log.error(
                        "process hangs, replacing it: %s, pid %s, in state %s, could have run for %.0f s and "
                        "has not answered",
                        *(child.name, pid, "unknown" if sample is None else sample.state, liveness.silent_s),
                    )
                    child.replace()

    async def _load(self) -> None:
        self._is_reload_due = False
        state = self._changes.state()
        try:
            config = await asyncio.to_thread(self._options.load)
            self._options.require_webhooks_in_files(config, self._in_force)
            page_access = PageAccess(config.gateway.pages, self._config.gateway.admin_listen)
        except ConfigError as error:
            # Each process logs the problems.
            log.debug("configuration refused by the parent process: %s", error)
            self._changes.refused(state, str(error))
            return
        self._page_access = page_access
        self._activate(config)
        self._in_force = config
        self._drain_s = max(self._drain_s, config.gateway.drain_s)
        self._changes.accepted(state)

    def _activate(self, config: Config) -> None:
        """Use the log settings and workers of *config*, which each process puts in force by itself."""
        logs.current.activate(config.gateway.logging)
        self._workers.stage(config.pools)
        self._workers.activate()

    def _refresh_pages(self) -> None:
        self._page_access.refresh()

    def _why_not_ready(self, states: Sequence[str | None]) -> str | None:
        """Return why the gateway is not ready, by the states of the processes. None if it is ready.

        A process that starts again is ignored, since the others get its connections. The first start waits
        for all processes.
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
        """Whether process *number* does not listen: it has ended, or it is starting."""
        pid = self._children[number].pid
        return pid is None or self._listening.get(number) != pid

    def _announce(self) -> None:
        assert self._port is not None
        admin_listen = self._config.gateway.admin_listen
        log.info(
            "serving on https://%s, admin on http://%s:%d: %d processes",
            self._port.address,
            *(admin_listen.rpartition(":")[0], self._admin.port, self._count),
        )

    async def _poll_one(self, number: int) -> str | None:
        """Return why process *number* is not ready."""
        pid = self._children[number].pid
        try:
            status, body = await self._fetch(number, "/readyz")
        except FetchError as error:
            return str(error)
        if number in self._reload_due:
            # Before its first answer a process may have no handler for the signal, which would end it.
            self._reload_due.remove(number)
            self._children[number].signal(signal.SIGHUP)
        if pid is not None:
            self._pass_on_debug(number, pid)
        if pid is not None and (status == 200 or not body.startswith(_STARTING)):
            self._listening[number] = pid
        return None if status == 200 else body.decode(errors="replace")

    def _pass_on_debug(self, number: int, pid: int) -> None:
        """Send SIGUSR1 to a process that has answered, if its log levels are not those of the parent."""
        known, is_debug = self._is_debug.get(number, (pid, self._starts_debug))
        if known != pid:
            is_debug = self._starts_debug
        if is_debug != logs.current.is_debug:
            self._children[number].signal(signal.SIGUSR1)
        self._is_debug[number] = pid, logs.current.is_debug

    async def _fetch(self, number: int, target: str) -> tuple[int, bytes]:
        """Return status and body of the answer of process *number* on its admin port.

        Raises:
            FetchError: it does not answer; if it has ended, ``_is_down`` is True by then.
        """
        try:
            return await fetch(admin_socket(self._runtime, number), target)
        except FetchError:
            # The connections of an ended process fail a moment before the parent is notified.
            if not self._is_down(number):
                await self._children[number].ended_within(_END_NOTIFIED_S)
            raise

    async def _warnings(self) -> list[str]:
        """Return the warnings of all processes, each once."""
        answers = await asyncio.gather(
            *(self._fetch(number, f"/readyz?{VERBOSE}") for number in range(self._count)),
            return_exceptions=True,
        )
        lines = [
            line.removeprefix(WARNING)
            for answer in answers
            if not isinstance(answer, BaseException)
            for line in answer[1].decode(errors="replace").splitlines()
            if line.startswith(WARNING)
        ]
        return list(dict.fromkeys(lines))

    async def _exposition(self, accept: bytes) -> Exposition:
        found = await asyncio.gather(*(self._metrics_of(number) for number in range(self._count)))
        expositions = dict(filter(None, found))
        if not expositions:
            raise Unavailable("no process serves")
        running = {child.pid for child in self._children if child.pid is not None}
        return self._metrics.add(expositions, running, accept)

    async def _metrics_of(self, number: int) -> tuple[int, bytes] | None:
        """Return the process id and the exposition of process *number*. None if it is down."""
        child = self._children[number]
        pid = child.pid
        try:
            status, body = await self._fetch(number, "/metrics")
        except FetchError as error:
            if self._is_down(number):
                return None
            raise Unavailable(f"process {number}: {error}") from None
        if status != 200:
            raise Unavailable(f"process {number}: /metrics answers with status {status}")
        # Otherwise it has ended meanwhile, and this may not be its last exposition.
        return (pid, body) if pid is not None and pid == child.pid else None


def admin_socket(runtime: Path, number: int) -> Path:
    """Return the socket of the admin port of gateway process *number*."""
    return runtime / f"gateway-{number}.sock"


def heartbeat_pipe(runtime: Path, number: int) -> Path:
    """Return the pipe for the heartbeats of gateway process *number*."""
    return runtime / f"heartbeat-{number}"

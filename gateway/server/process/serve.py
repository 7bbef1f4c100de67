"""``serve`` as an operating system process: signals, the order of start and stop, exit status."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.config.merge.model import summary
from gateway.engine.siblings import Siblings
from gateway.server.app import Gateway
from gateway.server.history import HistoryError
from gateway.server.process.liveness import Heartbeat
from gateway.server.process.local_workers import STOP_GRACE_S, LocalWorkers, targets_of
from gateway.server.process.shared_port import inherited
from gateway.server.process.supervisor import Supervisor, admin_socket, heartbeat_pipe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.config.merge.model import Config
    from gateway.server.kubernetes.self_managed_tls import CertificateKeeper
    from gateway.server.options import Options

    Start = Coroutine[object, object, None]

log = logging.getLogger(__name__)

GC_CONTAINERS: Final = 100_000
"""Net number of new containers after which the garbage collector searches the youngest generation."""


async def serve(options: Options, arguments: list[str]) -> None:
    """Run the gateway until a signal ends it. *arguments* are the command line, from before ``serve`` on.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    signals = Signals()
    runtime = Path(tempfile.mkdtemp(prefix="admission-gateway-"))
    signals.at_once(lambda: shutil.rmtree(runtime, ignore_errors=True))
    workers = LocalWorkers(runtime)
    signals.at_once(workers.kill)

    keeping: asyncio.Task[None] | None = None
    try:
        config = options.load_first()
        logs.current.activate(config.gateway.logging)
        _announce(options)
        if config.gateway.tls.self_managed is not None and options.tls_cert is None:
            keeper = _certificate_keeper(config.gateway, runtime)
            if not await signals.run_until_stopped(keeper.start()):
                return
            keeping = asyncio.create_task(keeper.run())
            options = replace(options, tls_cert=keeper.cert_file, tls_key=keeper.key_file)
            arguments = [*arguments, f"--tls-cert={keeper.cert_file}", f"--tls-key={keeper.key_file}"]
            config = options.load_first()
        if config.gateway.processes > 1:
            supervisor = Supervisor(options, config, arguments, runtime, workers)
            signals.at_once(supervisor.kill)
            await _serve_several(signals, supervisor)
        else:
            gateway = Gateway(options, lambda pool: targets_of(pool, runtime), workers)
            await _serve_one(signals, gateway, _start_alone(gateway, config))
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])
        await workers.stop(STOP_GRACE_S)
        shutil.rmtree(runtime, ignore_errors=True)


def _announce(options: Options) -> None:
    if options.history is not None:
        try:
            options.history.announce()
        except HistoryError as error:
            log.warning("configurations are not kept for rollback: %s", error)


def _certificate_keeper(settings: GatewaySettings, runtime: Path) -> CertificateKeeper:
    # Imported late: other gateways do not need the client of the cluster.
    from gateway.server.kubernetes.self_managed_tls import CertificateKeeper

    assert settings.tls.self_managed is not None
    assert settings.kubernetes is not None, "the configuration requires it"
    return CertificateKeeper(settings.tls.self_managed, settings.kubernetes, runtime / "tls")


async def serve_child(options: Options, number: int, sockets: str, runtime: Path) -> None:
    """Run one of several gateway processes, *number* from 0, under the supervisor that made *runtime*.

    *sockets* are those that it has inherited, see ``gateway.server.process.shared_port``.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    signals = Signals()
    Heartbeat(heartbeat_pipe(runtime, number))
    targets = partial(targets_of, runtime=runtime)
    config = options.load_first()
    logs.current.activate(config.gateway.logging)
    siblings = Siblings(runtime, number, targets)
    shared = inherited(sockets, number)
    gateway = Gateway(options, targets, process=number, siblings=siblings, shared=shared)
    start = _start_child(gateway, config, f"unix:{admin_socket(runtime, number)}")
    await _serve_one(signals, gateway, start)


async def _start_child(gateway: Gateway, config: Config, admin_address: str) -> None:
    await gateway.start(config, admin_address)
    relax_garbage_collection()


async def _start_alone(gateway: Gateway, config: Config) -> None:
    settings = config.gateway
    await gateway.start(config, settings.admin_listen)
    relax_garbage_collection()
    log.info(
        "serving on https://%s:%d, admin on http://%s:%d: %s",
        *(settings.listen.rpartition(":")[0], gateway.port),
        *(settings.admin_listen.rpartition(":")[0], gateway.admin_port, summary(gateway.config or config)),
    )


async def _serve_one(signals: Signals, gateway: Gateway, start: Start) -> None:
    try:
        await signals.follow(start, gateway.reload)
    finally:
        # Before the local workers end, so that no endpoint is logged as down.
        await gateway.stop(gateway.config.gateway.drain_s if gateway.config is not None else 0.0)


async def _serve_several(signals: Signals, supervisor: Supervisor) -> None:
    try:
        await signals.follow(supervisor.start(), supervisor.reload)
    finally:
        await supervisor.stop()


def relax_garbage_collection() -> None:
    """Make the garbage collector run rarely, and skip the objects that exist now.

    Every review parses a few hundred containers, which reference counting frees right after the answer. With
    Python's default threshold of 700 the collector would visit them, and the whole configuration, several
    times per review, which took an eighth of the CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_CONTAINERS, 20, 100)


class Signals:
    """The signal handlers of this process. Make it on a running event loop.

    SIGTERM and SIGINT stop the process, also while it starts; a second one kills it and its children. SIGHUP
    reloads the configuration, SIGUSR1 turns debug records on and off. All have handlers: by default the
    kernel would end a starting process, and would not end the init process of a container.
    """

    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._hang_up = asyncio.Event()
        self._at_once: list[Callable[[], None]] = []
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up.set)
        loop.add_signal_handler(signal.SIGUSR1, logs.current.toggle_debug)

    def at_once(self, end: Callable[[], None]) -> None:
        """Call *end* at the second signal to stop, before earlier callbacks; it must not wait."""
        self._at_once.insert(0, end)

    async def follow(self, start: Start, reload: Callable[[], Awaitable[object]]) -> None:
        """Run *start*, then *reload* at each SIGHUP, until a signal to stop, which cancels them.

        A SIGHUP during one of them takes effect after it. Their exceptions are raised.
        """
        stop = asyncio.create_task(self._stop.wait())
        work = asyncio.create_task(self._work(start, reload))
        await asyncio.wait((stop, work), return_when=asyncio.FIRST_COMPLETED)
        is_signalled = stop.done()
        stop.cancel()
        work.cancel()
        # Unless it was cancelled, it has ended with an exception.
        await asyncio.wait((stop, work))
        if not work.cancelled():
            work.result()
        if is_signalled:
            # Logged last: the drain begins right after it.
            log.info("stopping: answering the reviews in flight")

    async def run_until_stopped(self, work: Start) -> bool:
        """Run *work* until a signal to stop, which cancels it; return whether it ended before that."""
        stop, task = asyncio.create_task(self._stop.wait()), asyncio.create_task(work)
        await asyncio.wait((stop, task), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        task.cancel()
        await asyncio.wait((stop, task))
        if not task.cancelled():
            task.result()
        return not task.cancelled()

    async def _work(self, start: Start, reload: Callable[[], Awaitable[object]]) -> None:
        await start
        while await self._hang_up.wait():
            self._hang_up.clear()
            await reload()

    def _on_stop(self) -> None:
        if self._stop.is_set():
            for end in self._at_once:
                end()
            os._exit(1)
        self._stop.set()

"""``serve`` as an operating system process: signals, the order of start and stop, exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.app import Gateway, summary
from gateway.process.leash import hold
from gateway.process.local_workers import STOP_GRACE_S, LocalWorkers, targets_of
from gateway.process.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.model import Config
    from gateway.options import Options

log = logging.getLogger(__name__)


async def serve(options: Options, arguments: list[str]) -> None:
    """Run the gateway until a signal ends it. *arguments* are the command line of ``serve``.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    config = options.load()
    runtime = Path(tempfile.mkdtemp(prefix="admission-gateway-"))
    try:
        if config.gateway.processes > 1:
            await _serve_several(options, config, arguments, runtime)
        else:
            await _serve_alone(options, config, runtime)
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


async def serve_child(options: Options, number: int, runtime: Path, parent: int) -> None:
    """Run one of several gateway processes, *number* from 0, under the supervisor *parent*.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    hold(parent)
    gateway = Gateway(options, lambda pool: targets_of(pool, runtime), reuse_port=True)
    await gateway.start(options.load(), f"unix:{admin_socket(runtime, number)}", lambda _: None)
    await _until_told(gateway, lambda _: None)


def admin_socket(runtime: Path, number: int) -> Path:
    """Return where the gateway process *number* serves its admin port."""
    return runtime / f"gateway-{number}.sock"


async def _serve_alone(options: Options, config: Config, runtime: Path) -> None:
    workers = LocalWorkers(runtime)
    gateway = Gateway(options, lambda pool: targets_of(pool, runtime))

    def on_config(config: Config) -> None:
        workers.update(config.pools)

    try:
        await gateway.start(config, config.gateway.admin_listen, on_config)
        host = config.gateway.listen.rpartition(":")[0]
        admin_host = config.gateway.admin_listen.rpartition(":")[0]
        log.info(
            "serving on https://%s:%d, admin on http://%s:%d: %s",
            *(host, gateway.port, admin_host, gateway.admin_port, summary(config)),
        )
        await _until_told(gateway, on_config)
    finally:
        await workers.stop(STOP_GRACE_S)


async def _until_told(gateway: Gateway, on_config: Callable[[Config], None]) -> None:
    stopping = stop_signal(lambda: gateway.reload(on_config))
    await stopping.wait()
    log.info("stopping: answering what is in flight")
    assert gateway.config is not None
    await gateway.stop(gateway.config.gateway.drain_s)


async def _serve_several(options: Options, config: Config, arguments: list[str], runtime: Path) -> None:
    workers = LocalWorkers(runtime)
    supervisor = Supervisor(options, config, arguments, runtime)
    try:
        workers.update(config.pools)
        await supervisor.start(lambda changed: workers.update(changed.pools))
        stopping = stop_signal(supervisor.reload)
        await stopping.wait()
        log.info("stopping: %d processes answer what is in flight", config.gateway.processes)
        await supervisor.stop()
    finally:
        await workers.stop(STOP_GRACE_S)


def stop_signal(reload: Callable[[], object]) -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; a second one ends the process. SIGHUP calls *reload*."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    reloads: set[asyncio.Task[object]] = set()

    def stop() -> None:
        if stopping.is_set():
            os._exit(1)
        stopping.set()

    def hang_up() -> None:
        result = reload()
        if asyncio.iscoroutine(result):
            task: asyncio.Task[object] = loop.create_task(result)
            reloads.add(task)
            task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    return stopping

"""The processes that a benchmark starts: gateways, the controls beside them, and workers, on free ports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.server.serving.devcert import make_development_certificate
from loadtest import agnhost, policies
from loadtest.gateways import GATEWAYS, WORKERS
from tests.kit import ROOT, Process, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["ROOT", "BenchError", "Running", "Server", "accept", "logged", "run_servers", "start"]

SERVING: Final = r"serving on (https://\S+:\d+)"
POLICIES: Final = r"policies on (\S+)"
SPANS: Final = r"spans on (\S+)"
"""Log lines of a gateway, a worker and a collector; the group is the address."""
ACCEPT_TIMEOUT_S: Final = 30.0
_ANYWHERE: Final = ("--listen=127.0.0.1:0", "--grace=0")
"""Arguments of every worker."""
_WORKERS_OF: Final = {"baseline": WORKERS} | {
    name: gateway.workers for name, gateway in GATEWAYS.items() if not gateway.language
}
"""Number of shared workers that a server needs; servers that are not named need none."""


class BenchError(Exception):
    """The benchmark cannot continue; the text is for a person."""


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves."""

    pids: tuple[int, ...]
    """The processes that do the work: several where the first only supervises others."""
    address: str
    """``https://HOST:PORT`` of a gateway or control, ``HOST:PORT`` of a worker."""
    workers: tuple[int, ...] = ()
    """The processes of its workers."""


@dataclass(frozen=True, slots=True)
class Running:
    """The processes of one group of cases."""

    servers: Mapping[str, Server]
    missing: Mapping[str, str]
    """Servers that this machine cannot start, and why."""


def start(stack: ExitStack, *command: str) -> Process:
    """Start *command*; it ends with *stack*, or when this process ends in any other way."""
    bound = [sys.executable, "-m", "gateway.server.process.parent_death", str(os.getpid())]
    process = Process(*bound, *command, stdout=subprocess.DEVNULL)
    stack.callback(process.stop)
    return process


def logged(name: str, process: Process, pattern: str) -> str:
    """Return the first group of *pattern* in the log of *process*, called *name*, as soon as it is there.

    Raises:
        BenchError: the process ended first, or it took too long.
    """
    try:
        return process.expect(pattern)[1]
    except AssertionError as error:
        raise BenchError(f"{name} did not start: {error}") from None


@contextmanager
def run_servers(review: Path, names: Sequence[str], folder: Path) -> Iterator[Running]:
    """Start the servers *names* and the workers that they need; stop all of them in the end.

    Args:
        review: The AdmissionReview that will be sent.
        names: ``floor``, ``baseline``, ``agnhost`` or names of ``GATEWAYS``.
        folder: An empty folder for certificates and configurations.

    Raises:
        BenchError: a process did not start.
    """
    with ExitStack() as stack:
        count = max((_WORKERS_OF.get(name, 0) for name in names), default=0)
        workers = [start(stack, sys.executable, "-m", "loadtest.worker", *_ANYWHERE) for _ in range(count)]
        addresses = [logged("a worker", process, POLICIES) for process in workers]
        state = ("--state", str(folder / "state"))
        certificate, key = make_development_certificate(folder / "state")
        webhook = ""
        if any(GATEWAYS[name].needs_webhook for name in names if name in GATEWAYS):
            process = start(stack, sys.executable, "-m", "loadtest.floor", "--any", str(review), *state)
            webhook = logged("the HTTPS webhook", process, SERVING)
        collector = ""
        if any(GATEWAYS[name].sampling is not None for name in names if name in GATEWAYS):
            process = start(stack, sys.executable, "-m", "loadtest.span_sink")
            collector = logged("the collector", process, SPANS)
        worker_pids = {
            name: tuple(process.child.pid for process in workers[: _WORKERS_OF.get(name, 0)])
            for name in names
        }
        started: dict[str, Process] = {}
        missing: dict[str, str] = {}
        servers: dict[str, Server] = {}
        for name in names:
            if name == "floor":
                started[name] = start(stack, sys.executable, "-m", "loadtest.floor", str(review), *state)
            elif name == "baseline":
                program = (sys.executable, "-m", "loadtest.grpc_aio_gateway")
                started[name] = start(stack, *program, *addresses, *state)
            elif name in GATEWAYS:
                gateway = GATEWAYS[name]
                targets = addresses[: gateway.workers]
                if gateway.language:
                    language = policies.POLICY_WORKERS[gateway.language]
                    if why := policies.unready(language):
                        missing[name] = why
                        continue
                    own = start(stack, *language.run, *_ANYWHERE)
                    targets = [logged(f"the worker in {language.title}", own, POLICIES)]
                    worker_pids[name] = (own.child.pid,)
                config = folder / f"{name}.yaml"
                config.write_text(gateway.text(targets, webhook, certificate, collector))
                started[name] = start(
                    stack,
                    *(sys.executable, "-m", "gateway", "serve", "--dev", "--config", str(config), *state),
                    *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
                    *("--processes", str(gateway.processes)),
                )
            elif binary := agnhost.obtain():
                port = free_port()
                command = agnhost.command(binary, certificate, key)
                servers[name] = accept(name, start(stack, *command, "--port", str(port)), port)
            else:
                missing[name] = "not built; `python -m loadtest.agnhost` builds it, with Go"
        for name, process in started.items():
            address = logged(name, process, SERVING)
            is_supervisor = name in GATEWAYS and GATEWAYS[name].processes > 1
            pids = process.children() if is_supervisor else [process.child.pid]
            servers[name] = Server(tuple(pids), address, worker_pids[name])
        yield Running(servers, missing)


def accept(name: str, process: Process, port: int) -> Server:
    """Return the server *process*, called *name*, as soon as it accepts connections on *port*.

    For programs that do not log when they listen, nor on which port if that is 0.

    Raises:
        BenchError: the process ended first, or it took too long.
    """
    give_up = time.monotonic() + ACCEPT_TIMEOUT_S
    while process.child.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            return Server((process.child.pid,), f"https://127.0.0.1:{port}")
    raise BenchError(f"{name} did not start: {process.log}")

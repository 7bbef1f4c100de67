"""The program of a worker: command line, signals, exit status.

Errors are one line on stderr. The first SIGTERM or SIGINT drains, the second exits immediately.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import uvloop

from admission_gateway_worker import log
from admission_gateway_worker.counters import Counters
from admission_gateway_worker.listen import StartError, Tls, parse_address
from admission_gateway_worker.log_lines import buffer_output, log_uncaught
from admission_gateway_worker.processes import CHILD_VARIABLE, ChildSettings, supervise
from admission_gateway_worker.server import DEFAULT_GRACE_S, DEFAULT_LISTEN, PolicyServer
from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

GC_THRESHOLD: Final = 50_000
"""Objects. The JSON of a review has hundreds of dicts and lists, which reference counting frees. With the
default of 700 the collector would run after nearly every review."""

MAX_PROCESSES: Final = 1024
"""More than any machine has CPUs; guards against typing errors."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    listen: tuple[str, ...]
    processes: int
    tls: Tls | None
    grace_s: float
    metrics_listen: str
    """Empty for none."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        say(message)
        self.exit(2)


def parse_options(argv: Sequence[str] | None) -> Options:
    """Return the options.

    Raises:
        SystemExit: 2 after a usage error, which is printed in one line; 0 after ``--help``.
    """
    parser = _Parser(description="Serves admission policies over gRPC.", allow_abbrev=False)
    parser.add_argument(
        "--listen",
        action="append",
        type=_address,
        metavar="ADDRESS",
        help=f"address, HOST:PORT or unix:PATH; may be repeated; default {DEFAULT_LISTEN}",
    )
    parser.add_argument(
        "--processes",
        type=_count,
        default=1,
        metavar="N",
        help="number of processes that share each port; default 1",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="serving certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of the certificate, PEM")
    parser.add_argument(
        "--client-ca", type=Path, metavar="FILE", help="require a client certificate of this CA, PEM"
    )
    parser.add_argument(
        "--metrics-listen",
        type=_metrics_address,
        metavar="HOST:PORT",
        help="serve Prometheus metrics over plain HTTP; off by default",
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=DEFAULT_GRACE_S,
        metavar="SECONDS",
        help=f"grace period for calls in flight at shutdown; default {DEFAULT_GRACE_S:g}",
    )
    options = parser.parse_args(argv)
    listen = tuple(options.listen or (DEFAULT_LISTEN,))
    has_unix = any(text.startswith("unix:") for text in listen)
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key go together")
    if options.client_ca is not None and options.tls_cert is None:
        parser.error("--client-ca needs --tls-cert and --tls-key")
    if has_unix and options.tls_cert is not None:
        parser.error("TLS needs HOST:PORT; the permissions of its folder protect a unix: socket")
    if has_unix and options.processes > 1:
        parser.error("--processes needs HOST:PORT; a unix: socket cannot be shared")
    if len(set(listen)) != len(listen):
        parser.error("--listen has the same address twice")
    tls = Tls(options.tls_cert, options.tls_key, options.client_ca) if options.tls_cert is not None else None
    return Options(listen, options.processes, tls, options.grace, options.metrics_listen or "")


def main(server: PolicyServer, argv: Sequence[str] | None) -> int:
    """Run the worker and return its exit status: 0 after a shutdown, 1 if it cannot start."""
    options = parse_options(argv)
    if argv is None:
        buffer_output()
        log_uncaught()
    log.set_up()
    settings = os.environ.pop(CHILD_VARIABLE, None)
    child = ChildSettings(**json.loads(settings)) if settings is not None else None
    try:
        if not server.policies:
            raise StartError("no policy is registered: decorate a function with @server.policy(...)")
        if options.processes > 1 and child is None:
            return uvloop.run(supervise(options, tuple(server.policies)))
        return uvloop.run(_serve(server, options, child))
    except StartError as error:
        say(str(error))
        return 1


def _address(text: str) -> str:
    try:
        parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _metrics_address(text: str) -> str:
    from admission_gateway_worker.metrics import parse_metrics_address

    try:
        parse_metrics_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_PROCESSES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_PROCESSES}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def say(text: str) -> None:
    """Write one line to stderr."""
    # The stream is None if the program was started without it.
    if sys.stderr is not None:
        sys.stderr.write(f"worker: {printable(text, None)}\n")
        sys.stderr.flush()


def say_metrics(address: str) -> None:
    """Write the URL of the metrics to stderr, if they are served."""
    if address:
        say(f"metrics on http://{address}/metrics")


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Set *stopping* at the first SIGTERM or SIGINT; exit with 128 + number at the second."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


async def _serve(server: PolicyServer, options: Options, child: ChildSettings | None) -> int:
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    listen = options.listen if child is None else child.listen
    counters = None
    if child is not None and child.counters >= 0:
        counters = Counters(server.policies, child.counters)
        counters.forget_calls()
    addresses = await server.start(
        *listen,
        tls=options.tls,
        reuse_port=child is not None,
        metrics_listen=options.metrics_listen if child is None else "",
        counters=counters,
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    if child is None:
        say_metrics(server.metrics_address)
        say(f"serving {len(server.policies)} policies on {', '.join(addresses)}")
    else:
        child.report_ready(stopping)
    await stopping.wait()
    busy = await server.stop(options.grace_s)
    if busy:
        say(f"exiting while {busy} policies still run in threads")
        os._exit(0)  # the interpreter would wait for these threads
    return 0

"""``admission-gateway serve``: runs the gateway."""

from __future__ import annotations

import argparse
import logging
import os
import signal
from pathlib import Path
from typing import Final

from gateway.tools.cli.arguments import DEFAULT_STATE, add_config
from gateway.tools.cli.parser import Help, Parser

log = logging.getLogger(__name__)

HELP: Final = Help(
    "Run the gateway until SIGTERM or SIGINT. SIGHUP reloads the configuration.",
    (
        ("try it: a certificate and sample policies of its own", "serve --dev"),
        ("serve a configuration, and keep what was in force", "serve --config config --state state"),
    ),
    "docs/operate.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command to *parser*."""
    add_config(parser, unless="dev")
    add = parser.add_argument
    add(
        "--dev",
        action="store_true",
        help="use a self-signed certificate and, without --config, the sample policies",
    )
    add("--listen", metavar="HOST:PORT", type=_address, help="address of the HTTPS front end")
    add(
        "--admin-listen",
        metavar="HOST:PORT",
        type=_address,
        help="address of /livez, /readyz and /metrics, plain HTTP",
    )
    add("--tls-cert", metavar="FILE", type=Path, help="serving certificate, PEM")
    add("--tls-key", metavar="FILE", type=Path, help="key of the serving certificate, PEM")
    add("--client-ca", metavar="FILE", type=Path, help="CA of the client certificates, PEM")
    add("--processes", metavar="N", type=_processes, help="number of gateway processes that share the port")
    add(
        "--state",
        metavar="DIR",
        type=Path,
        help="folder for the configurations that were in force, for rollback, and for the certificate of "
        f"--dev (default: {DEFAULT_STATE}, only with --dev)",
    )
    add(
        "--allow-empty",
        action="store_true",
        help="accept a configuration without webhooks, with which every request is allowed",
    )
    add("--child", help=argparse.SUPPRESS)
    parser.set_defaults(run=run, parser=parser)


def run(parsed: argparse.Namespace, arguments: list[str]) -> int:
    """Run the gateway until it is stopped, and return the exit status."""
    _ignore_early_signals()

    import uvloop

    from gateway.server.options import Options
    from gateway.server.process.serve import serve, serve_child

    if (parsed.tls_cert is None) != (parsed.tls_key is None):
        parsed.parser.error("--tls-cert and --tls-key go together")
    options = Options(
        config=tuple(parsed.config),
        dev=parsed.dev,
        state=parsed.state or DEFAULT_STATE,
        keeps_history=parsed.state is not None or parsed.dev,
        listen=parsed.listen,
        admin_listen=parsed.admin_listen,
        processes=parsed.processes,
        tls_cert=parsed.tls_cert,
        tls_key=parsed.tls_key,
        client_ca=parsed.client_ca,
        allow_empty=parsed.allow_empty,
    )
    if parsed.config_origin and not parsed.child:
        log.info("configuration: %s, from %s", " ".join(map(str, parsed.config)), parsed.config_origin)
    if parsed.child:
        number, sockets, runtime = parsed.child.split(":", 2)
        uvloop.run(serve_child(options, int(number), sockets, Path(runtime)))
    else:
        uvloop.run(serve(options, arguments))
    return 0


def _ignore_early_signals() -> None:
    """Set signal handlers for the time of the imports, which take most of the start."""
    # No configuration has been loaded yet, so there is nothing to reload.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # Nothing needs a shutdown yet. The kernel does not end the init process of a container by default.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _address(text: str) -> str:
    from gateway.config.kinds.addresses import parse_host_port

    try:
        parse_host_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _processes(text: str) -> int:
    from gateway.config.kinds.gateway_configuration import MAX_PROCESSES

    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_PROCESSES:
        raise argparse.ArgumentTypeError(f"found {text}, expected a number from 1 to {MAX_PROCESSES}")
    return int(text)

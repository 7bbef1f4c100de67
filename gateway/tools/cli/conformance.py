"""Options of ``admission-gateway conformance``, which the distribution of the conformance kit implements."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway import __version__
from gateway.base.errors import GatewayError
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    from collections.abc import Callable

HELP: Final = Help(
    "Check that a worker keeps to the worker contract.",
    (
        ("a worker that runs", "conformance 127.0.0.1:50051"),
        ("start a worker, check it, and stop it", "conformance --command python -m admission_gateway_worker"),
    ),
    "docs/write-a-policy.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add(
        "target",
        metavar="TARGET",
        nargs="?",
        help="address of the worker: HOST:PORT, unix:PATH or another target that a WorkerPool accepts",
    )
    add("--ca-file", metavar="FILE", type=Path, help="use TLS; CA of the worker's certificate, PEM")
    add("--cert-file", metavar="FILE", type=Path, help="client certificate, PEM")
    add("--key-file", metavar="FILE", type=Path, help="key of the client certificate, PEM")
    add(
        "--server-name",
        metavar="NAME",
        help="name in the worker's certificate (default: the host name of TARGET)",
    )
    add(
        "--policy",
        metavar="NAME",
        help="policy for rules that accept any policy (default: a sample policy, else the first listed)",
    )
    add(
        "--pid",
        metavar="N",
        type=_pid,
        help="process id of the worker: send it SIGTERM at the end, and check how it shuts down",
    )
    add(
        "--patience",
        metavar="FACTOR",
        type=_factor,
        default=1.0,
        help="wait this many times longer for answers, on a busy machine (default: 1)",
    )
    add("--keepalive", action="store_true", help="also check keepalive pings, which takes three minutes")
    add("--only", metavar="RULE", action="append", default=[], help="check only this rule; may be repeated")
    add(
        "--vectors",
        metavar="DIR",
        type=Path,
        help="folder of samples.json (default: the one of the kit)",
    )
    add("--json", action="store_true", help="print one JSON object at the end instead of lines")
    add(
        "--command",
        dest="worker",
        metavar="WORD",
        nargs=argparse.REMAINDER,
        help="start this worker instead of using TARGET, with --listen unix:PATH appended, and stop it at "
        "the end; must be the last option",
    )
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Check the worker and return the exit status. *refuse* prints a usage error and exits.

    Raises:
        GatewayError: the kit is not installed.
    """
    _validate(parsed, refuse)
    if find_spec("admission_gateway_conformance") is None:
        needed = f"admission-gateway-conformance=={__version__}"
        raise GatewayError(f"conformance: not installed; `pip install {needed}` installs it")
    from admission_gateway_conformance.command import run

    return run(parsed, refuse)


def _validate(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    from gateway.config.kinds import addresses

    if parsed.worker is not None and not parsed.worker:
        refuse("--command needs the command line of the worker")
    if parsed.worker and (parsed.target or parsed.pid is not None):
        refuse("--command starts the worker, so TARGET and --pid cannot be given")
    if parsed.worker and any((parsed.ca_file, parsed.cert_file, parsed.key_file, parsed.server_name)):
        refuse("--command uses a unix socket without TLS, so TLS options cannot be given")
    if not parsed.worker and not parsed.target:
        refuse("TARGET or --command is needed")
    if parsed.target and (message := addresses.target(parsed.target)):
        refuse(f"TARGET: {message}")
    if parsed.server_name and (message := addresses.server_name(parsed.server_name)):
        refuse(f"argument --server-name: {message}")
    if (parsed.cert_file is None) != (parsed.key_file is None):
        refuse("--cert-file and --key-file go together")


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 1000:
        raise argparse.ArgumentTypeError(f"found {text}, expected a number from 1 to 1000")
    return factor


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:12]) < 2**22 + 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected a process id")
    return int(text)

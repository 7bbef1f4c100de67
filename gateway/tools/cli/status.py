"""``admission-gateway status``: the overview of running gateways."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import GatewayError
from gateway.tools.cli import admin_ports
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.tools.status.reading import Reading

HELP: Final = Help(
    "Show what running gateways do. What is wrong comes first. The exit status is 1 if something is wrong.",
    (
        ("the gateway on this machine", "status"),
        ("all pods of a cluster, again and again", "status --cluster --watch"),
    ),
    "docs/operate.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    admin_ports.add_arguments(parser)
    add_watch(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON; with --watch an object a line")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add the options that print it again and again to *parser*."""
    add = parser.add_argument
    add("--watch", action="store_true", help="keep running, and print it again and again")
    add("--interval", metavar="SECONDS", type=_seconds, default=2.0, help="of --watch (default: 2)")


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print the status, and return the exit status: 1 if something is wrong. *refuse* exits with an error.

    Raises:
        GatewayError: the pods cannot be listed, or a file of credentials cannot be used.
    """
    admin_ports.check(parsed, refuse)
    status = 1
    try:
        while True:
            readings = asyncio.run(_read(parsed))
            status = int(any(notice.level == "bad" for one in readings for notice in one.notices()))
            _print(readings, parsed)
            if not parsed.watch:
                admin_ports.say_how_to_choose(parsed, (one.error for one in readings))
                return status
            asyncio.run(asyncio.sleep(parsed.interval))
    except KeyboardInterrupt:
        return status


async def _read(parsed: argparse.Namespace) -> list[Reading]:
    from gateway.tools.status.reading import Reading, read

    try:
        return await admin_ports.read_each(parsed, read)
    except GatewayError as error:
        if not (parsed.watch and parsed.cluster):
            raise
        return [Reading("cluster", error=str(error))]


def _print(readings: Sequence[Reading], parsed: argparse.Namespace) -> None:
    from gateway.base.terminal import width_of
    from gateway.base.text import printable_json, rfc3339
    from gateway.tools.status.render import render

    if parsed.json:
        document: dict[str, Any] = {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "Status",
            "time": rfc3339(time.time()),
            "gateways": [reading.as_json() for reading in readings],
        }
        text = json.dumps(document, ensure_ascii=False, indent=None if parsed.watch else 2)
        logs.print_text(printable_json(text) + "\n")
    else:
        width = width_of(sys.stdout)
        lines = render(readings, width)
        if parsed.watch and width:
            logs.print_text("\x1b[H\x1b[2J\x1b[3J")
        logs.print_output(*lines, *([""] if parsed.watch and not width else []))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"found {text}, expected seconds from 0.1 to 3600")
    return seconds

"""``admission-gateway status``: the overview of running gateways."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway import logs
from gateway.errors import GatewayError
from gateway.kubernetes import select_cluster as cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.status.reading import AdminPort, Reading

DEFAULT_ADMIN: Final = "127.0.0.1:9090"
DEFAULT_NAMESPACE: Final = "admission-gateway"
DEFAULT_SELECTOR: Final = "app.kubernetes.io/name=admission-gateway"
AT_ONCE: Final = 8
"""Gateways that are read at a time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add(
        "--admin",
        metavar="HOST:PORT",
        action="append",
        type=_url,
        help=f"admin port of a gateway, or its URL; may be repeated (default: {DEFAULT_ADMIN})",
    )
    add("--token-file", metavar="FILE", type=Path, help="file with the bearer token for the pages")
    add("--basic-auth-file", metavar="FILE", type=Path, help="file with the user:password for the pages")
    add("--cluster", action="store_true", help="read the gateway's pods in a cluster instead")
    cluster.add_arguments(parser, "to read")
    add("--namespace", help=f"with --cluster: namespace of the pods (default: {DEFAULT_NAMESPACE})")
    add(
        "--selector",
        metavar="LABELS",
        help=f"with --cluster: labels of the pods (default: {DEFAULT_SELECTOR})",
    )
    add("--watch", action="store_true", help="keep running, and print it again and again")
    add("--interval", metavar="SECONDS", type=_seconds, default=2.0, help="of --watch (default: 2)")
    add("--json", action="store_true", help="print it as JSON; with --watch an object a line")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print the status, and return the exit status: 1 if something is wrong. *refuse* exits with an error.

    Raises:
        GatewayError: the pods cannot be listed, or a file of credentials cannot be used.
    """
    for option in ("kubeconfig", "context", "namespace", "selector"):
        if getattr(parsed, option) is not None and not parsed.cluster:
            refuse(f"--{option} needs --cluster")
    if parsed.admin is not None and parsed.cluster:
        refuse("--admin cannot be combined with --cluster")
    if parsed.token_file is not None and parsed.basic_auth_file is not None:
        refuse("--token-file cannot be combined with --basic-auth-file")
    status = 1
    try:
        while True:
            readings = asyncio.run(_read(parsed))
            status = int(any(notice.level == "bad" for one in readings for notice in one.notices()))
            _print(readings, parsed)
            if not parsed.watch:
                return status
            asyncio.run(asyncio.sleep(parsed.interval))
    except KeyboardInterrupt:
        return status


async def _read(parsed: argparse.Namespace) -> list[Reading]:
    from gateway.status.admin_ports import AddressedPort, authorization_of, pod_ports
    from gateway.status.reading import read

    limit = asyncio.Semaphore(AT_ONCE)

    async def one(port: AdminPort) -> Reading:
        async with limit:
            return await read(port)

    authorization = authorization_of(parsed.token_file, parsed.basic_auth_file)
    if not parsed.cluster:
        urls = parsed.admin or [_url(DEFAULT_ADMIN)]
        ports = [AddressedPort(urlsplit(url).netloc.rpartition("@")[2], url, authorization) for url in urls]
        return await asyncio.gather(*map(one, ports))
    target = cluster.select(None, parsed.kubeconfig, parsed.context)
    try:
        api, pods = await pod_ports(
            target,
            parsed.namespace or DEFAULT_NAMESPACE,
            parsed.selector or DEFAULT_SELECTOR,
            authorization,
        )
    except GatewayError as error:
        if not parsed.watch:
            raise
        from gateway.status.reading import Reading

        return [Reading("cluster", error=str(error))]
    try:
        return await asyncio.gather(*map(one, pods))
    finally:
        await api.close()


def _print(readings: Sequence[Reading], parsed: argparse.Namespace) -> None:
    from gateway.status.render import render
    from gateway.text import printable_json

    if parsed.json:
        document: dict[str, Any] = {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "Status",
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "gateways": [reading.as_json() for reading in readings],
        }
        text = json.dumps(document, ensure_ascii=False, indent=None if parsed.watch else 2)
        text = printable_json(text) + "\n"
    else:
        is_terminal = sys.stdout.isatty()
        is_styled = is_terminal and not os.environ.get("NO_COLOR")
        lines = render(readings, is_styled=is_styled)
        start = "\x1b[H\x1b[2J\x1b[3J" if parsed.watch and is_terminal else ""
        text = start + "\n".join(lines) + ("\n\n" if parsed.watch and not is_terminal else "\n")
    logs.print_text(text)


def _url(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_right = is_right and text.isprintable() and " " not in text
    except ValueError:
        is_right = False
    if not is_right:
        raise argparse.ArgumentTypeError(f"found {text}, expected HOST:PORT or a URL")
    return url


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"found {text}, expected seconds from 0.1 to 3600")
    return seconds

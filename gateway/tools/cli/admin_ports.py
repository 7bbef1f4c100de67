"""The options by which a command chooses the gateways whose admin ports it reads."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from gateway.base import logs
from gateway.server.kubernetes import select_cluster as cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from gateway.tools.status.admin_ports import PodPort
    from gateway.tools.status.reading import AdminPort

T = TypeVar("T")

DEFAULT_ADMIN: Final = "127.0.0.1:9090"
DEFAULT_NAMESPACE: Final = "admission-gateway"
DEFAULT_SELECTOR: Final = "app.kubernetes.io/name=admission-gateway"
AT_ONCE: Final = 8
"""Gateways that are read at a time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to *parser*."""
    add = parser.add_argument
    add(
        "--admin",
        metavar="HOST:PORT",
        action="append",
        type=_url,
        help=f"admin port of a gateway, or its URL; may be repeated (default: {DEFAULT_ADMIN})",
    )
    add_credentials(parser)
    add("--cluster", action="store_true", help="read the gateway's pods in a cluster instead")
    cluster.add_arguments(parser, "to read")
    add(
        "--namespace",
        help=f"with --cluster: namespace of the pods (default: {DEFAULT_NAMESPACE}, or else the only one "
        "that has some)",
    )
    add(
        "--selector",
        metavar="LABELS",
        help=f"with --cluster: labels of the pods (default: {DEFAULT_SELECTOR})",
    )


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add the options for pages that need a credential to *parser*."""
    add = parser.add_argument
    add("--token-file", metavar="FILE", type=Path, help="file with the bearer token for the pages")
    add("--basic-auth-file", metavar="FILE", type=Path, help="file with the user:password for the pages")


def check(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    """Call *refuse*, which exits with an error, for options in *parsed* that contradict each other."""
    for option in ("kubeconfig", "context", "namespace", "selector"):
        if getattr(parsed, option) is not None and not parsed.cluster:
            refuse(f"--{option} needs --cluster")
    if parsed.admin is not None and parsed.cluster:
        refuse("--admin cannot be combined with --cluster")
    if parsed.token_file is not None and parsed.basic_auth_file is not None:
        refuse("--token-file cannot be combined with --basic-auth-file")


def say_how_to_choose(parsed: argparse.Namespace, errors: Iterable[str]) -> None:
    """Print the options that choose gateways, if none was given and the one of this machine has an error."""
    if parsed.admin is None and not parsed.cluster and all(errors):
        logs.print_error(
            f"no gateway answers at {DEFAULT_ADMIN}; --admin HOST:PORT and --cluster choose others"
        )


async def read_each(parsed: argparse.Namespace, read: Callable[[AdminPort], Awaitable[T]]) -> list[T]:
    """Return what *read* returns for each gateway that *parsed* chooses, in their order.

    Raises:
        GatewayError: the pods cannot be listed, or a file of credentials cannot be used.
    """
    from gateway.tools.status.admin_ports import AddressedPort, authorization_of

    limit = asyncio.Semaphore(AT_ONCE)

    async def one(port: AdminPort) -> T:
        async with limit:
            return await read(port)

    if parsed.cluster:
        async with pods_of(parsed) as pods:
            return await asyncio.gather(*map(one, pods))
    authorization = authorization_of(parsed.token_file, parsed.basic_auth_file)
    urls = parsed.admin or [_url(DEFAULT_ADMIN)]
    ports = [AddressedPort(urlsplit(url).netloc.rpartition("@")[2], url, authorization) for url in urls]
    return await asyncio.gather(*map(one, ports))


@asynccontextmanager
async def pods_of(parsed: argparse.Namespace) -> AsyncIterator[Sequence[PodPort]]:
    """Give the pods that *parsed* chooses in a cluster. Its ``namespace`` becomes theirs.

    Raises:
        GatewayError: as :func:`read_each`.
    """
    from gateway.tools.status.admin_ports import authorization_of, pod_ports

    api, pods = await pod_ports(
        cluster.select(None, parsed.kubeconfig, parsed.context),
        parsed.namespace or DEFAULT_NAMESPACE,
        parsed.selector or DEFAULT_SELECTOR,
        authorization_of(parsed.token_file, parsed.basic_auth_file),
        or_elsewhere=parsed.namespace is None,
    )
    try:
        parsed.namespace = pods[0].namespace
        yield pods
    finally:
        await api.close()


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

"""DNS look-ups that cannot hold each other up: each runs in a thread of its own.

An event loop resolves names in a small pool of threads. A name server that does not answer blocks such a
thread for many seconds: a few dead names would delay all others, those of other pools and webhooks included.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Address = tuple[int, str]
    """The address family, and the address as text."""


async def look_up(host: str, port: int) -> list[Address]:
    """Return the addresses of *host*, a name or itself an address.

    Raises:
        OSError: the look-up failed; a socket.gaierror if the resolver says so.
        ValueError: *host* cannot be a name.
    """
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return [(socket.AF_INET if address.version == 4 else socket.AF_INET6, str(address))]
    result: asyncio.Future[list[Address]] = asyncio.get_running_loop().create_future()

    def run() -> None:
        found: list[Address] | Exception
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = [(family, str(address[0])) for family, _, _, _, address in entries]
        except (OSError, ValueError) as error:
            found = error
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            result.get_loop().call_soon_threadsafe(_settle, result, found)

    try:
        # A daemon: the end of the process does not wait for it, as it would for an executor's threads.
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError as error:
        raise OSError(str(error)) from None
    return await result


def _settle(result: asyncio.Future[list[Address]], found: list[Address] | Exception) -> None:
    if result.done():
        return
    if isinstance(found, Exception):
        result.set_exception(found)
    else:
        result.set_result(found)

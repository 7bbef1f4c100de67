"""The proxy for a server, from the environment, and the tunnel through it.

The variables are those of Go: ``HTTPS_PROXY`` and ``NO_PROXY``, in upper or lower case. Loopback addresses
are never proxied. The connection to the proxy is plain HTTP; with a proxy over TLS or SOCKS every call fails.

Source: golang.org/x/net http/httpproxy/proxy.go; RFC 9110 section 9.3.6 (CONNECT).
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from gateway.engine.dispatch.https.connection import ExchangeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.engine.dispatch.https.happy_eyeballs import Host

MAX_HEAD_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy."""

    host: str
    port: int
    authorization: str = ""
    """Value of ``Proxy-Authorization``; empty for none."""
    unusable: str = ""
    """Why it cannot be used; empty if it can."""


def proxy_for(host: str, port: int, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy in *environment* for *host*; None for a direct connection."""
    text = environment.get("HTTPS_PROXY") or environment.get("https_proxy") or ""
    excluded = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not text or _is_direct(host.lower().rstrip("."), port, excluded):
        return None
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        proxy_port = parts.port or 80
    except ValueError:
        return Proxy("", 0, unusable="proxyconnect: HTTPS_PROXY holds no URL")
    if parts.scheme != "http" or not parts.hostname:
        return Proxy("", 0, unusable="proxyconnect: HTTPS_PROXY names no proxy of the form http://HOST:PORT")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, proxy_port, authorization)


def _is_direct(host: str, port: int, excluded: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, port, address) for entry in excluded.split(","))


def _matches(
    entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and _address(entry.strip("[]")) is None:
        if int(number) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    if (excluded := _address(entry)) is not None:
        return excluded == address
    # A name matches itself and its subdomains; with a leading dot or *. only subdomains.
    entry = entry.removeprefix("*")
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class _Tunnel(asyncio.Protocol):
    """Reads the proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._read = b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        if self.opened.done():
            return
        head, end, rest = self._read.partition(b"\r\n\r\n")
        if not end and len(self._read) <= MAX_HEAD_BYTES:
            return
        status_line = head.partition(b"\r\n")[0].decode("latin-1")
        words = status_line.split(" ", 2)
        if end and not rest and words[0] in ("HTTP/1.1", "HTTP/1.0") and words[1:2] == ["200"]:
            self.opened.set_result(None)
        else:
            self.fail(f"proxyconnect: the proxy answers {status_line[:200]!r}, expected 200")

    def connection_lost(self, error: Exception | None) -> None:
        self.fail("proxyconnect: EOF")

    def fail(self, reason: str) -> None:
        """Fail, unless the tunnel is open."""
        if not self.opened.done():
            self.opened.set_exception(ExchangeError(reason, is_unsent=True))


async def open_tunnel(host: Host, proxy: Proxy, target: str) -> asyncio.Transport:
    """Return a transport to the server at *target*, ``HOST:PORT``, through *proxy* at *host*.

    Raises:
        ExchangeError: the proxy refuses.
        OSError: the proxy cannot be reached.
    """
    if proxy.unusable:
        raise ExchangeError(proxy.unusable, is_unsent=True)
    transport, tunnel = await host.connect(_Tunnel)
    try:
        authorization = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n"
        transport.write(head.encode("latin-1"))
        await tunnel.opened
    except BaseException:
        transport.abort()
        raise
    return transport

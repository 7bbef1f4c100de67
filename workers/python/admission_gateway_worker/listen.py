"""Listening addresses, their sockets, and TLS files."""

from __future__ import annotations

import re
import socket
import ssl
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_UNIX_PATH_BYTES: Final = 107
"""Size of sun_path on Linux, 108, less the terminating zero."""

_HOST_PORT: Final = re.compile(r"(\[(?P<ipv6>[\w.%]*:[\w.%:]*)\]|(?P<host>[\w.-]+)):(?P<port>[0-9]{1,5})")


class StartError(Exception):
    """The worker cannot start; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Address:
    """HOST:PORT, or with ``path`` a unix socket."""

    host: str = ""
    """Without brackets."""
    port: int = 0
    """With 0 it is any free port."""
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. With ``client_ca`` clients need a certificate of that CA."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def parse_address(text: str) -> Address:
    """Return the address in *text*: ``HOST:PORT``, ``[IPv6]:PORT`` or ``unix:PATH``.

    Raises:
        ValueError: *text* has another format.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        path = "/" + path.lstrip("/") if path.startswith("//") else path
        if not path:
            raise ValueError(f"{text!r} has no path: unix:PATH is expected")
        if len(path.encode()) > MAX_UNIX_PATH_BYTES:
            raise ValueError(
                f"{text!r} is too long: a unix socket's path has at most {MAX_UNIX_PATH_BYTES} bytes"
            )
        return Address(path=Path(path))
    found = _HOST_PORT.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"{text!r} is not an address: HOST:PORT, [IPV6]:PORT or unix:PATH is expected")
    return Address(found["ipv6"] or found["host"], int(found["port"]))


def claim(address: Address) -> None:
    """Check that *address* can be bound, and remove a stale socket file.

    Raises:
        StartError: the address is in use, or unusable.
    """
    if address.path is None:
        for sock in bind_tcp(address, socket.SO_REUSEADDR):
            sock.close()
        return
    path = address.path
    if not path.parent.is_dir():
        raise StartError(f"{address}: the folder {path.parent} does not exist")
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise StartError(f"{address}: the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                path.unlink()
            return
        except OSError as error:
            raise StartError(f"{address}: {error.strerror or error}") from None
    raise StartError(f"{address}: Address already in use")


def reserve_tcp(address: Address) -> list[socket.socket]:
    """Return sockets that reserve *address* for the processes of this worker. They do not listen.

    Another worker that shared the port would get half of the calls. So SO_REUSEPORT, for the sockets of the
    processes, is set after the address was bound without it: two workers cannot both do that, also while no
    process listens.

    Raises:
        StartError: the host is unknown, or the port is in use.
    """
    try:
        reserved = bind_tcp(address)
    except StartError:
        # Connections that an earlier worker has closed are kept for a minute.
        reserved = bind_tcp(address, socket.SO_REUSEADDR)
    for sock in reserved:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return reserved


def bind_tcp(address: Address, *options: int) -> list[socket.socket]:
    """Return sockets with these *options*, bound to all addresses of the host. They do not listen.

    Raises:
        StartError: the host is unknown, or the port is in use.
    """
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, target in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            bound.append(sock)
            for option in options:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            port = bound[0].getsockname()[1]  # a free port is chosen once
            sock.bind((target[0], port or target[1], *target[2:]))
    except OSError as error:
        for sock in bound:
            sock.close()
        raise StartError(f"{address}: {error.strerror or error}") from None
    return bound


def listening(address: Address, *, reuse_port: bool) -> list[socket.socket]:
    """Return the sockets of *address*, bound.

    Raises:
        StartError: it cannot be bound.
    """
    if address.path is None:
        return bind_tcp(address, socket.SO_REUSEADDR, *((socket.SO_REUSEPORT,) if reuse_port else ()))
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(address.path))
    except OSError as error:
        sock.close()
        raise StartError(f"{address}: {error.strerror or error}") from None
    return [sock]


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the TLS settings of a server with these files.

    Raises:
        StartError: a file is unreadable or not PEM, or key and certificate do not match.
    """
    for path in (tls.key, tls.cert, tls.client_ca):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise StartError(f"{path}: {error.strerror or error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise StartError(f"{tls.cert} and {tls.key} are not a PEM certificate and its key: {error}") from None
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except ssl.SSLError as error:
            raise StartError(f"{tls.client_ca} holds no PEM certificate: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; a key without a password is required")

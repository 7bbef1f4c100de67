"""The listening sockets of an address."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.errors import ConfigError, Problem
from gateway.config.kinds.addresses import parse_host_port

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED: Final = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
"""The options of sockets that share an address. The kernel distributes connections over those that listen."""
_BACKLOG = 4096
"""The kernel limits it to net.core.somaxconn. An API server keeps 25 connections; each further concurrent
review opens another."""


_OTHER_FILES = 512
"""File descriptors that are not for clients: workers, reloaded files, the admin port, the event loop."""


class ListenerRole(NamedTuple):
    """What a listener is for, and how its address is changed, for messages."""

    name: str
    option: str
    """The option of ``serve``."""
    field: str
    """The field of the GatewayConfiguration."""


FRONT_END: Final = ListenerRole("HTTPS front end", "--listen", "listen")
ADMIN_PORT: Final = ListenerRole("admin port", "--admin-listen", "adminListen")


def cannot_listen(address: str, error: OSError | ValueError, role: ListenerRole | None) -> ConfigError:
    """Return the error of a listener that cannot use *address*; a *role* of None has no option to name."""
    message = f"cannot listen on {address}"
    if role is None:
        message += f": {_reason(error)}"
    else:
        message += (
            f" ({role.name}): {_reason(error)}; "
            f"{role.option} or {role.field} of the GatewayConfiguration changes the address"
        )
    return ConfigError([Problem("", "", message)])


def affordable_connections(wanted: int) -> int:
    """Raise the soft limit of open files for *wanted* clients, and return the number that it allows.

    With the usual soft limit of 1024, a thousand connections would leave no file descriptor to reach a worker
    or to read the configuration.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return max(min(wanted, needed - _OTHER_FILES), needed // 2)


def open_sockets(address: str, role: ListenerRole | None = None) -> list[socket.socket]:
    """Return the sockets that listen at *address*, HOST:PORT or unix:PATH; one for each address of a host.

    A socket file without a listening process is replaced.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    sockets: list[socket.socket] = []
    try:
        if address.startswith("unix:"):
            sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            _bind_unix(sockets[0], address.removeprefix("unix:"))
        else:
            _bind_all(*parse_host_port(address), sockets, socket.SO_REUSEADDR)
        listen(sockets)
    except (OSError, ValueError) as error:
        for sock in sockets:
            sock.close()
        raise cannot_listen(address, error, role) from None
    return sockets


def listen(sockets: Iterable[socket.socket]) -> None:
    """Have bound *sockets* listen. They do not block."""
    for sock in sockets:
        sock.listen(_BACKLOG)
        sock.setblocking(False)  # noqa: FBT003 - the standard library's only way


def hold_port(address: str, role: ListenerRole) -> list[socket.socket]:
    """Return bound sockets that reserve *address*, HOST:PORT, for the processes of this gateway.

    They do not listen. Another gateway that shared the port would get half of the connections. So
    SO_REUSEPORT, for the sockets of the processes, is set after the address was bound without it: two
    gateways cannot both do that, also while no process listens.

    Raises:
        ConfigError: The address cannot be listened on, or another program listens there.
    """
    sockets: list[socket.socket] = []
    try:
        host, port = parse_host_port(address)
        try:
            _bind_all(host, port, sockets)
        except OSError:
            # Connections that an earlier program has closed are kept for a minute.
            for sock in sockets:
                sock.close()
            sockets.clear()
            _bind_all(host, port, sockets, socket.SO_REUSEADDR)
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except (OSError, ValueError) as error:
        for sock in sockets:
            sock.close()
        raise cannot_listen(address, error, role) from None
    return sockets


def share_port(address: str, role: ListenerRole) -> list[socket.socket]:
    """Return bound sockets of *address*, HOST:PORT, for one of several processes. They do not listen yet.

    They do not block.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    sockets: list[socket.socket] = []
    try:
        _bind_all(*parse_host_port(address), sockets, *_SHARED)
        for sock in sockets:
            sock.setblocking(False)  # noqa: FBT003 - the standard library's only way
    except (OSError, ValueError) as error:
        for sock in sockets:
            sock.close()
        raise cannot_listen(address, error, role) from None
    return sockets


def close_socket(sock: socket.socket) -> None:
    """Close a socket of ``open_sockets``, and remove its file if it has one."""
    if sock.family == socket.AF_UNIX:
        # Before the close: another process may take the path once nothing listens at it.
        with contextlib.suppress(OSError):
            Path(sock.getsockname()).unlink()
    sock.close()


def has_unread(sock: socket.socket) -> bool:
    """Return whether *sock* has unread bytes, or an unread end, of its peer."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _bind_unix(sock: socket.socket, path: str) -> None:
    try:
        sock.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not _is_abandoned(path):
            raise
        Path(path).unlink()
        sock.bind(path)


def _is_abandoned(path: str) -> bool:
    """Return whether *path* is the socket file of a process that was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the standard library's only way
        # A connection to a file that is not a socket is refused too.
        return Path(path).is_socket() and probe.connect_ex(path) == errno.ECONNREFUSED


def _bind_all(host: str, port: int, sockets: list[socket.socket], *options: int) -> None:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # With port 0 each address would get another port.
    for family, _, _, _, where in found[:1] if port == 0 else found:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sockets.append(sock)
        for option in options:
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        sock.bind(where)


def _reason(error: OSError | ValueError) -> str:
    # Name resolution errors have negative numbers and their own text.
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno)  # type: ignore[arg-type] # not None, as just seen
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)

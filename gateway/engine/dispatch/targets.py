"""Targets of worker pools: gRPC names, resolved to single addresses.

Source: gRPC name resolution (grpc/doc/naming.md).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from gateway.engine.dispatch.name_lookup import look_up


@dataclass(frozen=True, slots=True)
class DnsName:
    """A host name and a port, which are looked up periodically."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses that need no look-up, each as a gRPC name."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.names)


def parse_target(target: str) -> DnsName | Addresses:
    """Return the meaning of *target*, which the configuration has validated.

    Raises:
        ValueError: it has no port.
    """
    scheme, _, rest = target.partition(":")
    if scheme in ("ipv4", "ipv6"):
        return Addresses(tuple(f"{scheme}:{part.strip()}" for part in rest.split(",")))
    if scheme in ("unix", "unix-abstract"):
        return Addresses((target,))
    if scheme == "dns":
        target = rest.removeprefix("///")
    host, _, port = target.rpartition(":")
    return DnsName(host.strip("[]"), int(port))


async def addresses_of(target: DnsName | Addresses) -> dict[str, str | None]:
    """Return gRPC names of single addresses, each with the host name that was looked up, if any.

    Raises:
        OSError: the name cannot be looked up.
    """
    if isinstance(target, Addresses):
        return dict.fromkeys(target.names)
    names: dict[str, str | None] = {}
    for family, address in sorted(await look_up(target.host, target.port)):
        if family == socket.AF_INET:
            names[f"ipv4:{address}:{target.port}"] = target.host
        elif family == socket.AF_INET6:
            names[f"ipv6:[{address}]:{target.port}"] = target.host
    return names

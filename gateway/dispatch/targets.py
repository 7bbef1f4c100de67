"""gRPC names to single addresses.

Source: gRPC name resolution (grpc/doc/naming.md).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from gateway.dispatch.name_lookup import look_up


@dataclass(frozen=True, slots=True)
class DnsName:
    """A host name and a port, to be looked up again and again."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses that need no look-up, each a gRPC name of its own."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.names)


def parse_target(target: str) -> DnsName | Addresses:
    """Return what a target that the configuration has validated stands for.

    Raises:
        ValueError: it has not been validated: no port.
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
    """Return the gRPC names of single addresses, each with the host name it was looked up by, if any.

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

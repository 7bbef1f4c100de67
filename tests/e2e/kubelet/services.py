"""Stand-ins for kube-proxy and cluster DNS: cluster IPs lead to ready Pods, and Services have names.

A new connection to a cluster IP goes to the next ready endpoint of the EndpointSlices; established ones stay.
While no endpoint is ready, those that terminate and still serve get it. Without those it is reset.

Source: https://kubernetes.io/docs/reference/networking/virtual-ips/; RFC 1035, section 4
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.kubelet.network import NODE_IP
from tests.e2e.service import Endpoint, Forwarder

if TYPE_CHECKING:
    from tests.e2e.client import Api

EVERY_S: Final = 0.1
_CACHED: Final = "?resourceVersion=0"
_SUFFIX: Final = ".cluster.local"
_A, _AAAA, _NO_NAME = 1, 28, 3
_TTL_S: Final = 5


class Port(Forwarder):
    """One port of a Service."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[Endpoint] = []
        self.server: asyncio.Server | None = None

    def choose(self) -> Endpoint | None:
        """Return the endpoint for a new connection."""
        self._turn += 1
        return self.targets[self._turn % len(self.targets)] if self.targets else None


@dataclass
class Table:
    """What the Services and EndpointSlices of the cluster say."""

    ports: dict[tuple[str, int], list[tuple[str, int]]] = field(default_factory=dict)
    """Addresses and ports behind each cluster IP and port."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """Addresses of each name, such as ``web.default.svc``."""


def table(services: list[dict[str, Any]], slices: list[dict[str, Any]]) -> Table:
    """Return the table for all Services with a selector or EndpointSlices."""
    found = Table()
    for service in services:
        metadata, spec = service["metadata"], service["spec"]
        own = [
            each
            for each in slices
            if each["metadata"]["namespace"] == metadata["namespace"]
            and each["metadata"]["labels"].get("kubernetes.io/service-name") == metadata["name"]
        ]
        name = f"{metadata['name']}.{metadata['namespace']}.svc"
        ip = spec.get("clusterIP")
        if ip == "None":
            found.names[name] = [address for each in own for address in _addresses(each)]
        elif ip:
            found.names[name] = [ip]
            for port in spec["ports"]:
                found.ports[ip, port["port"]] = [
                    (address, target["port"])
                    for each in own
                    for target in each["ports"] or []
                    if target.get("name", "") == port.get("name", "")
                    for address in _addresses(each)
                ]
    return found


def _addresses(one: dict[str, Any]) -> list[str]:
    endpoints = one.get("endpoints") or []
    usable = [each for each in endpoints if each["conditions"].get("ready", True)]
    if not usable:
        usable = [each for each in endpoints if each["conditions"].get("serving")]
    return [address for each in usable for address in each["addresses"]]


class Services:
    """Listens on every cluster IP, and answers DNS."""

    def __init__(self, api: Api) -> None:
        """Take a client that may read Services and EndpointSlices."""
        self._api = api
        self._ports: dict[tuple[str, int], Port] = {}
        self.table = Table()

    async def run(self) -> None:
        """Follow the cluster until the task is cancelled."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: _Dns(self), local_addr=(NODE_IP, 53))
        while True:
            try:
                self.table = await asyncio.to_thread(self._read)
            except OSError:  # the API server restarts
                await asyncio.sleep(EVERY_S)
                continue
            for gone in self._ports.keys() - self.table.ports.keys():
                server = self._ports.pop(gone).server
                assert server is not None
                server.close()
            for (ip, number), targets in self.table.ports.items():
                if (ip, number) not in self._ports:
                    port = self._ports[ip, number] = Port()
                    port.server = await loop.create_server(port.accept, ip, number, backlog=1024)
                self._ports[ip, number].targets = [Endpoint(port, 0, host=host) for host, port in targets]
            await asyncio.sleep(EVERY_S)

    def _read(self) -> Table:
        services = self._api.get(f"/api/v1/services{_CACHED}").document["items"]
        slices = self._api.get(f"/apis/discovery.k8s.io/v1/endpointslices{_CACHED}").document["items"]
        return table(services, slices)


class _Dns(asyncio.DatagramProtocol):
    """Answers queries for addresses of Services; there are no other names."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # of a datagram endpoint

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(answer(data, self._services.table.names), addr)


def answer(query: bytes, names: dict[str, list[str]]) -> bytes:
    """Return the answer to a DNS *query* of one question."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    question = query[12 : at + 5]
    (kind,) = struct.unpack(">H", query[at + 1 : at + 3])
    name = ".".join(labels).lower()
    addresses = names.get(name.removesuffix(_SUFFIX))
    found = addresses if kind == _A and addresses else []
    code = _NO_NAME if addresses is None else 0
    head = query[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(found), 0, 0)
    # 0xC00C points to the name in the question.
    records = [struct.pack(">HHHIH", 0xC00C, _A, 1, _TTL_S, 4) + IPv4Address(ip).packed for ip in found]
    return head + question + b"".join(records)

"""Egress of the NetworkPolicies of manifest.yaml: DNS, workers, API servers, and no cloud metadata."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from tests.deploy.cluster import GATEWAY, WORKER, container, only


def egress(name: str) -> list[dict[str, Any]]:
    spec = only("NetworkPolicy", name)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    rules: list[dict[str, Any]] = spec["egress"]
    return rules


def is_let_out(name: str, address: str, port: int, protocol: str = "TCP") -> bool:
    """Return whether a policy lets a pod connect to an address outside of the cluster.

    Source: k8s.io/api networking/v1 types.go: rules are alternatives, and so are the peers and ports of one.
    """
    found = ipaddress.ip_address(address)
    for rule in egress(name):
        assert rule["to"], "a rule without peers lets out to everywhere"
        is_port = any((p.get("port"), p.get("protocol", "TCP")) == (port, protocol) for p in rule["ports"])
        for block in [peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer]:
            network = ipaddress.ip_network(block["cidr"])
            excepted = [ipaddress.ip_network(part) for part in block.get("except", ())]
            assert all(part.version == network.version and part.subnet_of(network) for part in excepted)  # type: ignore[arg-type]
            if is_port and found in network and not any(found in part for part in excepted):
                return True
    return False


@pytest.mark.parametrize("port", [53, 80, 443, 6443, 8443, 50051])
@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.0.1", "169.254.255.255", "127.0.0.1", "127.255.255.254"),
        *("::1", "fe80::1", "febf::1", "fd00:ec2::254"),
    ],
)
def test_link_local_and_loopback_addresses_are_not_reached(address: str, port: int) -> None:
    assert not is_let_out(GATEWAY, address, port)


@pytest.mark.parametrize("address", ["10.0.0.1", "192.0.2.1", "2001:db8::1", "fd12:3456::1"])
def test_api_servers_are_reached_and_other_ports_are_not(address: str) -> None:
    assert [port for port in (80, 443, 6443, 10250) if is_let_out(GATEWAY, address, port)] == [443, 6443]


def test_dns_and_workers_are_reached() -> None:
    pods = [(peer, rule["ports"]) for rule in egress(GATEWAY) for peer in rule["to"] if "ipBlock" not in peer]
    (dns, dns_ports), (workers, worker_ports) = pods
    assert dns["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}
    assert dns_ports == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    labels = only("Deployment", WORKER)["spec"]["template"]["metadata"]["labels"]
    assert workers == {"podSelector": {"matchLabels": labels}}
    assert worker_ports == [{"port": port["name"]} for port in container(WORKER)["ports"]]


def test_workers_connect_to_nothing() -> None:
    assert egress(WORKER) == []

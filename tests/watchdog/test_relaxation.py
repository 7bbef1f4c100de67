"""What the watchdog writes, and what it takes from the messages of an API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import GatewayError
from gateway.pure.core.service_accounts import service_account
from gateway.tools.deadlocks.matching import Matcher, fail_entries
from gateway.tools.deadlocks.requests import node_user, request
from gateway.tools.watchdog.probe import Probe, sight_of
from gateway.tools.watchdog.relaxation import (
    ANNOTATION,
    CONDITION,
    applied,
    expression_of,
    fail_names,
    is_written,
    services_of,
    stored_in,
)
from gateway.tools.watchdog.state import Stored
from tests.deadlocks.kit import entry, registration, rule

if TYPE_CHECKING:
    from gateway.tools.deadlocks.model import Request

Json = dict[str, Any]

NAMES = {"fail.admission-gateway.io"}
CALL = (
    'Internal error occurred: failed calling webhook "fail.admission-gateway.io": failed to call webhook: '
    'Post "https://a.b.svc:443/validate?timeout=10s": '
)


def written(**metadata: str) -> Json:
    made = registration(
        entry(rule("*/*")),
        entry(rule("*/*"), name="open.admission-gateway.io", failurePolicy="Ignore"),
        entry(
            rule("*/*"), name="other.example.com", clientConfig={"url": "https://other.example.com/validate"}
        ),
    )
    made["metadata"].update(resourceVersion="7", **metadata)
    return made


def test_only_the_gateways_own_entries_with_fail_get_the_condition() -> None:
    assert fail_names(written()) == ["fail.admission-gateway.io"]
    assert services_of(written()) == [("policies", "gateway")]
    made = applied(written(), Stored("Exempt", 1, 1), "true")
    condition = {"name": CONDITION, "expression": "true"}
    assert made["webhooks"] == [{"name": "fail.admission-gateway.io", "matchConditions": [condition]}]
    assert made["metadata"]["resourceVersion"] == "7"
    closed = applied(written(), Stored("Closed", 2, 1), "")
    assert "webhooks" not in closed
    assert Stored.parse(closed["metadata"]["annotations"][ANNOTATION]) == Stored("Closed", 2, 1)


def test_an_entry_that_came_later_is_not_written_yet() -> None:
    document = written()
    document["webhooks"][0]["matchConditions"] = [{"name": CONDITION, "expression": "a"}]
    assert is_written(document, "a")
    # Somebody has removed the annotation: it is relaxed all the same, and will be restored.
    assert stored_in(document).step == "Exempt"
    assert not is_written(document, "b")
    document["webhooks"].append(entry(rule("pods"), name="new.admission-gateway.io"))
    assert not is_written(document, "a")


NODE = node_user()
POD_OF_SHOP = request(
    "CREATE", "", "pods", namespace="shop", user=service_account("replicaset-controller"), labels={}
)
POD_OF_CNI = request(
    "CREATE", "", "pods", namespace="calico", user=service_account("daemon-set-controller"), labels={}
)
POD_STATUS = request("UPDATE", "", "pods/status", namespace="shop", name="a", user=NODE, labels={})
NODE_ITSELF = request("CREATE", "", "nodes", name="node", user=NODE, labels={})
LEASE = request(
    "UPDATE",
    "coordination.k8s.io",
    "leases",
    namespace="other",
    name="a",
    user=("system:kube-controller-manager", ("system:authenticated",)),
    labels={},
)
CLUSTER_ROLE = request(
    "CREATE",
    "rbac.authorization.k8s.io",
    "clusterroles",
    name="a",
    user=("alice", ("system:authenticated",)),
    labels={},
)


@pytest.mark.parametrize(
    ("of_request", "is_sent"),
    [
        (POD_OF_SHOP, True),
        (CLUSTER_ROLE, True),
        (POD_OF_CNI, False),
        (POD_STATUS, False),
        (NODE_ITSELF, False),
        (LEASE, False),
    ],
    ids=["Pod of a shop", "role of a person", "Pod of the network", "status by a node", "node", "lease"],
)
def test_exempt_leaves_out_what_the_cluster_itself_needs(of_request: Request, is_sent: bool) -> None:
    for step, expected in (("Exempt", is_sent), ("Ignore", False)):
        expression = expression_of(step, ("calico",), "probe")  # type: ignore[arg-type]
        document = registration(
            entry(rule("*/*"), matchConditions=[{"name": CONDITION, "expression": expression}])
        )
        found = fail_entries([document])
        assert not found[0].has_unread_conditions
        assert bool(Matcher(found, {}).refusing(of_request)) is expected


@pytest.mark.parametrize(
    ("status", "message", "sight"),
    [
        (201, "", "answered"),
        (409, "already exists", "answered"),
        (403, 'admission webhook "fail.admission-gateway.io" denied the request: no worker', "answered"),
        (500, f"{CALL}dial tcp 127.0.0.1:1: connect: connection refused", "unreachable"),
        (500, f'{CALL}no endpoints available for service "b"', "unreachable"),
        (500, f"{CALL}tls: failed to verify certificate: x509: unknown authority", "unreachable"),
        (500, f"{CALL}context deadline exceeded", "timeout"),
        (500, f"{CALL}dial tcp 10.0.0.1:443: i/o timeout", "timeout"),
        (500, f"{CALL}the server is currently unable to handle the request", "slow"),
        (500, CALL.replace("fail.admission-gateway.io", "other.example.com"), "unknown"),
        (429, "too many requests", "slow"),
        (403, 'pods is forbidden: User "a" cannot create resource', "unknown"),
        (0, "connection refused", "unknown"),
    ],
)
def test_a_message_says_who_is_away(status: int, message: str, sight: str) -> None:
    assert sight_of(status, message, NAMES) == sight


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "expected an object with apiVersion, kind, name and namespace"),
        (
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "namespace": "b"}},
            "namespaced, built-in",
        ),
        (
            {"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "a", "namespace": "b"}},
            "namespaced, built-in",
        ),
    ],
)
def test_an_object_that_cannot_be_a_probe_is_refused(document: Json, message: str) -> None:
    with pytest.raises(GatewayError, match=message):
        Probe(document)


def test_a_probe_is_created_in_a_dry_run() -> None:
    metadata = {"name": "probe", "namespace": "watch"}
    assert Probe({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).path == (
        "/api/v1/namespaces/watch/pods?dryRun=All"
    )

"""Policies that move to a real API server and back, while requests that they decide go on."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.cluster import NAMESPACE
from tests.e2e.objects import pod
from tests.e2e.placed_policies import moved
from tests.e2e.placing import Placing
from tests.e2e.policy_comparison import Comparison
from tests.e2e.policy_subjects import CONTROLS, MUTATING, VALIDATING
from tests.e2e.record import differences, furnished, stored, version_of
from tests.e2e.replicas import Replicas
from tests.e2e.setups import REGISTRATIONS, rule
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.e2e.policy_subjects import Subject
    from tests.kit import GatewayProcess

NAME: Final = "placement"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}-placement"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
PLURALS: Final = {
    POLICY: "validatingadmissionpolicies",
    BINDING: "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}


def documents(space: str) -> list[dict[str, Any]]:
    """Return a policy that refuses host networks in *space*, one that labels its pods, and their bindings."""
    match = {
        "resourceRules": [rule("pods", "CREATE")],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}},
    }
    label = 'Object{metadata: Object.metadata{labels: {"tier": "gold"}}}'
    specs: list[tuple[str, dict[str, Any]]] = [
        (
            POLICY,
            {
                "matchConstraints": match,
                "validations": [
                    {"expression": "!has(object.spec.hostNetwork)", "message": "no host network"}
                ],
            },
        ),
        (BINDING, {"policyName": NAME, "validationActions": ["Deny"]}),
        (
            "MutatingAdmissionPolicy",
            {
                "matchConstraints": match,
                "reinvocationPolicy": "IfNeeded",
                "mutations": [
                    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}
                ],
            },
        ),
        ("MutatingAdmissionPolicyBinding", {"policyName": NAME}),
    ]
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": NAME}}
    return [{**head, "kind": kind, "spec": spec} for kind, spec in specs]


class Traffic:
    """Creates of pods, one after another, and what was wrong with their answers."""

    def __init__(self, cluster: Cluster, space: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{space}/pods?dryRun=All"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0
        self.wrong: list[str] = []

    def create(self, **spec: Any) -> Answer:
        return self._cluster.api.create(self._path, pod("web-", **spec))

    def refusal(self) -> str:
        """Return why a pod with the host network is refused."""
        answer = self.create(hostNetwork=True)
        return "" if answer.status == 201 else answer.message

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._create_both()
        finally:
            self._cluster.api.close()

    def _create_both(self) -> None:
        if "no host network" not in (refusal := self.refusal()):
            self.wrong.append(f"admitted, or refused otherwise: {refusal}")
        answer = self.create()
        if answer.status != 201 or answer.document["metadata"].get("labels") != {"tier": "gold"}:
            self.wrong.append(f"not labelled: {answer}")
        self.count += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


def path_of(kind: str, name: str = NAME) -> str:
    return f"{REGISTRATIONS}/{PLURALS[kind]}/{name}"


def states(setup: Placing, text: str) -> int:
    """Return how often the log says *text* of a policy."""
    return setup.gateway.log.count(text)


class Replicated(Placing, Replicas):
    """Two replicas behind one Service."""


@pytest.fixture(params=[Placing])
def served(
    request: pytest.FixtureRequest, cluster: Cluster, namespace: str, tmp_path: Path
) -> Iterator[Placing]:
    if cluster.binaries.version < "v1.36":
        pytest.skip("the API server has no MutatingAdmissionPolicies")
    with request.param(cluster, tmp_path, documents(namespace)) as setup:
        yield setup
        for kind in PLURALS:
            cluster.api.delete(path_of(kind))


def test_no_request_is_unchecked_while_policies_move_there_and_back(
    cluster: Cluster, served: Placing, namespace: str
) -> None:
    traffic = Traffic(cluster, namespace)
    eventually(lambda: "no host network" in traffic.refusal())
    with traffic.going_on():
        eventually(lambda: states(served, ": the API server evaluates it") == 2)
        # Changed and deleted by others: written again, and evaluated meanwhile.
        cluster.api.patch(path_of(POLICY), {"spec": {"failurePolicy": "Ignore"}})
        cluster.api.delete(path_of("MutatingAdmissionPolicyBinding"))
        eventually(lambda: states(served, "and is written again") == 2)
        eventually(lambda: states(served, ": the API server evaluates it") == 4)
        assert served.is_registered_for_pods()
        served.apply_registration()
        assert not served.is_registered_for_pods()
        before = traffic.count
        eventually(lambda: traffic.count > before + 5)
        served.place("Gateway")
        # It is not deleted before the gateway is registered for it.
        eventually(lambda: "until the gateway is registered for it" in served.gateway.log)
        assert cluster.api.get(path_of(POLICY)).status == 200
        served.apply_registration()
        assert served.is_registered_for_pods()
        eventually(lambda: states(served, ": the gateway evaluates it") == 2)
    # The binding of a mutation that another program deletes is gone for a moment.
    assert [one for one in traffic.wrong if "labelled" not in one] == []
    for kind in PLURALS:
        assert cluster.api.get(path_of(kind)).status == 404
    assert "Traceback" not in served.gateway.log


@pytest.mark.parametrize("served", [Replicated], indirect=True)
def test_another_replica_writes_when_the_one_with_the_lease_has_ended(
    cluster: Cluster, served: Replicated, namespace: str
) -> None:
    def has_lease(gateway: GatewayProcess) -> bool:
        return f"-{gateway.child.pid}-" in cluster.api.get(LEASE).document["spec"]["holderIdentity"]

    traffic = Traffic(cluster, namespace)
    eventually(lambda: "no host network" in traffic.refusal())
    with traffic.going_on():
        eventually(lambda: all(served.are_in_api_server(each) for each in served.replicas))
        served.apply_registration()
        assert not served.is_registered_for_pods()
        (ended,) = filter(has_lease, served.replicas)
        served.forget(ended)
        ended.signal(signal.SIGKILL)
        (other,) = served.replicas
        # Written again by the other one, which has to wait for the Lease.
        cluster.api.patch(path_of(POLICY), {"spec": {"failurePolicy": "Ignore"}})
        eventually(lambda: "and is written again" in other.log)
        assert has_lease(other)
        eventually(lambda: served.are_in_api_server(other))
        served.place("Gateway")
        eventually(lambda: "until the gateway is registered for it" in other.log)
        served.apply_registration()
        eventually(lambda: not served.states(other))
    assert traffic.wrong == []
    for kind in PLURALS:
        assert cluster.api.get(path_of(kind)).status == 404
    assert "Traceback" not in other.log


@pytest.mark.parametrize("subject", [VALIDATING, CONTROLS, MUTATING], ids=lambda each: each.name)
def test_a_policy_that_moves_has_the_outcomes_of_the_gateway(
    cluster: Cluster, widgets: None, subject: Subject
) -> None:
    """The gateway has those that are recorded: ``tests/recorded/test_placed_policies.py``."""
    if subject is MUTATING and cluster.binaries.version < "v1.36":
        pytest.skip("the API server has no MutatingAdmissionPolicies")
    version = version_of(cluster)
    scenarios = [written for _, written in moved(subject, version)]
    comparison = Comparison(
        cluster, subject.name, scenarios, subject.canary, with_objects=subject is MUTATING
    )
    with furnished(cluster, subject):
        found = comparison.natively()
    assert {name for name, _ in found} == {one.name for one in scenarios}
    with furnished(cluster, subject):
        for scenario in scenarios:
            for number, operation in enumerate(scenario.operations):
                seen, own = found[scenario.name, number], comparison.perform(operation).warnings
                warnings = tuple(each for each in seen.warnings if each not in own)
                found[scenario.name, number] = replace(seen, warnings=warnings)
    differing = differences(found, stored(subject, version).operations, version)
    assert differing == [], "\n".join(map(str, differing))

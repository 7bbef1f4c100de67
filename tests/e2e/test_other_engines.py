"""Policies of Kyverno and Gatekeeper decide in the gateway as in Kyverno and Gatekeeper.

One API server has Kyverno's own program, one has Gatekeeper's, and one has a gateway with the same documents.
Compared are the code, the message, the warnings and the stored object of each operation.

Left out of the comparison, because the documentation says that they differ: the order of denials, and what
joins them (a line each in the gateway; a semicolon in Kyverno). Warnings have no order either.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.server.serving.devcert import make_development_certificate
from loadtest.peers.clustered import GatekeeperCel, KyvernoCel
from loadtest.peers.programs import build
from loadtest.peers.setups import Bed
from tests.e2e.bench_peers import SERVICE, webhook
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.engine_scenarios import (
    CANARIES,
    DELETIONS,
    GATEKEEPER,
    KYVERNO,
    READ,
    READING,
    SCENARIOS,
    STEPS,
    Scenario,
    Step,
    of_engine,
)
from tests.e2e.policy_comparison import Policies, stable
from tests.e2e.setups import REGISTRATIONS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.compare import Operation

    Json = dict[str, Any]

DENIAL: Final = re.compile(r'^admission webhook "[^"]+" denied the request: ')
DRAWN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BETWEEN: Final = re.compile(r"(?:; |\n)(?=Policy )|\n(?=\[)")
"""What joins the denials of several policies and constraints."""


@dataclass(frozen=True)
class Seen:
    """What a user sees of an operation."""

    status: int
    reason: str
    denials: tuple[str, ...]
    warnings: tuple[str, ...]
    stored: Json | None


Outcomes = dict[tuple[str, int], Seen]
"""By scenario and number of the operation."""


class Kyverno(KyvernoCel):
    """Kyverno with exceptions, which are off by default, and without policies for the API server."""

    flags = (
        *("--enablePolicyException=true", "--exceptionNamespace=*"),
        "--generateValidatingAdmissionPolicy=false",
    )


class _Running:
    """A cluster with the namespaces of *scenarios*, in which their documents are in force."""

    def __init__(self, cluster: Cluster, scenarios: Sequence[Scenario], canaries: Sequence[Scenario]) -> None:
        self._cluster, self._scenarios, self._canaries = cluster, scenarios, canaries

    def make_namespaces(self) -> None:
        for scenario in (*self._scenarios, *self._canaries):
            named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scenario.name}}
            answer = self._cluster.api.create("/api/v1/namespaces", named)
            assert answer.status == 201, answer

    def outcomes(self) -> Outcomes:
        """Perform all operations when the canaries refuse theirs."""
        self.wait()
        return {
            (scenario.name, number): self._seen_in_time(scenario, number)
            for scenario in self._scenarios
            for number in range(len(scenario.operations))
        }

    def wait(self) -> None:
        """Wait until the canaries refuse their operations."""
        for canary in self._canaries:
            eventually(partial(self._refuses, canary), canary.name)

    def step(self, step: Step) -> None:
        """Change the cluster as *step* says."""
        for change in step.changes:
            answer = self._perform(READING, change)
            assert answer.status < 300, answer

    def after(self, step: Step) -> Outcomes:
        """Perform the operations of *step*."""
        return {
            (READING.name, number): self.seen(READING, operation)
            for number, operation in enumerate(step.operations)
        }

    def _refuses(self, canary: Scenario) -> bool:
        return DENIAL.match(self._perform(canary, canary.operations[0]).message) is not None

    def _perform(self, scenario: Scenario, operation: Operation) -> Answer:
        path = operation.path.replace("{namespace}", scenario.name)
        api = self._cluster.user(operation.user)
        return api.request(operation.method, path, operation.document, operation.content_type)

    def _seen_in_time(self, scenario: Scenario, number: int) -> Seen:
        operation, status = scenario.operations[number], scenario.awaited.get(number)
        if status is not None:
            what = f"{scenario.name} {number}: {status}"
            eventually(lambda: self._perform(scenario, operation).status == status, what)
        return self.seen(scenario, operation)

    def seen(self, scenario: Scenario, operation: Operation) -> Seen:
        """Perform *operation* of *scenario*."""
        answer = self._perform(scenario, operation)
        is_denied = answer.status >= 400
        text = DENIAL.sub("", answer.message) if is_denied else ""
        return Seen(
            answer.status,
            answer.document.get("reason", "") if is_denied else "",
            tuple(sorted(BETWEEN.split(text))),
            tuple(sorted(answer.warnings)),
            _comparable(stable(answer.document)),
        )


@pytest.fixture(scope="module")
def behind_gateway(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What users see of a gateway with the documents of all engines."""
    folder = tmp_path_factory.mktemp("gateway")
    with Cluster(obtain(VERSIONS[0]), folder / "cluster") as cluster:
        running = _Running(cluster, SCENARIOS, CANARIES)
        running.make_namespaces()
        documents = [document for each in (*SCENARIOS, *CANARIES) for document in each.documents]
        with Policies(cluster, folder, documents):
            return running.outcomes()


def _comparable(document: Json | None) -> Json | None:
    """Return *document* without the time of its deletion, and without what the API server draws for a Job."""
    if document is not None:
        document["metadata"].pop("deletionTimestamp", None)
    compared: Json | None = json.loads(DRAWN_ID.sub("DRAWN", json.dumps(document)))
    return compared


def _assert_equal(found: Outcomes, expected: Outcomes) -> None:
    lines = [
        f"{scenario} {number}, {name}: {getattr(found[scenario, number], name)!r}, expected {value!r}"
        for (scenario, number), seen in expected.items()
        for name, value in vars(seen).items()
        if getattr(found[scenario, number], name) != value
    ]
    if lines:
        pytest.fail("\n".join(lines))


def _bed(stack: ExitStack, folder: Path) -> tuple[Bed, Cluster]:
    cluster = stack.enter_context(Cluster(obtain(VERSIONS[0]), folder / "cluster"))
    return Bed(stack, folder, *make_development_certificate(folder / "state"), clusters=[cluster]), cluster


def test_policies_of_kyverno_decide_as_in_kyverno(tmp_path: Path, behind_gateway: Outcomes) -> None:
    build("kyverno")
    scenarios, canaries = of_engine(SCENARIOS, *KYVERNO), of_engine(CANARIES, *KYVERNO)
    with ExitStack() as stack:
        bed, cluster = _bed(stack, tmp_path)
        subject = Kyverno()
        subject.start(bed)
        running = _Running(cluster, scenarios, canaries)
        running.make_namespaces()
        subject.create(*(document for each in (*scenarios, *canaries) for document in each.documents))
        expected = running.outcomes()
    _assert_equal(behind_gateway, expected)


def test_constraints_decide_as_in_gatekeeper(tmp_path: Path, behind_gateway: Outcomes) -> None:
    build("gatekeeper")
    scenarios, canaries = of_engine(SCENARIOS, *GATEKEEPER), of_engine(CANARIES, *GATEKEEPER)
    with ExitStack() as stack:
        bed, cluster = _bed(stack, tmp_path)
        subject = Gatekeeper()
        server = subject.start(bed)
        running = _Running(cluster, scenarios, canaries)
        running.make_namespaces()
        documents = [document for each in (*scenarios, *canaries) for document in each.documents]
        # Constraints have kinds that Gatekeeper makes of the templates.
        for is_constraint in (False, True):
            subject.create(
                *(each for each in documents if (each["kind"] != "ConstraintTemplate") == is_constraint)
            )
        constraints = sum(each["kind"] != "ConstraintTemplate" for each in documents)
        eventually(lambda: _taken(cluster) == constraints, "the constraints in force")
        cluster.add_service(SERVICE)
        registration = registered(webhook("/v1/admit", server, tmp_path))
        path = f"{REGISTRATIONS}/validatingwebhookconfigurations"
        assert cluster.api.create(path, registration).status == 201
        expected = running.outcomes()
    _assert_equal(behind_gateway, expected)


def test_policies_that_read_objects_decide_as_in_kyverno(tmp_path: Path) -> None:
    build("kyverno")
    canaries = of_engine(CANARIES, "policies.kyverno.io")
    documents = [document for each in (READING, *canaries) for document in each.documents]
    with ExitStack() as stack:
        bed, cluster = _bed(stack, tmp_path)
        subject = Kyverno()
        subject.start(bed)
        running = _Running(cluster, [READING], canaries)
        running.make_namespaces()
        subject.create(*documents)
        running.wait()
        expected = []
        for step in STEPS:
            running.step(step)
            expected.append(running.after(step))
    statuses = [[seen.status for seen in outcomes.values()] for outcomes in expected]
    # Otherwise nothing would be compared.
    assert len({tuple(each) for each in statuses}) >= 3, statuses
    with Cluster(obtain(VERSIONS[0]), tmp_path / "second") as cluster:
        running = _Running(cluster, [READING], canaries)
        running.make_namespaces()
        with Policies(cluster, tmp_path / "gateway", documents, reads=READ):
            running.wait()
            for number, (step, outcomes) in enumerate(zip(STEPS, expected, strict=True)):
                running.step(step)
                found: Outcomes = {}

                def is_equal(step: Step = step, outcomes: Outcomes = outcomes) -> bool:
                    nonlocal found
                    found = running.after(step)
                    return found == outcomes

                try:
                    eventually(is_equal, f"the decisions after step {number}")
                except AssertionError:
                    _assert_equal(found, outcomes)
                    raise


def _taken(cluster: Cluster) -> int:
    """Return how many constraints Gatekeeper says that it enforces, or that it cannot enforce."""
    found = cluster.api.get("/apis/status.gatekeeper.sh/v1beta1/constraintpodstatuses").document["items"]
    return sum(bool(each["status"].get("enforced") or each["status"].get("errors")) for each in found)


class Gatekeeper(GatekeeperCel):
    """Gatekeeper without the templates of the comparison of speed."""

    validates = False


def registered(document: Json) -> Json:
    """Return Gatekeeper's registration: that of its manifest, for DELETE too in the namespace ``DELETIONS``.

    *document* is a registration with the address of the program.
    """
    (only,) = document["webhooks"]
    every = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*", "deployments/scale"]}
    rules = [{**every, "operations": ["CREATE", "UPDATE"]}]
    only |= {"rules": rules, "matchPolicy": "Exact", "timeoutSeconds": 30}
    here = {"matchLabels": {"kubernetes.io/metadata.name": DELETIONS}}
    deletes = {
        **only,
        "name": "deletes.bench.test",
        "rules": [{**every, "operations": ["DELETE"]}],
        "namespaceSelector": here,
    }
    return {**document, "webhooks": [only, deletes]}

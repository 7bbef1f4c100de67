"""Policies of Kyverno and Gatekeeper decide in the gateway as in Kyverno and Gatekeeper.

One API server has Kyverno's own program, one has Gatekeeper's, and one has a gateway with the same documents.
Compared are the code, the message, the warnings and the stored object of each operation.

Left out of the comparison, because the documentation says that they differ: the order of denials, and what
joins them (a line each in the gateway; a semicolon in Kyverno). Warnings have no order either.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from loadtest.peers.clustered import KyvernoCel
from loadtest.peers.programs import build
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.engine_comparison import Gatekeeper, Outcomes, Running, assert_equal, bed, register, taken
from tests.e2e.engine_scenarios import (
    CANARIES,
    DELETIONS,
    GATEKEEPER,
    KYVERNO,
    READ,
    READING,
    SCENARIOS,
    STEPS,
    Step,
    of_engine,
)
from tests.e2e.policy_comparison import Policies
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


class Kyverno(KyvernoCel):
    """Kyverno with exceptions, which are off by default, and without policies for the API server."""

    flags = (
        *("--enablePolicyException=true", "--exceptionNamespace=*"),
        "--generateValidatingAdmissionPolicy=false",
    )


@pytest.fixture(scope="module")
def behind_gateway(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What users see of a gateway with the documents of all engines."""
    folder = tmp_path_factory.mktemp("gateway")
    with Cluster(obtain(VERSIONS[0]), folder / "cluster") as cluster:
        running = Running(cluster, SCENARIOS, CANARIES)
        running.make_namespaces()
        documents = [document for each in (*SCENARIOS, *CANARIES) for document in each.documents]
        with Policies(cluster, folder, documents):
            return running.outcomes()


def test_policies_of_kyverno_decide_as_in_kyverno(tmp_path: Path, behind_gateway: Outcomes) -> None:
    build("kyverno")
    scenarios, canaries = of_engine(SCENARIOS, *KYVERNO), of_engine(CANARIES, *KYVERNO)
    with ExitStack() as stack:
        subjects, cluster = bed(stack, tmp_path)
        subject = Kyverno()
        subject.start(subjects)
        running = Running(cluster, scenarios, canaries)
        running.make_namespaces()
        subject.create(*(document for each in (*scenarios, *canaries) for document in each.documents))
        expected = running.outcomes()
    assert_equal(behind_gateway, expected)


def test_constraints_decide_as_in_gatekeeper(tmp_path: Path, behind_gateway: Outcomes) -> None:
    build("gatekeeper")
    scenarios, canaries = of_engine(SCENARIOS, *GATEKEEPER), of_engine(CANARIES, *GATEKEEPER)
    with ExitStack() as stack:
        subjects, cluster = bed(stack, tmp_path)
        subject = Gatekeeper()
        server = subject.start(subjects)
        running = Running(cluster, scenarios, canaries)
        running.make_namespaces()
        documents = [document for each in (*scenarios, *canaries) for document in each.documents]
        # Constraints have kinds that Gatekeeper makes of the templates.
        for is_constraint in (False, True):
            subject.create(
                *(each for each in documents if (each["kind"] != "ConstraintTemplate") == is_constraint)
            )
        constraints = sum(each["kind"] != "ConstraintTemplate" for each in documents)
        eventually(lambda: taken(cluster) == constraints, "the constraints in force")
        register(cluster, server, tmp_path, [DELETIONS])
        expected = running.outcomes()
    assert_equal(behind_gateway, expected)


def test_policies_that_read_objects_decide_as_in_kyverno(tmp_path: Path) -> None:
    build("kyverno")
    canaries = of_engine(CANARIES, "policies.kyverno.io")
    documents = [document for each in (READING, *canaries) for document in each.documents]
    with ExitStack() as stack:
        subjects, cluster = bed(stack, tmp_path)
        subject = Kyverno()
        subject.start(subjects)
        running = Running(cluster, [READING], canaries)
        running.make_namespaces()
        subject.create(*documents)
        running.wait()
        expected = []
        for step in STEPS:
            running.change(READING, step.changes)
            expected.append(running.seen_of(READING, step.operations))
    statuses = [[seen.status for seen in outcomes.values()] for outcomes in expected]
    # Otherwise nothing would be compared.
    assert len({tuple(each) for each in statuses}) >= 3, statuses
    with Cluster(obtain(VERSIONS[0]), tmp_path / "second") as cluster:
        running = Running(cluster, [READING], canaries)
        running.make_namespaces()
        with Policies(cluster, tmp_path / "gateway", documents, reads=READ):
            running.wait()
            for number, (step, outcomes) in enumerate(zip(STEPS, expected, strict=True)):
                running.change(READING, step.changes)
                found: Outcomes = {}

                def is_equal(step: Step = step, outcomes: Outcomes = outcomes) -> bool:
                    nonlocal found
                    found = running.seen_of(READING, step.operations)
                    return found == outcomes

                try:
                    eventually(is_equal, f"the decisions after step {number}")
                except AssertionError:
                    assert_equal(found, outcomes)
                    raise

"""Rules in Kyverno's own language decide behind the gateway, in its worker, as in Kyverno itself.

One API server has Kyverno's own program, and one has a gateway with the same documents and the worker.
Compared are the code, the reason, each rule that refuses with its text, the warnings and the stored object of
each operation.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadtest.peers.programs import build
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.engine_comparison import assert_equal, bed
from tests.e2e.kyverno_comparison import (
    Kyverno,
    KyvernoRunning,
    WithWorker,
    build_worker,
    documents_of,
    wait_until_ready,
)
from tests.e2e.kyverno_worker_scenarios import CANARIES, SCENARIOS

if TYPE_CHECKING:
    from tests.e2e.engine_comparison import Outcomes

pytestmark = pytest.mark.timeout(3600)  # seconds: the first run builds Kyverno and its worker


@pytest.fixture(scope="module")
def as_kyverno(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What users see of Kyverno."""
    build("kyverno")
    with ExitStack() as stack:
        subjects, cluster = bed(stack, tmp_path_factory.mktemp("kyverno"))
        subject = Kyverno()
        subject.start(subjects)
        running = KyvernoRunning(cluster, SCENARIOS, CANARIES)
        running.make_namespaces()
        subject.create(*documents_of((*SCENARIOS, *CANARIES)))
        wait_until_ready(cluster)
        return running.outcomes()


def test_rules_decide_in_the_worker_as_in_kyverno(
    tmp_path_factory: pytest.TempPathFactory, as_kyverno: Outcomes
) -> None:
    build_worker()
    folder = tmp_path_factory.mktemp("gateway")
    with Cluster(obtain(VERSIONS[0]), folder / "cluster") as cluster:
        running = KyvernoRunning(cluster, SCENARIOS, CANARIES)
        running.make_namespaces()
        with WithWorker(cluster, folder, (*SCENARIOS, *CANARIES)):
            found = running.outcomes()
    # Kyverno warns of an error under ``Ignore``. The gateway has it in the audit log.
    ignored = ("errors", 2)
    expected = as_kyverno[ignored]
    assert expected.warnings
    assert_equal(found, {**as_kyverno, ignored: replace(expected, warnings=())})

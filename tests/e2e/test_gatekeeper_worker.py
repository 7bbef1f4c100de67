"""The worker of Gatekeeper's own code, behind a gateway, decides as Gatekeeper beside an API server.

One API server has Gatekeeper's own program. Another one has a gateway and the worker with the same documents.
Compared are the code, the reason, the denials, the warnings and the stored object of each operation.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from loadtest.peers.programs import build
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.engine_comparison import Gatekeeper, Outcomes, Running, assert_equal, bed, register, taken
from tests.e2e.gatekeeper_worker_scenarios import CANARIES, LIVE, SCENARIOS, SPACES, WIDER, namespace
from tests.e2e.golang import ROOT, go, kept
from tests.e2e.objects import GROUP, widget_definition
from tests.e2e.policy_comparison import Policies
from tests.kit import Process, free_port, pool_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.e2e.engine_scenarios import Scenario

    Json = dict[str, Any]

pytestmark = pytest.mark.timeout(3600)  # seconds: the first run builds Gatekeeper and its worker

CONSTRAINTS: Final = "constraints.gatekeeper.sh"
ERROR: Final = ("errors", 4)
"""The operation for which the engine has an error."""
STATUSES: Final = "/apis/status.gatekeeper.sh/v1beta1"


def worker() -> str:
    """Return the program of the worker, built from this tree."""
    folders = [ROOT / "workers" / name for name in ("gatekeeper", "engines", "go")]
    found = (each for folder in folders for each in folder.rglob("*") if each.is_file())
    sources = sorted(each for each in found if each.suffix in (".go", ".mod", ".sum"))

    def make(programs: Path) -> None:
        go("build", "-o", str(programs / "gatekeeper"), ".", cwd=folders[0])

    return str(kept("gatekeeper-worker", sources, [], make) / "gatekeeper")


def documents_of(*scenarios: Scenario) -> list[Json]:
    """Return the documents of *scenarios*, in order."""
    return [document for each in scenarios for document in each.documents]


def prepare(cluster: Cluster, running: Running) -> None:
    """Make the namespaces and the kind of custom resources that operations need."""
    done = cluster.kubectl("apply", "--filename=-", stdin=json.dumps(widget_definition()))
    assert done.returncode == 0, done.stderr
    for name, labels in SPACES.items():
        if not name.startswith("excluded"):  # those are scenarios
            assert cluster.api.create("/api/v1/namespaces", namespace(name, **labels)).status == 201
    running.make_namespaces()
    cluster.wait_until_served(f"widgets.{GROUP}")


def put_in_force(cluster: Cluster, gatekeeper: Gatekeeper, documents: Sequence[Json]) -> None:
    """Create *documents*, and wait until Gatekeeper says that it has them."""
    for is_constraint in (False, True):
        # Their kinds are made of the templates.
        gatekeeper.create(
            *(each for each in documents if each["apiVersion"].startswith(CONSTRAINTS) == is_constraint)
        )
    counts: dict[str, int] = {}
    for each in documents:
        group = each["apiVersion"].partition(".")[0]
        counts[group] = counts.get(group, 0) + 1
    eventually(lambda: taken(cluster) == counts["constraints"], "the constraints in force")
    for plural, group in (("mutatorpodstatuses", "mutations"), ("expansiontemplatepodstatuses", "expansion")):
        eventually(partial(is_complete, cluster, plural, counts[group]), plural)


def is_complete(cluster: Cluster, plural: str, count: int) -> bool:
    """Whether Gatekeeper has written *count* statuses of its own kind *plural*."""
    return len(cluster.api.get(f"{STATUSES}/{plural}").document["items"]) == count


@pytest.fixture(scope="module")
def by_gatekeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """What users see of Gatekeeper itself."""
    build("gatekeeper")
    folder = tmp_path_factory.mktemp("gatekeeper")
    scenarios = (*SCENARIOS, *LIVE)
    with ExitStack() as stack:
        subjects, cluster = bed(stack, folder)
        gatekeeper = Gatekeeper()
        server = gatekeeper.start(subjects)
        running = Running(cluster, scenarios, CANARIES)
        prepare(cluster, running)
        put_in_force(cluster, gatekeeper, documents_of(*scenarios, *CANARIES))
        register(cluster, server, folder, WIDER)
        outcomes = running.outcomes()
        yield outcomes


class WithWorker(Policies):
    """A gateway and the worker with the same documents in files."""

    def __init__(self, cluster: Cluster, folder: Path, documents: list[Json], *, worker: str) -> None:
        super().__init__(cluster, folder, documents)
        self._program, self._worker_port = worker, free_port()
        assert self._gateway is not None
        # A busy machine must not decide.
        engine = {"pool": "gatekeeper", "failurePolicy": "Fail", "timeoutSeconds": 30}
        self._gateway["policies"] = {"engines": {"gatekeeper": engine}}

    def write_configuration(self) -> None:
        super().write_configuration()
        pool = pool_document("gatekeeper", f"127.0.0.1:{self._worker_port}")
        (self.config / "pool.yaml").write_text(pool)

    def start_worker(self) -> Any:
        found = super().start_worker()
        self.start_engine()
        return found

    def start_engine(self) -> None:
        """Start the worker of Gatekeeper's code."""
        self.engine = Process(
            *(self._program, "--listen", f"127.0.0.1:{self._worker_port}"),
            *("--policies", str(self.config)),
        )
        self.stack.callback(self.engine.stop)
        self.engine.expect("serving")


def assert_as_in_gatekeeper(found: Outcomes, expected: Outcomes) -> None:
    """Fail with each difference but the documented one: Gatekeeper's error hides all other results."""
    expected = {key: expected[key] for key in found}
    warned = ('[errors-warned] bad: ConfigMap number lacks ["owner"]',)
    assert (expected[ERROR].status, expected[ERROR].warnings, found[ERROR].warnings) == (500, (), warned)
    assert_equal({**found, ERROR: replace(found[ERROR], warnings=())}, expected)


def test_documents_in_files_decide_as_in_gatekeeper(tmp_path: Path, by_gatekeeper: Outcomes) -> None:
    program = worker()
    with Cluster(obtain(VERSIONS[0]), tmp_path / "cluster") as cluster:
        running = Running(cluster, SCENARIOS, CANARIES)
        prepare(cluster, running)
        documents = documents_of(*SCENARIOS, *LIVE, *CANARIES)
        with WithWorker(cluster, tmp_path, documents, worker=program):
            found = running.outcomes()
    assert_as_in_gatekeeper(found, by_gatekeeper)
    drawn = [each for (name, _), each in found.items() if name == "draw"]
    # Otherwise little would be compared.
    assert sum(each.status == 403 for each in drawn) > 50
    assert sum(bool(each.warnings) for each in drawn) > 50
    assert sum("annotations" in each.stored["metadata"] for each in drawn if each.stored is not None) > 50

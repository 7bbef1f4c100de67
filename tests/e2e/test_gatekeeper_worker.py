"""The worker of Gatekeeper's own code, behind a gateway, decides as Gatekeeper beside an API server.

One API server has Gatekeeper's own program. Another one has a gateway and the worker with the same documents.
Compared are the code, the reason, the denials, the warnings and the stored object of each operation.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from loadtest.peers.programs import build
from tests.e2e import charts
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.engine_comparison import (
    Gatekeeper,
    Outcomes,
    Running,
    assert_equal,
    bed,
    register,
    registrations,
    taken,
)
from tests.e2e.gatekeeper_worker_scenarios import (
    CANARIES,
    CHANGING,
    LIVE,
    PROBES,
    SCENARIOS,
    SPACES,
    STEPS,
    WIDER,
    Step,
    namespace,
    summary,
)
from tests.e2e.golang import ROOT, go, kept
from tests.e2e.objects import GROUP, widget_definition
from tests.e2e.policy_comparison import Policies
from tests.e2e.setups import run_manifests
from tests.kit import Process, free_port, pool_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.e2e.engine_scenarios import Scenario

    Json = dict[str, Any]

pytestmark = pytest.mark.timeout(3600)  # seconds: the first run builds Gatekeeper and its worker

CONSTRAINTS: Final = "constraints.gatekeeper.sh"
APPLIED: Final = (
    *("CustomResourceDefinition", "ServiceAccount"),
    *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
)
"""The kinds of the objects of the chart that are made."""
READ: Final = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
VALUES: Final = (
    "--set=engines.gatekeeper.enabled=true",
    # A busy machine must not decide.
    "--set=engines.gatekeeper.failurePolicy=Fail,engines.gatekeeper.timeoutSeconds=30",
    f"--set-json=engines.gatekeeper.extraRules={json.dumps([READ])}",
)
"""Of the chart, with rights on what the SyncSet names."""
ERROR: Final = ("errors", 4)
"""The operation for which the engine has an error."""
ALL: Final = (*SCENARIOS, *LIVE, CHANGING)
"""In a cluster."""
NAMED: Final = re.compile(r"^(wider\.)?(validation|mutation)\.gatekeeper\.sh: ")
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


@dataclass(frozen=True)
class Decided:
    """What users see of Gatekeeper itself."""

    outcomes: Outcomes
    steps: Sequence[Outcomes]
    """Those of the probes after each step."""


@pytest.fixture(scope="module")
def by_gatekeeper(tmp_path_factory: pytest.TempPathFactory) -> Decided:
    """What users see of Gatekeeper itself."""
    build("gatekeeper")
    folder = tmp_path_factory.mktemp("gatekeeper")
    with ExitStack() as stack:
        subjects, cluster = bed(stack, folder)
        gatekeeper = Gatekeeper()
        server = gatekeeper.start(subjects)
        running = Running(cluster, ALL, CANARIES)
        prepare(cluster, running)
        put_in_force(cluster, gatekeeper, documents_of(*ALL, *CANARIES))
        register(cluster, server, folder, WIDER)
        return Decided(running.outcomes(), [after(cluster, running, step) for step in STEPS])


def after(cluster: Cluster, running: Running, step: Step) -> Outcomes:
    """Return the answers to the probes, when *step* is in force."""
    found: Outcomes = {}

    def said() -> tuple[str, ...]:
        found.update(running.seen_of(CHANGING, PROBES))
        return tuple(map(summary, found.values()))

    change(cluster, step)
    try:
        eventually(lambda: said() == step.said)
    except AssertionError:
        pytest.fail(f"after {step}:\n{said()}")
    return found


def change(cluster: Cluster, step: Step) -> None:
    """Change the documents of the cluster."""

    def error(*command: str, document: Json) -> str:
        done = cluster.kubectl(*command, "--filename=-", stdin=json.dumps(document))
        return done.stderr if done.returncode else ""

    def is_known(document: Json) -> bool:
        found = error("apply", "--server-side", "--force-conflicts", document=document)
        is_known = "no matches for kind" not in found
        assert not found or not is_known, found
        return is_known

    for each in step.deleted:
        assert error("delete", "--wait=false", document=each) == ""
    for each in step.applied:
        # The kind of a constraint is there some time after its template.
        eventually(partial(is_known, each), f"the kind {each['kind']}")


class WithWorker(Policies):
    """A gateway and the worker with the same documents in files."""

    def __init__(self, cluster: Cluster, folder: Path, documents: list[Json], *, worker: str) -> None:
        super().__init__(cluster, folder, documents)
        self._command, self._worker_port = [worker], free_port()
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
        listen = ("--listen", f"127.0.0.1:{self._worker_port}")
        self.engine = Process(*self._command, *listen, *self._source())
        self.stack.callback(self.engine.stop)
        self.engine.expect("serving")

    def _source(self) -> Sequence[str]:
        return "--policies", str(self.config)


class AllAtOnce(WithWorker):
    """A gateway with Gatekeeper's webhooks, which call the policies of the worker for all documents."""

    def write_configuration(self) -> None:
        super().write_configuration()
        # They are for the worker alone.
        self._documents = self.folder / "documents"
        self._documents.mkdir()
        (self.config / "policies.yaml").rename(self._documents / "policies.yaml")
        for document in registrations(WIDER):
            policy = "mutation" if document["kind"].startswith("Mutating") else "validation"
            for each in document["webhooks"]:
                each["clientConfig"] = {"worker": {"pool": "gatekeeper", "policy": policy}}
                each["admissionReviewVersions"] = ["v1"]
            (self.config / f"{policy}.yaml").write_text(yaml.safe_dump(document))

    def _source(self) -> Sequence[str]:
        return "--policies", str(self._documents)


class InCluster(WithWorker):
    """A gateway and the worker that follow the documents in the cluster, as the chart sets them up."""

    def __init__(self, cluster: Cluster, folder: Path, *, worker: str) -> None:
        super().__init__(cluster, folder, [], worker=worker)
        objects = charts.objects(*VALUES)
        applied = [each for each in objects if each["kind"] in APPLIED and not charts.hooks(each)]
        done = cluster.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(applied))
        assert done.returncode == 0, done.stderr
        (files,) = (
            each["data"] for each in objects if each["kind"] == "ConfigMap" and not charts.hooks(each)
        )
        configuration = yaml.safe_load(files["gateway.yaml"])
        accounts = {
            name: cluster.write_kubeconfig(folder / f"{name}.kubeconfig", token=_token(cluster, name))
            for name in (NAMESPACE, f"{NAMESPACE}-gatekeeper")
        }
        self._account = accounts[f"{NAMESPACE}-gatekeeper"]
        own = {**configuration["kubernetes"], "kubeconfig": str(accounts[NAMESPACE])}
        self._gateway = {"kubernetes": own, "policies": configuration["policies"]}
        (pod,) = (each for each in charts.pods(*VALUES) if each["metadata"]["name"] == self._account.stem)
        (container,) = pod["spec"]["containers"]
        variables = [f"{each['name']}={each['value']}" for each in container["env"]]
        listen = re.compile("--listen=")
        arguments = [each for each in container["args"] if not listen.match(each)]
        self._command = ["env", *variables, worker, *arguments]

    def _source(self) -> Sequence[str]:
        return "--kubeconfig", str(self._account)

    def register(self) -> None:
        """Register the gateway for the objects in the cluster."""
        self.cluster.add_service(self.name)
        done = run_manifests(
            *("--config", self.config, "--service", f"{NAMESPACE}/{self.name}:{self.port}", "--apply"),
            *("--name", self.name, "--ca-file", self.cluster.ca_file),
            *("--kubeconfig", self.cluster.kubeconfig()),
        )
        assert done.returncode == 0, done.stderr
        self._wait_until_in_force()


def _token(cluster: Cluster, account: str) -> str:
    done = cluster.kubectl("create", "token", account, f"--namespace={NAMESPACE}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def assert_as_in_gatekeeper(found: Outcomes, expected: Outcomes) -> None:
    """Fail with each difference but the documented one: Gatekeeper's error hides all other results."""
    expected = {key: expected[key] for key in found}
    warned = ('[errors-warned] bad: ConfigMap number lacks ["owner"]',)
    assert (expected[ERROR].status, expected[ERROR].warnings, found[ERROR].warnings) == (500, (), warned)
    assert_equal({**found, ERROR: replace(found[ERROR], warnings=())}, expected)


def test_documents_in_files_decide_as_in_gatekeeper(tmp_path: Path, by_gatekeeper: Decided) -> None:
    program = worker()
    with Cluster(obtain(VERSIONS[0]), tmp_path / "cluster") as cluster:
        running = Running(cluster, SCENARIOS, CANARIES)
        prepare(cluster, running)
        documents = documents_of(*ALL, *CANARIES)
        with WithWorker(cluster, tmp_path, documents, worker=program):
            found = running.outcomes()
    assert_as_in_gatekeeper(found, by_gatekeeper.outcomes)
    drawn = [each for (name, _), each in found.items() if name == "draw"]
    # Otherwise little would be compared.
    assert sum(each.status == 403 for each in drawn) > 50
    assert sum(bool(each.warnings) for each in drawn) > 50
    assert sum("annotations" in each.stored["metadata"] for each in drawn if each.stored is not None) > 50


def test_the_policies_for_all_documents_decide_as_the_webhooks_of_gatekeeper(
    tmp_path: Path, by_gatekeeper: Decided
) -> None:
    program = worker()
    # Warnings of webhooks are cut, other than those of documents, and these are long.
    scenarios = [each for each in SCENARIOS if not each.name.startswith("shown")]
    with Cluster(obtain(VERSIONS[0]), tmp_path / "cluster") as cluster:
        running = Running(cluster, scenarios, CANARIES)
        prepare(cluster, running)
        with AllAtOnce(cluster, tmp_path, documents_of(*ALL, *CANARIES), worker=program):
            found = running.outcomes()
    # The gateway puts the name of the webhook before the text of its denial.
    unnamed = {
        key: replace(seen, denials=tuple(sorted(NAMED.sub("", each) for each in seen.denials)))
        for key, seen in found.items()
    }
    assert_equal(unnamed, {key: by_gatekeeper.outcomes[key] for key in found})


def is_equal_or_failed(running: Running, expected: Outcomes) -> bool:
    """Whether the answers to the probes are those *expected*; until then each of the others has to fail."""
    found = running.seen_of(CHANGING, PROBES)
    assert_equal(
        {key: expected[key] if seen.status == 500 else seen for key, seen in found.items()}, expected
    )
    return found == expected


def test_documents_in_the_cluster_decide_change_and_survive_restarts(
    tmp_path: Path, by_gatekeeper: Decided
) -> None:
    program = worker()
    with ExitStack() as stack:
        subjects, cluster = bed(stack, tmp_path)
        # Its controllers make the kinds of constraints. It is not registered.
        gatekeeper = Gatekeeper()
        gatekeeper.start(subjects)
        running = Running(cluster, ALL, CANARIES)
        prepare(cluster, running)
        put_in_force(cluster, gatekeeper, documents_of(*ALL, *CANARIES))
        served = stack.enter_context(InCluster(cluster, tmp_path, worker=program))
        assert_as_in_gatekeeper(running.outcomes(), by_gatekeeper.outcomes)
        # An API server that starts may refuse rights that an account has.
        refused = [
            line
            for log in (served.gateway.log, served.engine.log)
            for line in log.splitlines()
            if "forbidden: User" in line
        ]
        assert not refused
        steps = by_gatekeeper.steps
        for number, (step, expected) in enumerate(zip(STEPS, steps, strict=True)):
            if number == 2:
                cluster.restart_api_server()
                assert_equal(running.seen_of(CHANGING, PROBES), steps[1])
            if number == 4:
                served.engine.stop()
                assert {seen.status for seen in running.seen_of(CHANGING, PROBES).values()} == {500}
                served.start_engine()
                eventually(partial(is_equal_or_failed, running, steps[3]), "the worker is called again")
            assert_equal(after(cluster, running, step), expected)
        assert "Traceback" not in served.gateway.log

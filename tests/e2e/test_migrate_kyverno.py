"""A cluster with Kyverno in force moves to the gateway and back, as ``admission-gateway migrate`` says.

Kyverno's own program registers itself, and removes its webhooks when its Deployment is scaled to zero. What a
cluster's controllers do about that Deployment, a thread does here.
"""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.server.serving.devcert import make_development_certificate
from loadtest.peers.clustered import KyvernoCel
from loadtest.peers.programs import build
from loadtest.peers.setups import Bed
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.kubelet.network import missing
from tests.e2e.load import Create, Load
from tests.e2e.objects import config_map
from tests.e2e.test_migrate import (
    LABEL,
    MAPS,
    NAMESPACE,
    Gateway,
    compare,
    create,
    flow,
    names,
    plan,
    run_step,
    unstamped,
)
from tests.kit import ROOT, GatewayProcess, Process, free_port
from tests.languages.toolchains import named
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer

    Json = dict[str, Any]

pytestmark = [
    pytest.mark.timeout(5400),  # seconds: the first run builds Kyverno and its worker
    pytest.mark.skipif(bool(missing()), reason=f"no namespaces: {missing()}"),
]

DENIED: Final = "a map names its owner"
SERVICE: Final = "kyverno-svc.kyverno.svc"
CONTROLLER: Final = "/apis/apps/v1/namespaces/kyverno/deployments/kyverno-admission-controller"


def cluster_policy(name: str, **action: Json) -> Json:
    """A ClusterPolicy with one rule for the ConfigMaps of the namespace."""
    match = {"any": [{"resources": {"kinds": ["ConfigMap"], "namespaces": [NAMESPACE]}}]}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"background": False, "rules": [{"name": name, "match": match, **action}]},
    }


POLICIES: Final = (
    cluster_policy(
        "owners",
        validate={
            "failureAction": "Enforce",
            "message": DENIED,
            "pattern": {"metadata": {"labels": {"owner": "?*"}}},
        },
    ),
    cluster_policy(LABEL, mutate={"patchStrategicMerge": {"metadata": {"labels": {f"+({LABEL})": "yes"}}}}),
)


class Kyverno(KyvernoCel):
    """Kyverno, as often as its Deployment says: once or not at all."""

    flags = ("--generateValidatingAdmissionPolicy=false",)

    def install(self, bed: Bed) -> None:
        """Start it, and follow the Deployment until the stack of *bed* ends."""
        self._bed, self.port = bed, int(self.start(bed).address.rpartition(":")[2])
        self._ended = threading.Event()
        thread = threading.Thread(target=self._follow, daemon=True)
        thread.start()
        bed.stack.callback(thread.join)
        bed.stack.callback(self._ended.set)

    def run(self, bed: Bed, port: int = 0) -> tuple[Process, int]:
        """Start it."""
        self._process, found = super().run(bed, port)
        return self._process, found

    def _follow(self) -> None:
        api, running = self._cluster.api, 1
        while not self._ended.wait(0.2):
            found = api.get(CONTROLLER).document
            wanted, generation = found["spec"]["replicas"], found["metadata"]["generation"]
            if wanted < running:
                self._process.signal(15)
                self._process.wait()
            elif wanted > running:
                self.run(self._bed, self.port)
            if wanted != running or found.get("status", {}).get("observedGeneration") != generation:
                counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
                status = {**dict.fromkeys(counts, wanted), "observedGeneration": generation}
                patch = {"status": status}
                kind = "application/merge-patch+json"
                api.request("PATCH", f"{CONTROLLER}/status", patch, kind)
            running = wanted
        api.close()


class InMountNamespace(Process):
    """A process for which Kyverno's Service has an address, as for a Pod."""

    def __init__(self, *command: str, **options: Any) -> None:
        script = (
            f"mount -t tmpfs tmpfs /srv && echo '127.0.0.1 localhost {SERVICE}' > /srv/hosts && "
            'mount --bind /srv/hosts /etc/hosts && exec "$@"'
        )
        unshare = ("unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh")
        super().__init__(*unshare, *command, **options)


class ResolvingProcess(GatewayProcess, InMountNamespace):
    """A gateway that reaches Kyverno by its Service."""


class ResolvingGateway(Gateway):
    """The same, whose configuration is replaced."""

    kind = ResolvingProcess


class Refused(Load):
    """Creates that violate the policy: each has to be refused, by its message."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.api, f"{MAPS}?dryRun=All", document=config_map("bad-"), clients=2)

    def fault(self, answer: Answer) -> str:
        """Return what is wrong with *answer*; empty if it is the denial."""
        is_denied = answer.status == 400 and DENIED in answer.message
        return "" if is_denied else f"{answer.status}: {answer.message}"


@contextmanager
def kyverno(folder: Path) -> Iterator[tuple[Cluster, Kyverno]]:
    """A cluster in which Kyverno is in force with ``POLICIES``, and objects from before."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(obtain(VERSIONS[0]), folder / "cluster"))
        subject = Kyverno()
        certificates = make_development_certificate(folder / "state")
        subject.install(Bed(stack, folder, *certificates, clusters=[cluster]))
        shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        assert cluster.api.create("/api/v1/namespaces", shop).status == 201
        for number in range(20):
            labels = {"owner": "ann"} if number % 2 else {}
            assert cluster.api.create(MAPS, config_map(f"old-{number}", labels)).status == 201
        subject.create(*POLICIES)
        eventually(lambda: DENIED in create(cluster).message)
        eventually(lambda: not unstamped(create(cluster, owner="ann")))
        yield cluster, subject


def test_kyverno_moves_to_the_gateway_and_back_and_no_create_is_unchecked(tmp_path: Path) -> None:
    build("kyverno")
    language = named("kyverno")
    subprocess.run(language.build, shell=True, cwd=ROOT, check=True)
    with ExitStack() as stack:
        cluster, old = stack.enter_context(kyverno(tmp_path))
        document = config_map("good-", {"owner": "ann"})
        good = Load(cluster.api, f"{MAPS}?dryRun=All", document=document, clients=2, check=unstamped)
        bad = Refused(cluster)
        stack.enter_context(good)
        stack.enter_context(bad)
        out = tmp_path / "migration"
        report = plan(cluster, out)
        (engine,) = report["engines"]
        assert {one["name"]: one["runs"] for one in engine["objects"]} == {
            "owners": "worker",
            LABEL: "worker",
        }
        steps = {one["title"].split()[0].strip(":"): one["commands"] for one in report["steps"]}
        port = free_port()
        for file in out.rglob("workerpools.yaml"):
            file.write_text(file.read_text().replace("127.0.0.1:50052", f"127.0.0.1:{port}"))
        command = [str(ROOT / part) for part in language.run]
        follow = ("--cluster", "--kubeconfig", str(cluster.kubeconfig()))
        process = Process(*command, "--listen", f"127.0.0.1:{port}", *follow)
        stack.callback(process.stop)
        process.expect("serving")

        # The command before forwards this port to Kyverno's Service, whose Pods are not there.
        prove = steps["prove"][-1]
        assert "kyverno/kyverno-svc=127.0.0.1:18443" in prove
        proved = run_step(cluster, prove.replace("127.0.0.1:18443", f"127.0.0.1:{old.port}"))
        assert proved.returncode == 0, proved.stdout + proved.stderr
        assert "equal on" in proved.stdout

        gateway = ResolvingGateway(cluster, tmp_path)
        stack.callback(gateway.stop)
        gateway.use(out / "candidates")
        assert gateway.process is not None
        compare(gateway.process)
        flow(good, bad)
        gateway.use(out / "config")
        flow(good, bad)
        began = monotonic()
        run_all(cluster, steps["remove"])
        eventually(lambda: not names(cluster, "kyverno"))
        good.flows()
        bad.flows()
        ended = monotonic()
        run_all(cluster, steps["the"])
        assert {"kyverno-resource-validating-webhook-cfg", "kyverno-resource-mutating-webhook-cfg"} <= {
            *names(cluster, "kyverno")
        }
        assert not names(cluster, "admission-gateway")
        good.flows()
        bad.flows()
    for load in (good, bad):
        others = [one for one in load.failures if not (began < one.sent_at < ended and is_ending(one))]
        assert not others, others[:5]


def is_ending(one: Create) -> bool:
    """Whether Kyverno did not answer. It removes its webhooks while it ends, and API servers see that later.

    A request at that moment is refused, because the webhooks have Fail.
    """
    return one.status == 500 and "failed calling webhook" in one.message and SERVICE in one.message


def run_all(cluster: Cluster, commands: list[str]) -> None:
    """Run the printed *commands* as they stand; each has to succeed."""
    for command in commands:
        done = run_step(cluster, command)
        assert done.returncode == 0, (command, done.stdout, done.stderr, json.dumps(commands))

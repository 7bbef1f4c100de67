"""A cluster with Gatekeeper in force moves to the gateway and back, as ``admission-gateway migrate`` says.

Creates that violate a constraint and creates that do not are under way at every moment, with failurePolicy
Fail. Each of the former has to be refused, by Gatekeeper or the gateway, and each of the latter admitted with
the change of the mutator.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from loadtest.peers.programs import build
from loadtest.peers.setups import Bed
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.engine_comparison import Gatekeeper
from tests.e2e.load import Load
from tests.e2e.objects import config_map
from tests.e2e.setups import REGISTRATIONS
from tests.kit import ROOT, GatewayProcess, Process, free_port, run_command
from tests.languages.toolchains import named
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.e2e.client import Answer

    Json = dict[str, Any]

pytestmark = pytest.mark.timeout(3600)  # seconds: the first run builds Gatekeeper and its worker

NAMESPACE: Final = "shop"
MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DENIED: Final = "[owners] missing labels: owner"
LABEL: Final = "stamped"
KIND: Final = "NeedsLabels"


def template(code: Json) -> Json:
    """The template of a constraint that requires labels."""
    schema = {"type": "object", "properties": {"labels": {"type": "array", "items": {"type": "string"}}}}
    return {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": KIND.lower()},
        "spec": {
            "crd": {"spec": {"names": {"kind": KIND}, "validation": {"openAPIV3Schema": schema}}},
            "targets": [{"target": "admission.k8s.gatekeeper.sh", "code": [code]}],
        },
    }


REGO: Final = """\
package needslabels

violation[{"msg": msg}] {
  required := {label | label := input.parameters.labels[_]}
  given := {label | input.review.object.metadata.labels[label]}
  missing := required - given
  count(missing) > 0
  msg := sprintf("missing labels: %v", [concat(", ", missing)])
}
"""
CEL: Final = {
    "variables": [
        {
            "name": "missing",
            "expression": "variables.params.labels.filter(name, "
            "!(name in variables.anyObject.metadata.?labels.orValue({})))",
        }
    ],
    "validations": [
        {
            "expression": "variables.missing.size() == 0",
            "messageExpression": '"missing labels: " + variables.missing.join(", ")',
        }
    ],
}
CONSTRAINT: Final = {
    "apiVersion": "constraints.gatekeeper.sh/v1beta1",
    "kind": KIND,
    "metadata": {"name": "owners"},
    "spec": {
        "match": {"kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}], "namespaces": [NAMESPACE]},
        "parameters": {"labels": ["owner"]},
    },
}
MUTATOR: Final = {
    "apiVersion": "mutations.gatekeeper.sh/v1",
    "kind": "AssignMetadata",
    "metadata": {"name": LABEL},
    "spec": {
        "match": {"kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}], "namespaces": [NAMESPACE]},
        "location": f"metadata.labels.{LABEL}",
        "parameters": {"assign": {"value": "yes"}},
    },
}


@dataclass(frozen=True)
class Move:
    """What Gatekeeper has, and where it runs after the move."""

    code: Json
    mutates: bool
    worker: bool


IN_CEL: Final = Move({"engine": "K8sNativeValidation", "source": CEL}, mutates=False, worker=False)
IN_REGO: Final = Move({"engine": "Rego", "source": {"rego": REGO}}, mutates=True, worker=True)


class Refused(Load):
    """Creates that violate the constraint: each has to be refused, by its message."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.api, f"{MAPS}?dryRun=All", document=config_map("bad-"), clients=2)

    def fault(self, answer: Answer) -> str:
        """Return what is wrong with *answer*; empty if it is the denial."""
        is_denied = answer.status == 403 and DENIED in answer.message
        return "" if is_denied else f"{answer.status}: {answer.message}"


def registered(cluster: Cluster, port: int, move: Move) -> list[Json]:
    """Gatekeeper's registration as it is installed, with Fail, and the address of the program."""

    def made(kind: str, *paths: str) -> Json:
        rule = {
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["*"],
        }
        names = {"/v1/mutate": "mutation", "/v1/admit": "validation"}
        webhooks = [
            {
                "name": f"{names[path]}.gatekeeper.sh",
                "clientConfig": {"url": f"https://localhost:{port}{path}", "caBundle": cluster.ca_bundle},
                "rules": [rule],
                "failurePolicy": "Fail",
                "matchPolicy": "Exact",
                "sideEffects": "None",
                "timeoutSeconds": 30,
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            }
            for path in paths
        ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {
                "name": f"gatekeeper-{kind.lower()}-webhook-configuration",
                "labels": {"gatekeeper.sh/system": "yes"},
            },
            "webhooks": webhooks,
        }

    found = [made("Validating", "/v1/admit")]
    return [made("Mutating", "/v1/mutate"), *found] if move.mutates else found


@contextmanager
def gatekeeper(folder: Path, move: Move) -> Iterator[Cluster]:
    """A cluster in which Gatekeeper is in force with *move*, and objects from before."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(obtain(VERSIONS[0]), folder / "cluster"))
        certificate = cluster.issue(folder / "certificate", "localhost", "127.0.0.1")
        subject = Gatekeeper()
        server = subject.start(Bed(stack, folder, *certificate, clusters=[cluster]))
        shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        assert cluster.api.create("/api/v1/namespaces", shop).status == 201
        for number in range(20):
            labels = {"owner": "ann"} if number % 2 else {}
            assert cluster.api.create(MAPS, config_map(f"old-{number}", labels)).status == 201
        subject.create(template(move.code))
        subject.create(CONSTRAINT, *([MUTATOR] if move.mutates else []))
        for document in registered(cluster, int(server.address.rpartition(":")[2]), move):
            plural = document["kind"].lower() + "s"
            assert cluster.api.create(f"{REGISTRATIONS}/{plural}", document).status == 201
        eventually(lambda: DENIED in create(cluster).message)
        if move.mutates:
            eventually(lambda: not unstamped(create(cluster, owner="ann")))
        yield cluster


def create(cluster: Cluster, **labels: str) -> Answer:
    """The answer to a create in a dry run."""
    return cluster.api.create(f"{MAPS}?dryRun=All", config_map("try-", labels))


def unstamped(answer: Answer) -> str:
    """Return the fault of an object that no mutator has changed."""
    return "" if answer.document["metadata"]["labels"].get(LABEL) == "yes" else "no mutator changed it"


class Gateway:
    """A gateway whose configuration is replaced while it runs."""

    kind: type[GatewayProcess] = GatewayProcess

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder / "live"
        self.certificate = cluster.issue(folder / "gateway", "localhost", "127.0.0.1")
        self.port = free_port()
        self.process: GatewayProcess | None = None

    def use(self, config: Path) -> None:
        """Put *config* in force, and register it."""
        unfinished = self.folder.with_name("unfinished")
        shutil.copytree(config, unfinished)
        settings = unfinished / "gatewayconfiguration.yaml"
        found = yaml.safe_load(settings.read_text())
        found["kubernetes"] = {"kubeconfig": str(self.cluster.kubeconfig())}
        settings.write_text(json.dumps(found))
        if self.process is None:
            unfinished.rename(self.folder)
            listen = ("--listen", f"127.0.0.1:{self.port}")
            self.process = self.kind(self.folder, self.certificate, self.cluster.authority, *listen)
        else:
            seen = len(self.process.log)
            self.folder.rename(self.folder.with_name("before"))
            unfinished.rename(self.folder)
            shutil.rmtree(self.folder.with_name("before"))
            self.process.expect("configuration reloaded", after=seen)
        done = run_command(
            *("manifests", "--config", self.folder, "--url", f"https://localhost:{self.port}", "--apply"),
            *("--ca-file", self.cluster.ca_file, "--kubeconfig", self.cluster.kubeconfig()),
        )
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


def run_step(cluster: Cluster, command: str) -> CompletedProcess[str]:
    """Run the printed *command* as it stands."""
    program, *arguments = shlex.split(command)
    return cluster.kubectl(*arguments) if program == "kubectl" else run_command(*arguments)


@pytest.mark.parametrize("move", [pytest.param(IN_CEL, id="cel"), pytest.param(IN_REGO, id="rego")])
def test_gatekeeper_moves_to_the_gateway_and_back_and_no_create_is_unchecked(
    tmp_path: Path, move: Move
) -> None:
    build("gatekeeper")
    program = worker()
    with ExitStack() as stack:
        cluster = stack.enter_context(gatekeeper(tmp_path, move))
        good = Load(
            cluster.api,
            f"{MAPS}?dryRun=All",
            document=config_map("good-", {"owner": "ann"}),
            clients=2,
            check=unstamped if move.mutates else lambda _: "",
        )
        bad = Refused(cluster)
        stack.enter_context(good)
        stack.enter_context(bad)
        out = tmp_path / "migration"
        report = plan(cluster, out)
        where = "worker" if move.worker else "native"
        found = [one["runs"] for engine in report["engines"] for one in engine["objects"]]
        assert found == [where] * len(found)
        assert len(found) == 2 + move.mutates
        steps = {one["title"].split()[0].strip(":"): one["commands"] for one in report["steps"]}
        port = free_port()
        for file in out.rglob("workerpools.yaml"):
            file.write_text(file.read_text().replace("127.0.0.1:50051", f"127.0.0.1:{port}"))
        listen = ("--listen", f"127.0.0.1:{port}")
        process = Process(*program, *listen, "--cluster", "--kubeconfig", str(cluster.kubeconfig()))
        stack.callback(process.stop)
        process.expect("serving")

        proved = run_step(cluster, steps["prove"][-1])
        assert proved.returncode == 0, proved.stdout + proved.stderr
        assert "equal on" in proved.stdout

        gateway = Gateway(cluster, tmp_path)
        stack.callback(gateway.stop)
        gateway.use(out / "candidates")
        assert gateway.process is not None
        compare(gateway.process)
        flow(good, bad)
        gateway.use(out / "config")
        flow(good, bad)
        for command in steps["remove"]:
            done = run_step(cluster, command)
            assert done.returncode == 0, done.stderr
        eventually(lambda: not names(cluster, "gatekeeper"))
        flow(good, bad)
        for command in steps["the"]:
            done = run_step(cluster, command)
            assert done.returncode == 0, done.stderr
        assert len(names(cluster, "gatekeeper")) == 1 + move.mutates
        assert not names(cluster, "admission-gateway")
        flow(good, bad)
    assert not good.failures, good.failures[:5]
    assert not bad.failures, bad.failures[:5]


def plan(cluster: Cluster, out: Path) -> Json:
    """Run the command, and return its report."""
    done = run_command("migrate", "--kubeconfig", cluster.kubeconfig(), "--output", out, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: Json = json.loads(done.stdout)
    return found


def compare(gateway: GatewayProcess) -> None:
    """Wait until live answers were compared with those of the worker, and see that none differs."""
    compared = "admission_gateway_candidate_reviews_total"
    eventually(lambda: gateway.metric(compared) > 50)
    assert gateway.metric("admission_gateway_candidate_differences_total") == 0


def flow(*loads: Load) -> None:
    """Wait until creates of each load have had the right answer, and none a wrong one."""
    for load in loads:
        load.flows()
        assert not load.failures, load.failures[:5]


def names(cluster: Cluster, prefix: str) -> list[str]:
    """The names of the registered webhook configurations that begin with *prefix*."""
    found = [
        one["metadata"]["name"]
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        for one in cluster.api.get(f"{REGISTRATIONS}/{plural}").document["items"]
    ]
    return [name for name in found if name.startswith(prefix)]


def worker() -> tuple[str, ...]:
    """Build the worker of Gatekeeper's own code, and return its command."""
    language = named("gatekeeper")
    subprocess.run(language.build, shell=True, cwd=ROOT, check=True)
    return tuple(str(ROOT / part) for part in language.run)

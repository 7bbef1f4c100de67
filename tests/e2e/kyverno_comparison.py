"""Clusters with rules in Kyverno's own language: with Kyverno's program, or with a gateway and its worker."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import yaml

from deploy.monitoring import CHART_FILES
from gateway.config.merge.custom_resource import PLURALS
from loadtest.peers.clustered import KyvernoPatterns
from loadtest.peers.programs import obtain as obtain_program
from tests.e2e import charts
from tests.e2e.cluster import NAMESPACE
from tests.e2e.engine_comparison import DENIAL, Running, Seen
from tests.e2e.setups import BehindGateway
from tests.kit import ROOT, Process, pool_document
from tests.languages.toolchains import named
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.compare import Operation
    from tests.e2e.engine_scenarios import Scenario
    from tests.e2e.kyverno_rules import WorkerScenario

    Json = dict[str, Any]

PART: Final = re.compile(r'\n*^(?=resource \S* was blocked|failed calling webhook ")', re.MULTILINE)
"""Before each part of a message: the gateway's has one for each entry, and Kyverno's is one."""
EXTRA_RULES: Final = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
"""What the rules of the scenarios read beside Kyverno's own kinds."""
BLOCKED: Final = re.compile(
    r"resource (?P<object>\S*) was blocked due to the following policies\s*\n\n(?P<rules>.*)", re.DOTALL
)
FAILED: Final = re.compile(
    r'failed calling webhook "[^"]*": INTERNAL: policy (?P<policy>[^.\s]+)\.(?P<rule>[^:\s]+): (?P<text>.*)',
    re.DOTALL,
)
"""What the gateway says of a rule that errs."""
CHANGE: Final = re.compile(
    r"mutation policy (?P<policy>\S+) error: failed to apply policy \S+ "
    r"rules \[(?P<rule>[^:]+): (?P<text>.*)]",
    re.DOTALL,
)
"""What Kyverno says of a mutate rule that errs."""
WARNING: Final = re.compile(r"policy \S+\.\S+: ")
CONTROL: Final = re.compile(r"(?=\(Forbidden reason: )")


class Kyverno(KyvernoPatterns):
    """Kyverno with exceptions, which are off by default."""

    flags = ("--enablePolicyException=true", "--exceptionNamespace=*")


class KyvernoRunning(Running):
    """A cluster with the namespaces and objects of *scenarios*, in which their documents are in force."""

    def __init__(
        self, cluster: Cluster, scenarios: Sequence[WorkerScenario], canaries: Sequence[WorkerScenario]
    ) -> None:
        super().__init__(cluster, scenarios, canaries)
        self.cluster, self.scenarios = cluster, (*scenarios, *canaries)

    def make_namespaces(self) -> None:
        """Make them with their labels and objects."""
        for each in self.scenarios:
            apply(self.cluster, [namespace(each), *each.objects])

    def seen(self, scenario: Scenario, operation: Operation) -> Seen:
        """Perform *operation*; the rules that refuse are told apart."""
        answer = self.perform(scenario, operation)
        text = DENIAL.sub("", answer.message) if answer.status >= 400 else ""
        return as_kyverno(replace(self.seen_in(operation, answer), denials=tuple(refusals(text))), text)


def as_kyverno(seen: Seen, text: str) -> Seen:
    """Return what is *seen* behind a gateway, whose message is *text*, as it would be seen of Kyverno.

    The documentation says what differs: an error of a rule is a failed call with code 500, which Kyverno
    answers with 400, and what is refused has the warnings of other rules, too.
    """
    if FAILED.search(text):
        assert (seen.status, seen.reason) == (500, "InternalError"), seen
        seen = replace(seen, status=400, reason="")
    if seen.status >= 400:
        seen = replace(seen, warnings=tuple(each for each in seen.warnings if not WARNING.match(each)))
    return seen


def namespace(scenario: WorkerScenario) -> Json:
    """Return the namespace of *scenario*."""
    metadata = {"name": scenario.name, "labels": dict(scenario.labels or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def refusals(message: str) -> list[str]:
    """Return the rules that refuse in *message*, in order, with their texts; other texts as they are."""
    found = []
    for part in PART.split(message):
        if blocked := BLOCKED.fullmatch(part):
            for policy, texts in yaml.safe_load(blocked["rules"]).items():
                found += [f"{policy}/{rule}: {unordered(text)}" for rule, text in texts.items()]
        elif failed := FAILED.fullmatch(part) or CHANGE.fullmatch(part):
            found.append(f"{failed['policy']}/{failed['rule']}: {failed['text']}")
        elif part:
            found.append(part)
    return sorted(found)


def unordered(text: str) -> str:
    """Return *text* with the controls of ``podSecurity`` in order: Kyverno has them in a random one."""
    before, *controls = CONTROL.split(text)
    return before + "".join(sorted(controls))


def documents_of(scenarios: Iterable[WorkerScenario]) -> list[Json]:
    """Return their policies and exceptions."""
    return [document for each in scenarios for document in each.documents]


class WithWorker(BehindGateway):
    """A gateway and a worker with the same policies in files; the worker also has what they read."""

    policies: ClassVar[Json] = {}
    """Further settings of the gateway."""

    def __init__(self, cluster: Cluster, folder: Path, scenarios: Sequence[WorkerScenario]) -> None:
        """Take the policies of *scenarios*."""
        settings = {
            "kubernetes": {"kubeconfig": str(cluster.kubeconfig()), "customResources": bool(self.policies)},
            "policies": {"engines": {"kyverno": {"pool": "kyverno"}}, **self.policies},
        }
        super().__init__(cluster, folder, [], "kyverno-worker", gateway=settings)
        self.scenarios = scenarios

    def write_configuration(self) -> None:
        """Write the configuration, and start the worker."""
        super().write_configuration()
        socket = self.folder / "kyverno.sock"
        (self.config / "pool.yaml").write_text(pool_document("kyverno", f"unix:{socket}"))
        self.engine = Process(*worker(), *self.documents(), "--listen", f"unix:{socket}")
        self.stack.callback(self.engine.stop)
        self.engine.expect("serving")

    def documents(self) -> Iterator[str]:
        """Write the policies into files, and yield the flags for the worker."""
        policies = documents_of(self.scenarios)
        write(self.config / "policies.yaml", policies)
        given = self.folder / "policies"
        given.mkdir(exist_ok=True)
        write(given / "policies.yaml", policies)
        write(given / "objects.yaml", [one for each in self.scenarios for one in each.objects])
        yield from ("--policies", str(given))


class WithCluster(WithWorker):
    """A gateway and a worker that follow the policies in the cluster; the worker has the chart's rights."""

    policies: ClassVar[Json] = {"customResourcesOf": ["Kyverno"], "exceptionNamespaces": ["default"]}

    def documents(self) -> Iterator[str]:
        """Make the worker's account, and yield its flags."""
        kubeconfig = worker_account(self.cluster, self.folder)
        yield from ("--cluster", "--kubeconfig", str(kubeconfig), "--exception-namespaces", "default")


def worker_account(cluster: Cluster, folder: Path) -> Path:
    """Return a kubeconfig of the worker's account, which has the role of the chart with ``EXTRA_RULES``."""
    values = {"enabled": True, "extraRules": EXTRA_RULES}
    (name,) = {
        one["metadata"]["name"]
        for one in charts.objects(f"--set-json=engines.kyverno={json.dumps(values)}")
        if one["kind"] == "ServiceAccount" and one["metadata"]["name"].endswith("kyverno")
    }
    made = [
        one
        for one in charts.objects(f"--set-json=engines.kyverno={json.dumps(values)}")
        if one["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        and one["metadata"]["name"] == name
    ]
    assert len(made) == 3, made
    apply(cluster, made)
    token = cluster.kubectl("create", "token", name, f"--namespace={NAMESPACE}").stdout.strip()
    kubeconfig = cluster.write_kubeconfig(folder / "worker.kubeconfig", token=token)

    def may() -> bool:
        asked = ("auth", "can-i", "list", "configmaps", "--all-namespaces")
        return cluster.kubectl(f"--kubeconfig={kubeconfig}", *asked).stdout.strip() == "yes"

    # The API server reads roles from a cache of its own.
    eventually(may, "the rights of the worker")
    return kubeconfig


def define(cluster: Cluster) -> None:
    """Define the kinds of the gateway and of Kyverno."""
    definitions = obtain_program("kyverno")
    assert definitions is not None
    files = [CHART_FILES / "crds.yaml", *sorted((definitions / "config/crds/kyverno").glob("*.yaml"))]
    done = cluster.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
    assert done.returncode == 0, done.stderr
    plurals = ("clusterpolicies", "policies", "policyexceptions")
    cluster.wait_until_served(
        *(f"{plural}.admission-gateway.io" for plural in PLURALS.values()),
        *(f"{plural}.kyverno.io" for plural in plurals),
    )


def apply(cluster: Cluster, documents: Iterable[Json]) -> None:
    """Create or change *documents* in the cluster."""
    text = "".join(f"{json.dumps(each)}\n---\n" for each in documents)
    done = cluster.kubectl("apply", "--server-side", "--filename=-", stdin=text)
    assert done.returncode == 0, done.stderr


def write(file: Path, documents: Iterable[Json]) -> None:
    """Write *documents* into *file*."""
    file.write_text("".join(json.dumps(each) + "\n---\n" for each in documents))


def build_worker() -> None:
    """Build the worker."""
    subprocess.run(named("kyverno").build, shell=True, cwd=ROOT, check=True)


def worker() -> Iterator[str]:
    """Yield the command of the worker."""
    yield from (str(ROOT / part) for part in named("kyverno").run)


def are_ready(cluster: Cluster) -> bool:
    """Whether Kyverno says that it serves all of its policies."""
    found = [
        policy
        for plural in ("clusterpolicies", "policies")
        for policy in cluster.api.get(f"/apis/kyverno.io/v1/{plural}").document["items"]
    ]
    return all(
        any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in each.get("status", {}).get("conditions", [])
        )
        for each in found
    )


def wait_until_ready(cluster: Cluster) -> None:
    """Wait until Kyverno serves all of its policies."""
    eventually(lambda: are_ready(cluster), "Kyverno's policies")

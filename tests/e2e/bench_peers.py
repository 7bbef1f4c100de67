"""``make e2e-bench``, third part: the gateway and its alternatives behind a kube-apiserver.

Pod creates (dry run) with the same four and ten real policies (``loadtest.policies``): evaluated by the API
server itself (ValidatingAdmissionPolicy), by the gateway, and by its peers (``loadtest.peers``), each of
which is one webhook. Before a case is measured, each policy has to deny what violates it. Gatekeeper and
Kyverno evaluate CEL, the faster of their engines; both watch the API server while others are measured.

ValidatingAdmissionPolicy calls no webhook, so no webhook can be as fast. Its policies are CEL expressions:
they cannot call anything, and they do not change objects.
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from gateway.server.serving.devcert import make_development_certificate
from loadtest.peers.clustered import GatekeeperCel, KyvernoCel
from loadtest.peers.setups import ALONE, Bed, Chain
from loadtest.policies import SETS, labelled, violating
from loadtest.report import markdown_table
from loadtest.reviews import POD
from loadtest.servers import BenchError
from tests.e2e.bench import Measured, Plan, create_pods
from tests.e2e.bench_setups import alternating, publish, report_file, settle
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.setups import KINDS, rule
from tests.e2e.validating_policies import documents
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtest.peers.setups import Subject
    from loadtest.servers import Server
    from tests.e2e.setups import Phase

SERVICE: Final = "admission-gateway"
"""The Service that development certificates name."""
VALIDATING: Final = ("v4", "v10")
PEERS: Final[Sequence[type[Subject]]] = (*ALONE, GatekeeperCel, KyvernoCel)
NOTHING: Final = "no webhook"
BUILT_IN: Final = "ValidatingAdmissionPolicy, in the API server"
PODS: Final = "/api/v1/namespaces/default/pods?dryRun=All"
HEADINGS: Final = (
    *("pod creates, dry run", "policies", "per second", "of no webhook", "of the Go chain"),
    *("one create, p50", "added", "API server, CPU a create", "peer, or gateway and worker"),
)


@dataclass(frozen=True)
class Case:
    """A set of policies, and the program that evaluates it."""

    title: str
    which: str = ""
    registrations: Sequence[Mapping[str, Any]] = ()
    subject: Subject | None = None
    pids: Sequence[int] = ()

    @property
    def name(self) -> str:
        return f"{self.title} {self.which}"


@dataclass
class Started:
    """The subjects that run, and the reasons for which others do not."""

    cases: list[Case] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def start(cluster: Cluster, stack: ExitStack, folder: Path, only: str) -> Started:
    """Start all subjects with *only* in their titles that can be started."""
    bed = Bed(stack, folder, *make_development_certificate(folder / "state"), clusters=[cluster])
    started = Started([Case(NOTHING)])
    started.cases += [Case(BUILT_IN, which, documents(which)) for which in VALIDATING]
    for kind in (kind for kind in PEERS if only in kind.title):
        why = kind.missing()
        if not why:
            subject = kind()
            try:
                server = subject.start(bed)
            except (AssertionError, BenchError) as error:
                why = str(error)[:500]
        if why:
            started.missing[kind.title] = why
            continue
        for which in VALIDATING:
            # Kyverno registers itself, when it has policies.
            registrations = [] if kind is KyvernoCel else [webhook(subject.path(which), server, folder)]
            pids = (*server.pids, *server.workers)
            started.cases.append(Case(kind.title, which, registrations, subject, pids))
    cluster.add_service(SERVICE)
    return started


def webhook(path: str, server: Server, folder: Path, phase: Phase = "validate") -> dict[str, Any]:
    """Return the registration of *server* at *path*; certificates are somewhere in *folder*."""
    bundle = b"".join(file.read_bytes() for file in sorted(folder.rglob("tls.crt")))
    service = {
        "namespace": NAMESPACE,
        "name": SERVICE,
        "port": int(server.address.rpartition(":")[2]),
        "path": path,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": KINDS[phase],
        "metadata": {"name": "peer"},
        "webhooks": [
            {
                "name": "peer.bench.test",
                "clientConfig": {"service": service, "caBundle": base64.b64encode(bundle).decode()},
                "rules": [rule("pods", "CREATE")],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def pod_to_create() -> dict[str, Any]:
    """Return the Pod of the reviews, without what the API server adds."""
    document = json.loads(labelled(POD.read_bytes()))["request"]["object"]
    metadata = {key: document["metadata"].get(key, {}) for key in ("labels", "annotations")}
    return {**document, "metadata": {"generateName": "bench-", **metadata}}


@contextmanager
def in_force(case: Case, cluster: Cluster, pod: dict[str, Any]) -> Iterator[None]:
    """Register *case*, until each of its policies denies what violates it; in the end, undo that."""
    api = cluster.api

    def denied() -> set[str]:
        answers = {policy: api.create(PODS, violating(pod, policy)) for policy in SETS["v10"]}
        return {policy for policy, answer in answers.items() if "denied" in answer.message}

    def is_exactly(policies: Sequence[str]) -> bool:
        return denied() == set(policies) and api.create(PODS, pod).status == 201

    with ExitStack() as stack:
        stack.callback(lambda: eventually(lambda: is_exactly(()), f"the end of {case.name}"))
        if case.subject is not None:
            case.subject.apply(case.which)
            stack.callback(case.subject.clear, case.which)
        if case.registrations:
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": case.registrations})
            stack.callback(cluster.kubectl, "delete", "-f", "-", stdin=text)
            done = cluster.kubectl("create", "-f", "-", stdin=text)
            assert done.returncode == 0, done.stderr
        eventually(lambda: is_exactly(SETS.get(case.which, ())), case.name)
        yield


def table(cases: Sequence[Case], rounds: Sequence[Mapping[str, Measured]]) -> str:
    """Return the medians of *rounds* as a Markdown table; ratios are formed within a round."""
    rows = []
    nothing = cases[0].name
    for case in cases:
        found = [one[case.name] for one in rounds]
        chain = Case(Chain.title, case.which).name
        shares = [
            f"{median(one[case.name].per_s / one[of].per_s for one in rounds):.2f}" if of in rounds[0] else ""
            for of in (nothing, chain)
        ]
        added = median(one[case.name].p50_ms - one[nothing].p50_ms for one in rounds)
        rows.append(
            [
                *(case.title, case.which.upper()),
                f"{median(one.per_s for one in found):,.0f}",
                *shares,
                f"{median(one.p50_ms for one in found):.2f} ms",
                f"{added:+.2f} ms" if case.which else "",
                f"{median(one.api_server_ms for one in found):.2f} ms",
                f"{median(one.others_ms for one in found):.2f} ms",
            ]
        )
    return markdown_table(HEADINGS, rows, left=(0, 1))


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.bench_peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one short round: noisy")
    parser.add_argument("--version", default=VERSIONS[0], choices=VERSIONS, help="of Kubernetes")
    parser.add_argument("--only", default="", help="no webhook, the API server's, and peers with this text")
    parser.add_argument("--output", type=Path, help="default: loadtest/results/DATE-api-server-peers.md")
    parsed = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = (
        Plan(rounds=1, seconds=2.0, single_s=0.5) if parsed.quick else Plan(rounds=parsed.rounds, seconds=3.0)
    )
    binaries = obtain(parsed.version)
    pod = pod_to_create()
    rounds = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(
            Cluster(binaries, folder / "cluster", "--allow-privileged=true", sync=True)
        )
        started = start(cluster, stack, folder, parsed.only)
        create_pods(pod, cluster, plan, [])  # not counted: a new API server is slower
        settle(cluster.api_server_pid)
        for number in range(plan.rounds):
            found = {}
            for case in alternating(started.cases, number):
                if case.name in started.missing:
                    continue
                try:
                    with in_force(case, cluster, pod):
                        found[case.name] = create_pods(pod, cluster, plan, case.pids)
                except (AssertionError, BenchError) as error:
                    started.missing[case.name] = str(error)[:500]
                    continue
                print(f"round {number + 1}: {case.name}: {found[case.name].per_s:,.0f}/s", file=sys.stderr)
            rounds.append(found)
    how = (
        f"kube-apiserver {binaries.version}, etcd and all else on the same cores; a Pod of 6 KB; "
        f"{plan.clients} clients, {plan.rounds} rounds of {plan.seconds:g} s, medians; one process each"
    )
    measured = [case for case in started.cases if case.name not in started.missing]
    left_out = [f"{title}: not measured, {why}" for title, why in started.missing.items()]
    sections = {"Real policies": "\n\n".join([table(measured, rounds), *left_out])}
    kept = None if parsed.quick else report_file("api-server-peers")
    publish("The gateway and its peers before a real API server", how, sections, parsed.output or kept)


if __name__ == "__main__":
    main()

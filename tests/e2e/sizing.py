"""``python -m tests.e2e.sizing``: what clusters of 400 and 5,000 nodes need, the tables of docs/sizing.md.

The cluster is simulated, and what does not fit on the machine is scaled:

1. In a cluster with the real controllers, the scheduler and nodes of kwok, the reviews of a Pod are counted,
   from its creation by a rollout to its removal: all of them, and those that policies for Pods and their
   controllers get. This number does not depend on the size of the cluster.
2. The gateway then gets as many reviews a second as rollouts of 400 and 5,000 nodes cause, on a schedule, and
   its CPU, memory and latency are measured. Gateway, worker and load share the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtest.report import machine, markdown_table, versions
from loadtest.reviews import POD
from tests.e2e.bench_setups import GatewayWithWorker
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import Controllers
from tests.e2e.rollout import DEPLOYMENTS, roll_out
from tests.e2e.setups import Hook
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

POLICIES: Final = 10
"""For Pods and their controllers; one more has every resource."""
NODES: Final = 20
PODS_PER_NODE: Final = 30
BUSY_CORES: Final = 0.5
"""Of a replica, so that one that is lost, and bursts, leave room."""
REPLICAS: Final = 3
"""At least: with two, an upgrade of a node leaves one."""
EVERYTHING: Final = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
WORKLOADS: Final = (
    {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
    {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["deployments", "replicasets", "statefulsets", "daemonsets"],
    },
)


@dataclass(frozen=True)
class Size:
    """A cluster, and how fast it gets Pods when it is busiest."""

    nodes: int
    pods_per_s: int


SIZES: Final = (
    # The Pods of a tenth of the nodes, in half a minute.
    Size(400, 400 // 10 * PODS_PER_NODE // 30),
    # The rate of the load tests of Kubernetes with 5,000 nodes.
    Size(5000, 100),
)


def hooks() -> list[Hook]:
    """Return the webhooks: one for everything, the others for workloads."""
    fields = {"failurePolicy": "Ignore"}
    every = Hook("validate", "everything.sizing.test", {}, (EVERYTHING,), pool="policies", policy="policy-0")
    workloads = [
        Hook("validate", f"workloads-{n}.sizing.test", {}, WORKLOADS, pool="policies", policy=f"policy-{n}")
        for n in range(POLICIES)
    ]
    return [Hook(**{**vars(hook), "fields": fields}) for hook in (every, *workloads)]


def count(setup: Any, name: str) -> float:
    """Return the number of reviews that the webhook *name* has had."""
    found: float = setup.gateway.metric(
        "admission_gateway_webhook_requests_total", name=f"{name}.sizing.test"
    )
    return found


def reviews_of_pods(cluster: Cluster, setup: Any, pods: int) -> dict[str, dict[str, float]]:
    """Return the reviews for each Pod while *pods* Pods are rolled out and removed again."""
    found: dict[str, dict[str, float]] = {}
    for what in ("created", "removed"):
        before = {name: count(setup, name) for name in ("everything", "workloads-0")}
        if what == "created":
            roll_out(cluster, pods, replicas=50)
        else:
            for item in cluster.api.get(DEPLOYMENTS).document["items"]:
                cluster.api.delete(f"{DEPLOYMENTS}/{item['metadata']['name']}")
            eventually(lambda: not cluster.api.get("/api/v1/namespaces/default/pods").document["items"])
        found[what] = {name: (count(setup, name) - number) / pods for name, number in before.items()}
    return found


def drive(setup: Any, rate: float, seconds: float) -> dict[str, Any]:
    """Return what the load generator measures at *rate* reviews a second."""
    url = f"https://127.0.0.1:{setup.gateway.port}/validate"
    command = [sys.executable, "-m", "loadtest.load", url, POD, "--rate", rate, "--uids", 50]
    command += ["--warmup", 2, "--window", seconds]
    for pid in setup.pids:
        command += ["--watch", pid]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def replicas(cores: float) -> int:
    """Return the number of replicas for a load that takes so many *cores*."""
    return max(REPLICAS, math.ceil(cores / BUSY_CORES) + 1)


def load_row(setup: Any, size: Size, scope: str, per_pod: float, seconds: float) -> list[str]:
    """Return the row of the table for a cluster of *size* whose policies get *per_pod* reviews of a Pod."""
    rate = round(size.pods_per_s * per_pod)
    found = drive(setup, rate, seconds)
    # By the reviews that were answered: a machine that is too slow answers fewer.
    gateway, *workers = (found["cpu_s"][str(pid)] / found["reviews"] * rate for pid in setup.pids)
    latencies = found["latencies_ms"]
    return [
        f"{size.nodes:,}",
        scope,
        str(size.pods_per_s),
        f"{rate:,}",
        f"{found['reviews'] / found['seconds']:,.0f}",
        f"{gateway:.2f}",
        f"{sum(workers):.2f}",
        f"{memory_mib(setup.pids[0]):.0f} MiB",
        f"{latencies['p50']:.1f} ms",
        f"{latencies['p99']:.1f} ms",
        str(replicas(gateway)),
    ]


HEADINGS: Final = (
    *("nodes", "policies are for", "Pods/s", "reviews/s", "answered/s", "gateway, cores", "worker, cores"),
    *("gateway, memory", "p50", "p99", "replicas"),
)


def table(per_pod: dict[str, dict[str, float]]) -> str:
    """Return the reviews of a Pod as a table."""
    rows = [[what, *(f"{number:.1f}" for number in of.values())] for what, of in per_pod.items()]
    return markdown_table(("a Pod is", "reviews of all resources", "reviews of workloads"), rows, left=(0,))


def run(pods: int, seconds: float, sizes: Sequence[Size]) -> None:
    """Measure, and print the tables."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        binaries = obtain(VERSIONS[0])
        cluster = stack.enter_context(Cluster(binaries, folder / "cluster", audit=False, sync=True))
        setup = GatewayWithWorker(cluster, folder, hooks())
        setup.command = [sys.executable, "-m", "tests.e2e.bench_worker"]
        stack.enter_context(setup)
        with Controllers(cluster, NODES):
            per_pod = reviews_of_pods(cluster, setup, pods)
        of_scope = {
            scope: sum(one[name] for one in per_pod.values())
            for scope, name in (("workloads", "workloads-0"), ("all resources", "everything"))
        }
        rows = [
            load_row(setup, size, scope, number, seconds)
            for size in sizes
            for scope, number in of_scope.items()
        ]
        how = (
            f"kube-apiserver {binaries.version}; reviews of a Pod counted in a rollout of {pods} Pods on "
            f"{NODES} nodes of kwok; {seconds:g} s a load after a warm-up, on a schedule, with a Pod review "
            f"that {POLICIES + 1} policies of one Python worker match; all on the same cores"
        )
        print(f"- {how}\n- {machine()}\n- {versions()}\n", table(per_pod), "", sep="\n")  # noqa: T201
        print(markdown_table(HEADINGS, rows, left=(1,)))  # noqa: T201


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.sizing", description=__doc__)
    parser.add_argument("--pods", type=int, default=300, help="of the rollout in which reviews are counted")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each load")
    parsed = parser.parse_args()
    run(parsed.pods, parsed.seconds, SIZES)


if __name__ == "__main__":
    main()

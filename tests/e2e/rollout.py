"""``make e2e-bench``, second part: the rollout of Deployments in a cluster, until all their Pods run.

Each case has a cluster of its own: kube-apiserver, etcd, kube-controller-manager, kube-scheduler, and nodes
that kwok simulates. The ReplicaSet controller creates the Pods, those of each ReplicaSet in batches that
double, so webhooks are called as they are in production: by many creates at once, between the bindings,
status updates and events of the Pods that exist already, which no webhook matches.

Controllers and nodes do not limit their requests; the API server does, by priority and fairness with its
defaults. What decides is the machine, whose cores all processes share: compare the ratios, which are formed
within a round.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from loadtest.measurement import cpu_clock
from loadtest.report import markdown_table
from tests.e2e.bench_setups import CASES, NOTHING, Case, alternating, publish, report_file
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import Controllers
from tests.e2e.go_tools import build_tools
from tests.e2e.histograms import Histogram
from tests.e2e.objects import deployment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.e2e.binaries import Binaries

DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
NODES: Final = 20
REPLICAS: Final = 100
"""Of one Deployment."""
WITHIN_S: Final = 300.0
"""A bound for a rollout that does not end, not an expectation."""
POLL_S: Final = 0.1
HEADINGS: Final = (
    *("rollout", "all Pods run after", "times no webhook", "API server, CPU a Pod"),
    *("webhook, or gateway and worker", "controllers and nodes", "a create, p50", "p99"),
    *("webhooks of a Pod, mean", "one call, p99", "gateway's own p50", "p99"),
)


class DoesNotEnd(Exception):
    """Some Pods do not run; the text has their number and the reason."""


def roll_out(cluster: Cluster, pods: int, replicas: int = REPLICAS) -> float:
    """Create Deployments with *pods* Pods in all, and return the seconds until all are ready.

    Raises:
        DoesNotEnd: they were not within ``WITHIN_S``.
    """
    began = time.monotonic()
    for number, first in enumerate(range(0, pods, replicas)):
        document = deployment(f"shop-{number}", replicas=min(replicas, pods - first))
        answer = cluster.api.create(DEPLOYMENTS, document)
        if answer.status != 201:
            raise DoesNotEnd(answer.message)
    while True:
        # A list of Deployments is small; one of Pods would cost the API server more than a Pod does.
        items = cluster.api.get(DEPLOYMENTS).document["items"]
        took = time.monotonic() - began
        ready = sum(item["status"].get("readyReplicas", 0) for item in items)
        if ready == pods:
            return took
        if took > WITHIN_S:
            conditions = [item["status"].get("conditions") for item in items]
            raise DoesNotEnd(f"{ready} of {pods} Pods are ready: {conditions}"[:4000])
        time.sleep(POLL_S)


@dataclass(frozen=True)
class Measured:
    """One rollout."""

    seconds: float
    api_server_ms: float
    """CPU of the API server for a Pod."""
    others_ms: float
    """The same of the webhook server, or of gateway and worker."""
    controllers_ms: float
    """The same of controllers, scheduler and nodes together."""
    create: Histogram
    """Duration of the requests that create Pods."""
    calls: Histogram
    """Duration of the API server's calls of webhooks."""
    reviews: Histogram
    """The same, as the gateway measures it."""

    @property
    def calls_ms(self) -> float:
        """Return the mean time of all calls for one Pod, added up."""
        return self.calls.total_s / self.create.count * 1000


def measure(case: Case, binaries: Binaries, folder: Path, tools: Mapping[str, Path], pods: int) -> Measured:
    """Roll out *pods* Pods in a cluster of its own, with the policies of *case*.

    Raises:
        DoesNotEnd: not all Pods run in time, or policies were not called for each.
    """
    with (
        Cluster(binaries, folder / "cluster", audit=False, sync=True) as cluster,
        case.setup(cluster, folder, tools) as setup,
        Controllers(cluster, NODES) as controllers,
    ):
        groups = [
            [cluster.api_server_pid],
            [] if setup is None else setup.pids,
            [process.child.pid for process in controllers.processes.values()],
        ]
        calls, histograms, cpu = case.calls(cluster, setup), _histograms(cluster, setup), _cpu_s(groups)
        seconds = roll_out(cluster, pods)
        api_server, others, rest = (
            (after - before) / pods * 1000 for after, before in zip(_cpu_s(groups), cpu, strict=True)
        )
        create, called, reviews = (
            after.since(before) for after, before in zip(_histograms(cluster, setup), histograms, strict=True)
        )
        made = (case.calls(cluster, setup) - calls) if case.count else 0
        if made < pods * case.count:
            raise DoesNotEnd(f"{case.title}: {made:g} calls of policies for {pods} Pods")
    return Measured(seconds, api_server, others, rest, create, called, reviews)


def _cpu_s(groups: Sequence[Sequence[int]]) -> list[float]:
    """Return the CPU time of each group of processes."""
    return [sum(time.clock_gettime(cpu_clock(pid)) for pid in pids) for pids in groups]


def _histograms(cluster: Cluster, setup: Any) -> tuple[Histogram, Histogram, Histogram]:
    text = cluster.api.get("/metrics").message
    reviews = setup.gateway.admin("/metrics")[1] if hasattr(setup, "gateway") else ""
    return (
        Histogram.read(
            text, "apiserver_request_duration_seconds", resource="pods", subresource="", verb="POST"
        ),
        Histogram.read(text, "apiserver_admission_webhook_admission_duration_seconds"),
        Histogram.read(reviews, "admission_gateway_review_duration_seconds"),
    )


def table(titles: Sequence[str], rounds: Sequence[Mapping[str, Measured]]) -> str:
    """Return the medians of *rounds* as a Markdown table, a row for each of *titles*."""
    rows = []
    for title in titles:
        found = [one[title] for one in rounds]
        times = median(one[title].seconds / one[NOTHING.title].seconds for one in rounds)

        def quantiles(name: str, *shares: float, found: list[Measured] = found) -> list[str]:
            histograms = [getattr(one, name) for one in found]
            if not all(histogram.count for histogram in histograms):
                return [""] * len(shares)
            return [
                f"{median(histogram.quantile_ms(share) for histogram in histograms):.1f} ms"
                for share in shares
            ]

        rows.append(
            [
                title,
                f"{median(one.seconds for one in found):.1f} s",
                f"{times:.2f}",
                *(
                    f"{median(getattr(one, name) for one in found):.2f} ms"
                    for name in ("api_server_ms", "others_ms", "controllers_ms")
                ),
                *quantiles("create", 0.5, 0.99),
                f"{median(one.calls_ms for one in found):.1f} ms" if found[0].calls_ms else "",
                *quantiles("calls", 0.99),
                *quantiles("reviews", 0.5, 0.99),
            ]
        )
    return markdown_table(HEADINGS, rows, left=(0,))


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.rollout", description=__doc__)
    parser.add_argument("--pods", type=int, default=2000, help="in all")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--version", default=VERSIONS[0], choices=VERSIONS, help="of Kubernetes")
    parser.add_argument("--only", default="", help="no webhook, and the cases with this text in their titles")
    parser.add_argument("--output", type=Path, help="default: loadtest/results/DATE-rollout.md")
    parsed = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tools, binaries = build_tools(), obtain(parsed.version)
    # In the mutating phase ten webhooks are called one after another: the case in which they cost most.
    cases = [NOTHING, *(case for case in CASES if case.phase == "mutate" and parsed.only in case.title)]
    rounds: list[dict[str, Measured]] = []
    missing: dict[str, str] = {}
    for number in range(parsed.rounds):
        found = {}
        for case in alternating(cases, number):
            if case.title in missing:
                continue
            try:
                with tempfile.TemporaryDirectory() as folder:
                    found[case.title] = measure(case, binaries, Path(folder), tools, parsed.pods)
            except DoesNotEnd as error:
                if case is NOTHING:
                    raise
                missing[case.title] = str(error)
                continue
            seconds = found[case.title].seconds
            print(f"round {number + 1}: {case.title}: {seconds:.1f} s", file=sys.stderr, flush=True)
        rounds.append(found)
    titles = [case.title for case in cases if case.title not in missing]
    left_out = [f"{title}: not measured, {why}" for title, why in missing.items()]
    how = (
        f"kube-apiserver {binaries.version}, etcd, kube-controller-manager, kube-scheduler, {NODES} nodes of "
        f"kwok and all else on the same cores; {parsed.pods} Pods in Deployments of {REPLICAS}; medians of "
        f"{parsed.rounds} rounds, each case in a new cluster; percentiles are interpolated in the buckets of "
        "the metrics"
    )
    sections = {"Rollouts": "\n\n".join([table(titles, rounds), *left_out])}
    publish("Rollouts in a cluster", how, sections, parsed.output or report_file("rollout"))


if __name__ == "__main__":
    main()

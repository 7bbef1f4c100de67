"""``make e2e-bench``, second part: the rollout of Deployments in a cluster, until all their Pods run.

Ten mutating policies that each set a label (``rollout_setups``): by the gateway in each way that it has, by
the API server itself, by webhooks in Go, and by the peers of ``loadtest.peers`` that are built. In the end
every Pod has to have all labels.

Each rollout has a cluster of its own: kube-apiserver, etcd, kube-controller-manager, kube-scheduler, and
nodes that kwok simulates. The ReplicaSet controller creates the Pods, those of each ReplicaSet in batches
that double, so webhooks are called as they are in production: by many creates at once, between the bindings,
status updates and events of the Pods that exist already, which no webhook matches.

Controllers and nodes do not limit their requests; the API server does, by priority and fairness with its
defaults. What decides is the machine, whose cores all processes share, and whose speed changes: rollouts
without webhooks are repeated between the others, and each other one is compared with the two around it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from loadtest.measurement import cpu_clock
from loadtest.report import markdown_table, targets_table
from loadtest.servers import BenchError
from loadtest.targets import Found, Target, judge
from tests.e2e.bench_setups import alternating, publish, report_file, settle
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import Controllers
from tests.e2e.go_tools import build_tools
from tests.e2e.histograms import Histogram
from tests.e2e.objects import deployment
from tests.e2e.rollout_setups import NOTHING, SETUPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadtest.targets import Bound
    from tests.e2e.binaries import Binaries
    from tests.e2e.rollout_setups import Role, Setup

DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
NODES: Final = 20
REPLICAS: Final = 100
"""Of one Deployment."""
WITHIN_S: Final = 150.0
"""A bound for a rollout that does not end, not an expectation."""
POLL_S: Final = 0.1
BETWEEN: Final = 5
"""Rollouts between two without webhooks."""
MAX_TIMES: Final[Mapping[Role, float]] = {"worker": 1.08, "documents": 1.06, "API server": 1.02}
"""Time of a rollout, of that of one without webhooks."""
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


Run = list[tuple[str, Measured]]
"""Rollouts in the order of time, by title; the first and the last one are without webhooks."""


def measure(setup: Setup, binaries: Binaries, folder: Path, tools: Mapping[str, Path], pods: int) -> Measured:
    """Roll out *pods* Pods in a cluster of its own, with the policies of *setup*.

    Raises:
        DoesNotEnd: not all Pods run in time, or they are not as the policies leave them.
    """
    with (
        Cluster(binaries, folder / "cluster", audit=False, sync=True) as cluster,
        setup.in_force(cluster, folder, tools) as entered,
        Controllers(cluster, NODES) as controllers,
    ):
        groups = [
            [cluster.api_server_pid],
            entered.pids,
            [process.child.pid for process in controllers.processes.values()],
        ]
        settle(cluster.api_server_pid)
        histograms, cpu = _histograms(cluster, entered), _cpu_s(groups)
        seconds = roll_out(cluster, pods)
        api_server, others, rest = (
            (after - before) / pods * 1000 for after, before in zip(_cpu_s(groups), cpu, strict=True)
        )
        create, called, reviews = (
            after.since(before)
            for after, before in zip(_histograms(cluster, entered), histograms, strict=True)
        )
        check_pods(cluster, setup, pods)
    return Measured(seconds, api_server, others, rest, create, called, reviews)


def check_pods(cluster: Cluster, setup: Setup, pods: int) -> None:
    """Check that each of *pods* Pods is as the policies of *setup* leave it.

    Raises:
        DoesNotEnd: there are others, or some lack a label.
    """
    found = cluster.api.get("/api/v1/namespaces/default/pods").document["items"]
    lacking = [(pod["metadata"]["name"], labels) for pod in found if (labels := setup.lacking(pod))]
    if len(found) != pods or lacking:
        raise DoesNotEnd(f"{len(found)} of {pods} Pods; {len(lacking)} lack labels: {lacking[:3]}")


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


def references(run: Run) -> list[float]:
    """Return the seconds of the rollouts without webhooks."""
    return [measured.seconds for title, measured in run if title == NOTHING.title]


def ratios(run: Run, title: str) -> list[float]:
    """Return the seconds of each rollout *title* in multiples of one without webhooks.

    That is interpolated between the two around it, for a machine that becomes slower or faster.
    """
    at = [number for number, (each, _) in enumerate(run) if each == NOTHING.title]
    found = []
    for number, (each, measured) in enumerate(run):
        if each != title:
            continue
        before = max(other for other in at if other <= number)
        after = min(other for other in at if other >= number)
        share = (number - before) / (after - before) if after > before else 0.0
        start, end = run[before][1].seconds, run[after][1].seconds
        found.append(measured.seconds / (start + (end - start) * share))
    return found


def table(run: Run) -> str:
    """Return the medians of *run* as a Markdown table, a row for each title."""
    rows = []
    for title in (each.title for each in (NOTHING, *SETUPS)):
        found = [measured for each, measured in run if each == title]
        if not found:
            continue

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
                f"{median(ratios(run, title)):.2f}",
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


def targets(run: Run, missing: Mapping[str, str]) -> str:
    """Return the verdicts on the gateway as a Markdown table; *missing*: what was not measured, and why."""
    measured = {title for title, _ in run}
    numbers = {each.title: median(ratios(run, each.title)) for each in SETUPS if each.title in measured}
    peers = {
        each.title: numbers[each.title] for each in SETUPS if each.role == "peer" and each.title in numbers
    }
    unmeasured = [each.title for each in SETUPS if each.role == "peer" and each.title not in peers]
    remark = f"without {', '.join(unmeasured)}" if unmeasured else ""
    wanted = []
    for setup in SETUPS:
        if setup.role in MAX_TIMES:
            text = f"{setup.title}: time, of that of no webhook"
            wanted.append(_target("time", text, setup.title, "at most", MAX_TIMES[setup.role]))
    for setup in SETUPS:
        if setup.role not in MAX_TIMES or not peers:
            continue
        fastest = min(peers, key=lambda title: peers[title])
        text = f"{setup.title}: time, of that of the fastest peer ({fastest})"
        target = _target("peers", text, setup.title, "below", 1.0, peers[fastest])
        wanted.append(replace(target, remark=lambda _: remark))
    return targets_table(judge(wanted, Found((), numbers, missing)))


def _target(number: str, text: str, name: str, bound: Bound, limit: float, of: float = 1.0) -> Target:
    return Target(number, text, (name,), lambda found: found.numbers[name] / of, bound, limit)


def sequence(setups: Sequence[Setup], rounds: int) -> list[Setup]:
    """Return *setups* for *rounds* rounds, of which odd ones are reversed.

    The reference comes first, last, and after every ``BETWEEN`` of them.
    """
    found = [NOTHING]
    for number in range(rounds):
        ordered = alternating(setups, number)
        for first in range(0, len(ordered), BETWEEN):
            found += [*ordered[first : first + BETWEEN], NOTHING]
    return found


def measure_all(
    order: Sequence[Setup], binaries: Binaries, tools: Mapping[str, Path], pods: int
) -> tuple[Run, dict[str, str]]:
    """Return the rollouts of *order*, and of what could not be measured the reason, by title.

    Raises:
        DoesNotEnd: one without webhooks did not end.
    """
    run: Run = []
    missing = {setup.title: why for setup in order if (why := setup.missing())}
    for number, setup in enumerate(order, 1):
        if setup.title in missing:
            continue
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                measured = measure(setup, binaries, Path(folder), tools, pods)
        except (DoesNotEnd, BenchError, AssertionError) as error:
            if setup is NOTHING:
                raise
            missing[setup.title] = str(error)[:500]
            run = [(title, each) for title, each in run if title != setup.title]
            continue
        run.append((setup.title, measured))
        print(
            f"{number} of {len(order)}: {setup.title}: {measured.seconds:.1f} s, "
            f"with its cluster {time.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return run, missing


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.rollout", description=__doc__)
    parser.add_argument("--pods", type=int, default=2000, help="in all")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--version", default=VERSIONS[0], choices=VERSIONS, help="of Kubernetes")
    parser.add_argument(
        "--only", default="", help="no webhook, and the set-ups with this text in their titles"
    )
    parser.add_argument("--output", type=Path, help="default: loadtest/results/DATE-rollout.md")
    parsed = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tools, binaries = build_tools(), obtain(parsed.version)
    setups = [setup for setup in SETUPS if parsed.only in setup.title]
    run, missing = measure_all(sequence(setups, parsed.rounds), binaries, tools, parsed.pods)
    without = references(run)
    how = (
        f"kube-apiserver {binaries.version}, etcd, kube-controller-manager, kube-scheduler, {NODES} nodes of "
        f"kwok and all else on the same cores; {parsed.pods} Pods in Deployments of {REPLICAS}; medians of "
        f"{parsed.rounds} rounds, each rollout in a new cluster; percentiles are interpolated in the buckets "
        "of the metrics; every webhook is called for creates of Pods alone. No webhook, "
        f"{len(without)} times: {min(without):.1f} to {max(without):.1f} s, {without[0]:.1f} s first, "
        f"{without[-1]:.1f} s last; the others are compared with the two around them"
    )
    left_out = [f"{title}: not measured, {why}" for title, why in missing.items()]
    sections = {"Targets": targets(run, missing), "Rollouts": "\n\n".join([table(run), *left_out])}
    publish("Rollouts in a cluster", how, sections, parsed.output or report_file("rollout"))


if __name__ == "__main__":
    main()

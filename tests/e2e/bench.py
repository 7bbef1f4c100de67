"""``make e2e-bench``: the cost of webhooks for an API server, registered one by one and behind the gateway.

Pod creates (dry run) at a real kube-apiserver: without webhooks, with one trivial Go webhook, with ten of
them, with the same ten policies behind the gateway, in a Go and in a Python worker, and with the gateway's
front end alone, which is the limit of what a gateway can reach. Each case is measured at full load, for
creates per second, and with a single client, for the latency of one create.

All processes share the machine's cores: compare the ratios. Each is formed within a round, in which all cases
are measured one after another, and the median over the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import signal
import ssl
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import uvloop

from loadtest.http_client import Address, Request, post
from loadtest.load import Answers, measure_closed
from loadtest.report import markdown_table, targets_table
from loadtest.targets import Found, Target, judge
from tests.e2e.bench_setups import BEHIND, CASES, NOTHING, ONE, Case, alternating, publish, report_file
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import ADMIN, Cluster
from tests.e2e.go_tools import build_tools
from tests.e2e.objects import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.http_client import Answer
    from loadtest.measurement import Measurement
    from loadtest.targets import Bound

HEADINGS: Final = (
    *("pod creates, dry run", "per second", "of no webhook", "of 1 Go webhook", "one create, p50"),
    *("added", "times 1 Go webhook", "API server, CPU a create", "webhook, or gateway and worker"),
)
MIN_SHARE: Final = 0.97
"""Of the creates per second of one Go webhook, with ten policies behind the gateway."""
MAX_ADDED: Final = 1.3
"""Latency that the same add to a single create, in multiples of what one Go webhook adds."""
MIN_ROUNDS: Final = 3
"""The speed of a shared machine changes by more than what is judged: fewer rounds judge nothing."""


@dataclass(frozen=True)
class Plan:
    """Length and number of the measurements."""

    clients: int = 32
    rounds: int = 3
    seconds: float = 4.0
    warmup_s: float = 0.5
    single_s: float = 1.5
    """The same of the single client."""


@dataclass(frozen=True)
class Measured:
    """One case in one round."""

    per_s: float
    p50_ms: float
    """Of the single client's creates."""
    api_server_ms: float
    """CPU for a create at full load."""
    others_ms: float
    """The same of the webhook server, or of gateway and worker."""
    creates: int
    """By the single client, and at full load."""


def measure(case: Case, cluster: Cluster, plan: Plan, folder: Path, tools: Mapping[str, Path]) -> Measured:
    """Start *case*, measure it, and stop it.

    Raises:
        SystemExit: a create failed, or a policy was not called.
    """
    with case.setup(cluster, folder, tools) as setup:
        before_calls = case.calls(cluster, setup)
        found = create_pods(pod("bench-"), cluster, plan, [] if setup is None else setup.pids)
        calls = case.calls(cluster, setup) - before_calls
        if calls != found.creates * case.count:
            sys.exit(f"{case.title}: {calls:g} calls of policies for {found.creates} creates")
    return found


class CreateAnswers(Answers):
    """Checks that each Pod was created."""

    def problem(self, request: Request, answer: Answer) -> str:
        """See ``Answers``."""
        return "" if answer.status == 201 else f"{answer.status_line}: {answer.body[:200].decode()}"


class Creates:
    """Creates of *document* as dry runs."""

    def __init__(self, cluster: Cluster, document: dict[str, Any]) -> None:
        tls = ssl.create_default_context(cafile=str(cluster.ca_file))
        self._address = Address("127.0.0.1", cluster.port, tls)
        self._body = json.dumps(document).encode()

    def address(self) -> Callable[[], Address]:
        """See ``Measurable``."""
        return lambda: self._address

    def requests(self) -> Sequence[Request]:
        """See ``Measurable``."""
        headers = {"Accept": "application/json", "Authorization": f"Bearer {ADMIN}"}
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        return [Request("", post(path, "127.0.0.1", self._body, headers))]

    def answers(self) -> Answers:
        """See ``Measurable``."""
        return CreateAnswers()


def create_pods(document: dict[str, Any], cluster: Cluster, plan: Plan, pids: Sequence[int]) -> Measured:
    """Create *document* by a single client, and then at full load; *pids* serve the webhooks.

    Raises:
        SystemExit: a create failed.
    """
    creates = Creates(cluster, document)
    single = _checked(uvloop.run(measure_closed(creates, 1, 0.0, plan.single_s)))
    watched = [cluster.api_server_pid, *pids]
    full = _checked(uvloop.run(measure_closed(creates, plan.clients, plan.warmup_s, plan.seconds, watched)))
    used = [full.cpu_s[str(pid)] / full.reviews * 1000 for pid in watched]
    answered = full.answered + single.answered
    per_s = full.reviews / full.seconds
    return Measured(per_s, single.latencies_ms["p50"], used[0], sum(used[1:]), answered)


def _checked(found: Measurement) -> Measurement:
    if found.errors:
        sys.exit(f"creates failed: {json.dumps(found.errors)[:2000]}")
    return found


def share(rounds: Sequence[Mapping[str, Measured]], case: Case, of: Case) -> float:
    """Return the creates per second of *case*, of those of *of*."""
    return median(one[case.title].per_s / one[of.title].per_s for one in rounds)


def added_ms(rounds: Sequence[Mapping[str, Measured]], case: Case) -> float:
    """Return what *case* adds to the median latency of a single create."""
    return median(one[case.title].p50_ms - one[NOTHING.title].p50_ms for one in rounds)


def table(rounds: Sequence[Mapping[str, Measured]]) -> str:
    """Return the medians of *rounds* as a Markdown table; ratios are formed within a round."""
    rows = []
    for case in CASES:
        if case.title not in rounds[0]:
            continue
        found = [one[case.title] for one in rounds]
        of_one, added, times = "", "", ""
        if case.phase is not None:
            webhook = ONE[case.phase]
            of_one = f"{share(rounds, case, webhook):.2f}"
            added = f"{added_ms(rounds, case):+.2f} ms"
            times = f"{added_ms(rounds, case) / added_ms(rounds, webhook):.2f}"
        cells = [
            case.title,
            f"{median(one.per_s for one in found):,.0f}",
            *(f"{share(rounds, case, NOTHING):.2f}", of_one),
            f"{median(one.p50_ms for one in found):.2f} ms",
            *(added, times),
            f"{median(one.api_server_ms for one in found):.2f} ms",
            f"{median(one.others_ms for one in found):.2f} ms",
        ]
        rows.append(cells)
    return markdown_table(HEADINGS, rows, left=(0,))


def targets(rounds: Sequence[Mapping[str, Measured]]) -> str:
    """Return the verdicts on ten policies behind the gateway as a Markdown table."""
    wanted = []
    numbers: dict[str, float] = {}
    missing: dict[str, str] = {}
    for case in BEHIND:
        assert case.phase is not None
        webhook = ONE[case.phase]
        rate = f"{case.title}: creates/s, of one Go webhook's"
        single = f"{case.title}: added to one create, times what one Go webhook adds"
        wanted += [
            _target("rate", rate, "at least", MIN_SHARE),
            _target("single", single, "at most", MAX_ADDED),
        ]
        if case.title in rounds[0]:
            numbers[rate] = share(rounds, case, webhook)
            numbers[single] = added_ms(rounds, case) / added_ms(rounds, webhook)
        else:
            missing |= dict.fromkeys((rate, single), "was not measured")
    few = f"{len(rounds)} rounds: at least {MIN_ROUNDS} are needed" if len(rounds) < MIN_ROUNDS else ""
    wanted = [replace(target, objection=lambda _: few) for target in wanted]
    return targets_table(judge(wanted, Found((), numbers, missing)))


def _target(number: str, name: str, bound: Bound, limit: float) -> Target:
    return Target(number, name, (name,), lambda found: found.numbers[name], bound, limit)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: noisy")
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--clients", type=int, default=Plan.clients)
    parser.add_argument("--version", default=VERSIONS[0], choices=VERSIONS, help="of Kubernetes")
    parser.add_argument(
        "--only", default="", help="the controls, and the cases with this text in their titles"
    )
    parser.add_argument("--output", type=Path, help="default: loadtest/results/DATE-api-server.md")
    parsed = parser.parse_args()
    kept = None if parsed.quick else report_file("api-server")
    # SIGTERM ends its processes too, as SIGINT does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = Plan(parsed.clients, parsed.rounds)
    if parsed.quick:
        plan = Plan(parsed.clients, 1, 2.0, 1.0, 0.5)
    tools, binaries = build_tools(), obtain(parsed.version)
    controls = (NOTHING, *ONE.values())
    cases = [case for case in CASES if case in controls or parsed.only in case.title]
    rounds: list[dict[str, Measured]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "cluster").mkdir()
        cluster = stack.enter_context(Cluster(binaries, folder / "cluster", sync=True))
        for number in range(plan.rounds):
            found = {}
            for case in alternating(cases, number):
                here = folder / f"{number}-{cases.index(case)}"
                here.mkdir()
                found[case.title] = measure(case, cluster, plan, here, tools)
                print(f"round {number + 1}: {case.title}: {found[case.title].per_s:,.0f}/s", file=sys.stderr)
            rounds.append(found)
    how = (
        f"kube-apiserver {binaries.version}, etcd and all else on the same cores; {plan.clients} clients, "
        f"{plan.rounds} rounds of {plan.seconds:g} s, medians; one process each of gateway and worker"
    )
    sections = {"Targets": targets(rounds), "Pod creates": table(rounds)}
    publish("Policies before a real API server", how, sections, parsed.output or kept)


if __name__ == "__main__":
    main()

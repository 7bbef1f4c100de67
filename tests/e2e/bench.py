"""``make e2e-bench``: the cost of webhooks for an API server, registered one by one and behind the gateway.

Pod creates (dry run) at a real kube-apiserver: without webhooks, with one trivial Go webhook, with ten of
them, and with the same ten policies behind the gateway, in a Go and in a Python worker. Each case is measured
at full load, for creates per second, and with a single client, for the latency of one create.

All processes share the machine's cores: compare the ratios. Each is formed within a round, in which all cases
are measured one after another, and the median over the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from loadtest.measurement import cpu_clock
from loadtest.report import machine, markdown_table, versions
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import ADMIN, Cluster
from tests.e2e.go_tools import build_tools
from tests.e2e.objects import pod
from tests.e2e.setups import BehindGateway, Directly, Hook, Phase, rule
from tests.kit import Process, pool_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

POLICIES: Final = 10
CREATES: Final = (rule("pods", "CREATE"),)
HEADINGS: Final = (
    *("pod creates, dry run", "per second", "of no webhook", "of 1 webhook", "one create, p50", "added"),
    *("API server, CPU a create", "webhook, or gateway and worker"),
)


class GoWebhooks(Directly):
    """Go webhooks, registered one by one and served by one process."""

    program: Path

    def start(self) -> None:
        certificate, key = self.certificate
        self.webhook = Process(
            *(str(self.program), "--listen", "127.0.0.1:0"),
            *("--tls-cert", str(certificate), "--tls-key", str(key)),
            stdout=subprocess.PIPE,
        )
        self.stack.callback(self.webhook.stop)
        self.webhook_port = int(_first_line(self.webhook).rpartition(":")[2])
        super().start()

    def client_config(self, index: int, hook: Hook) -> dict[str, Any]:
        found = super().client_config(index, hook)
        if hook.policy is not None:
            verb = "mutate" if hook.phase == "mutate" else "allow"
            found["service"] |= {"port": self.webhook_port, "path": f"/{verb}/{index}"}
        return found

    @property
    def pids(self) -> list[int]:
        return [self.webhook.child.pid]


class GatewayWithWorker(BehindGateway):
    """The gateway with a worker that serves the policies of the Go webhooks."""

    command: list[str]

    def write_configuration(self) -> None:
        super().write_configuration()
        target = f"unix:{self.folder / 'policies.sock'}"
        self.config.joinpath("policies.yaml").write_text(pool_document("policies", target))
        self.policies = Process(*self.command, "--listen", target, stdout=subprocess.PIPE)
        self.stack.callback(self.policies.stop)
        if self.command[0] == sys.executable:
            self.policies.expect("policies on ")
        else:
            _first_line(self.policies)

    @property
    def pids(self) -> list[int]:
        return [self.gateway.child.pid, self.policies.child.pid]


@dataclass(frozen=True)
class Case:
    """One way to serve policies."""

    title: str
    phase: Phase | None = None
    count: int = 0
    worker: str = ""
    """``go`` or ``python``: behind the gateway; empty: each policy is a webhook."""

    def hooks(self) -> list[Hook]:
        assert self.phase is not None
        return [
            Hook(self.phase, f"policy-{n}.bench.test", {}, CREATES, pool="policies", policy=f"policy-{n}")
            for n in range(self.count)
        ]

    def setup(self, cluster: Cluster, folder: Path, tools: Mapping[str, Path]) -> AbstractContextManager[Any]:
        if self.phase is None:
            return nullcontext()
        if not self.worker:
            directly = GoWebhooks(cluster, folder, self.hooks())
            directly.program = tools["webhook"]
            return directly
        behind = GatewayWithWorker(cluster, folder, self.hooks())
        python = [sys.executable, "-m", "tests.e2e.bench_worker"]
        behind.command = [str(tools["worker"])] if self.worker == "go" else python
        return behind


NOTHING: Final = Case("no webhook")
ONE: Final = Case("1 Go webhook, mutating", "mutate", 1)
CASES: Final = (
    NOTHING,
    ONE,
    Case("10 Go webhooks, mutating", "mutate", POLICIES),
    Case("10 Go webhooks, validating", "validate", POLICIES),
    Case("gateway, 10 mutating, Go worker", "mutate", POLICIES, "go"),
    Case("gateway, 10 validating, Go worker", "validate", POLICIES, "go"),
    Case("gateway, 10 mutating, Python worker", "mutate", POLICIES, "python"),
    Case("gateway, 10 validating, Python worker", "validate", POLICIES, "python"),
)


@dataclass(frozen=True)
class Plan:
    """Length and number of the measurements."""

    clients: int = 32
    rounds: int = 5
    seconds: float = 4.0
    warmup_s: float = 1.0
    single: int = 300
    """Number of creates of the single client."""


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


def measure(case: Case, cluster: Cluster, plan: Plan, folder: Path, tools: Mapping[str, Path]) -> Measured:
    """Start *case*, measure it, and stop it.

    Raises:
        SystemExit: a create failed, or a policy was not called.
    """
    body = folder / "pod.json"
    body.write_text(json.dumps(pod("bench-")))
    common = [
        *(str(tools["load"]), "--server", f"https://127.0.0.1:{cluster.port}", "--ca", str(cluster.ca_file)),
        *("--token", ADMIN, "--object", str(body), "--dry-run"),
    ]
    with case.setup(cluster, folder, tools) as setup:
        single = _load([*common, "--clients", "1", "--count", str(plan.single)])
        pids = [cluster.api_server_pid, *([] if setup is None else setup.pids)]
        before_calls = _calls(case, cluster, setup)
        clocks = [cpu_clock(pid) for pid in pids]
        before = [time.clock_gettime(clock) for clock in clocks]
        full = _load(
            [
                *(*common, "--clients", str(plan.clients)),
                *("--seconds", str(plan.seconds), "--warmup", str(plan.warmup_s)),
            ]
        )
        after = [time.clock_gettime(clock) for clock in clocks]
        creates = full["created"] + full["warmup_created"]
        calls = _calls(case, cluster, setup) - before_calls
        if calls != creates * case.count:
            sys.exit(f"{case.title}: {calls:g} calls of policies for {creates} creates")
    used = [(late - early) / creates * 1000 for early, late in zip(before, after, strict=True)]
    return Measured(full["per_second"], single["p50_ms"], used[0], sum(used[1:]))


def _load(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    if report["errors"]:
        sys.exit(f"creates failed: {json.dumps(report['error_kinds'])[:2000]}")
    return report


def _first_line(process: Process) -> str:
    """Return the line that a Go program prints when it serves."""
    assert process.child.stdout is not None
    line: str = process.child.stdout.readline().strip()
    assert line, process.log
    return line


def _calls(case: Case, cluster: Cluster, setup: Any) -> float:
    """Return the number of calls of policies so far, by the API server or by the gateway."""
    if case.worker:
        calls: float = setup.gateway.metric(
            "admission_gateway_worker_calls_total", pool="policies", code="OK"
        )
        return calls
    text = cluster.api.get("/metrics").message
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("apiserver_admission_webhook_request_total") and ".bench.test" in line
    )


def table(rounds: Sequence[Mapping[str, Measured]]) -> str:
    """Return the medians of *rounds* as a Markdown table; ratios are formed within a round."""
    titles = [case.title for case in CASES if case.title in rounds[0]]
    rows = []
    for title in titles:
        found = [one[title] for one in rounds]
        of = [
            f"{median(one[title].per_s / one[other.title].per_s for one in rounds):.2f}"
            for other in (NOTHING, ONE)
        ]
        added = median(one[title].p50_ms - one[NOTHING.title].p50_ms for one in rounds)
        cells = [
            title,
            f"{median(one.per_s for one in found):,.0f}",
            *of,
            f"{median(one.p50_ms for one in found):.2f} ms",
            "" if title == NOTHING.title else f"{added:+.2f} ms",
            f"{median(one.api_server_ms for one in found):.2f} ms",
            f"{median(one.others_ms for one in found):.2f} ms",
        ]
        rows.append(cells)
    return markdown_table(HEADINGS, rows, left=(0,))


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: noisy")
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--clients", type=int, default=Plan.clients)
    parser.add_argument("--version", default=VERSIONS[0], choices=VERSIONS, help="of Kubernetes")
    parser.add_argument(
        "--only", default="", help="the first two cases, and those with this text in their titles"
    )
    parser.add_argument(
        "--output", type=Path, help="write the table to this file too, with machine and versions"
    )
    parsed = parser.parse_args()
    # SIGTERM ends its processes too, as SIGINT does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = Plan(parsed.clients, parsed.rounds)
    if parsed.quick:
        plan = Plan(parsed.clients, 1, 2.0, 1.0, 100)
    tools, binaries = build_tools(), obtain(parsed.version)
    cases = [case for case in CASES if case in (NOTHING, ONE) or parsed.only in case.title]
    rounds: list[dict[str, Measured]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "cluster").mkdir()
        cluster = stack.enter_context(Cluster(binaries, folder / "cluster", sync=True))
        for number in range(plan.rounds):
            found = {}
            # Odd rounds reverse the order, so that a machine that becomes slower favours no case.
            for case in cases if number % 2 == 0 else reversed(cases):
                here = folder / f"{number}-{cases.index(case)}"
                here.mkdir()
                found[case.title] = measure(case, cluster, plan, here, tools)
                print(f"round {number + 1}: {case.title}: {found[case.title].per_s:,.0f}/s", file=sys.stderr)
            rounds.append(found)
    how = (
        f"kube-apiserver {binaries.version}, etcd and all else on the same cores; {plan.clients} clients, "
        f"{plan.rounds} rounds of {plan.seconds:g} s, medians; one process each of gateway and worker"
    )
    text = f"{how}\n\n{table(rounds)}"
    print(text)
    if parsed.output:
        head = f"# Policies before a real API server, {datetime.now(UTC):%Y-%m-%d}"
        parsed.output.write_text(f"{head}\n\n{machine()}\n\n{versions()}\n\n{text}\n")
        print(f"written to {parsed.output}", file=sys.stderr)


if __name__ == "__main__":
    main()

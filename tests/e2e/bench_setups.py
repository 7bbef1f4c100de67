"""Set-ups of the benchmarks: trivial policies as Go webhooks, behind the gateway, and the front end alone."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from loadtest.measurement import cpu_clock
from loadtest.report import machine, versions
from loadtest.result_files import RESULTS
from tests.e2e.setups import BehindGateway, Directly, Hook, Phase, rule
from tests.kit import REVIEWS, Process, pool_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.e2e.cluster import Cluster

T = TypeVar("T")

POLICIES: Final = 10
CREATES: Final = (rule("pods", "CREATE"),)


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
        assert self.webhook.child.stdout is not None
        line = self.webhook.child.stdout.readline().strip()
        assert line, self.webhook.log
        self.webhook_port = int(line.rpartition(":")[2])
        super().start()

    def client_config(self, index: int, hook: Hook) -> dict[str, Any]:
        found = super().client_config(index, hook)
        if hook.policy is not None:
            found["service"] |= {"port": self.webhook_port, "path": self.path(hook)}
        return found

    def path(self, hook: Hook) -> str:
        return f"/{hook.policy}"

    @property
    def pids(self) -> list[int]:
        return [self.webhook.child.pid]


class FrontEnd(GoWebhooks):
    """The gateway's front end, which allows every review: the limit of what a gateway can reach."""

    def start(self) -> None:
        certificate, _ = self.certificate
        review = REVIEWS / "pod-create-6kb.json"
        # The state folder holds the certificate, under the names that the cluster's files have too.
        self.webhook = Process(
            *(sys.executable, "-m", "loadtest.floor", str(review), "--any"),
            *("--state", str(certificate.parent)),
        )
        self.stack.callback(self.webhook.stop)
        self.webhook_port = int(self.webhook.expect(r"serving on https://127\.0\.0\.1:(\d+)")[1])
        Directly.start(self)

    def path(self, hook: Hook) -> str:
        return "/validate"


class GatewayWithWorker(BehindGateway):
    """The gateway with a worker that serves the policies of the Go webhooks."""

    command: list[str]

    def write_configuration(self) -> None:
        super().write_configuration()
        target = f"unix:{self.folder / 'policies.sock'}"
        self.config.joinpath("policies.yaml").write_text(pool_document("policies", target))
        self.policies = Process(*self.command, "--listen", target, stdout=subprocess.DEVNULL)
        self.stack.callback(self.policies.stop)
        self.policies.expect("policies on ")

    @property
    def pids(self) -> list[int]:
        return [self.gateway.child.pid, self.policies.child.pid]


@dataclass(frozen=True)
class Case:
    """One way to serve policies."""

    title: str
    phase: Phase | None = None
    count: int = 0
    server: str = "webhook"
    """``webhook``: each policy is a Go webhook; ``floor``: the front end alone; ``go`` and ``python``: the
    gateway with such a worker."""
    policy: str = "policy-"
    """How names of policies begin: ``policy-`` for those that change nothing, ``label`` for the others."""

    @property
    def is_behind_gateway(self) -> bool:
        return self.server in ("go", "python")

    def hooks(self) -> list[Hook]:
        assert self.phase is not None
        return [
            Hook(self.phase, f"{name}.bench.test", {}, CREATES, pool="policies", policy=name)
            for name in (f"{self.policy}{number}" for number in range(self.count))
        ]

    def setup(self, cluster: Cluster, folder: Path, tools: Mapping[str, Path]) -> AbstractContextManager[Any]:
        """Return the set-up, to be entered; its ``pids`` are the processes whose CPU counts."""
        if self.phase is None:
            return nullcontext()
        if self.is_behind_gateway:
            behind = GatewayWithWorker(cluster, folder, self.hooks())
            python = [sys.executable, "-m", "tests.e2e.bench_worker"]
            behind.command = [str(tools["worker"])] if self.server == "go" else python
            return behind
        kind = FrontEnd if self.server == "floor" else GoWebhooks
        directly = kind(cluster, folder, self.hooks())
        directly.program = tools["webhook"]
        return directly

    def calls(self, cluster: Cluster, setup: Any) -> float:
        """Return the number of calls of policies so far, by the API server or by the gateway."""
        if self.is_behind_gateway:
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


NOTHING: Final = Case("no webhook")
ONE: Final[Mapping[Phase, Case]] = {
    "mutate": Case("1 Go webhook, mutating", "mutate", 1),
    "validate": Case("1 Go webhook, validating", "validate", 1),
}
"""The reference for ten policies of the same phase."""
BEHIND: Final = (
    Case("gateway, 10 mutating, Go worker", "mutate", POLICIES, "go"),
    Case("gateway, 10 validating, Go worker", "validate", POLICIES, "go"),
    Case("gateway, 10 mutating, Python worker", "mutate", POLICIES, "python"),
    Case("gateway, 10 validating, Python worker", "validate", POLICIES, "python"),
)
CASES: Final = (
    NOTHING,
    *ONE.values(),
    Case("front end alone, mutating", "mutate", 1, "floor"),
    Case("front end alone, validating", "validate", 1, "floor"),
    Case("10 Go webhooks, mutating", "mutate", POLICIES),
    Case("10 Go webhooks, validating", "validate", POLICIES),
    *BEHIND,
)


def settle(pid: int) -> None:
    """Wait until the API server *pid* uses little CPU, ten seconds at most.

    It goes on for a while after a controller has made its definitions, whose schemas it publishes.
    """
    for _ in range(20):
        before = time.clock_gettime(cpu_clock(pid))
        time.sleep(0.5)
        if time.clock_gettime(cpu_clock(pid)) - before < 0.05:
            return


def alternating(cases: Sequence[T], number: int) -> Sequence[T]:
    """Return *cases* in the order of round *number*: odd rounds reverse it, so that drift favours no case."""
    return cases if number % 2 == 0 else cases[::-1]


def report_file(kind: str) -> Path:
    """Return the file of today's report of *kind*."""
    return RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{kind}.md"


def publish(title: str, how: str, sections: Mapping[str, str], output: Path | None) -> None:
    """Print the *sections*, and write them to *output* with machine and versions."""
    text = "\n\n".join(f"## {heading}\n\n{section}" for heading, section in sections.items())
    print(how, text, sep="\n\n")
    if output is not None:
        when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        lines = "\n".join(f"- {line}" for line in (how, machine(), versions(), when))
        output.write_text(f"# {title}\n\n{lines}\n\n{text}\n")
        print(f"written to {output}", file=sys.stderr)

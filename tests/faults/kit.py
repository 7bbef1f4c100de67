"""Shared by tests of faults: metrics of a gateway, and logs of its workers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tests.kit import GatewayProcess, WorkerProcess, free_port, pool_document, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.load import Load, Tally

StartWorker = Callable[..., WorkerProcess]
"""``start_worker(listen=None, *flags)``"""


class Worker(Protocol):
    """A worker as a process."""

    target: str


SOME_PORT = "127.0.0.1:0"


def own_port() -> str:
    """Return an address at which a process can be started again: the system gives its port to no other."""
    return f"127.0.0.1:{free_port()}"


REVIEW = "pod-create-validate"
CALLS = "admission_gateway_worker_calls_total"


def override(**members: Any) -> tuple[str, str]:
    """Return the flags of a worker whose scripts all get *members*."""
    return "--override", json.dumps(members)


def configure(folder: Path, *documents: str) -> Path:
    """Write a configuration and return its folder."""
    (folder / "c.yaml").write_text("".join(documents))
    return folder


def one_webhook(*targets: str, webhook: dict[str, Any] | None = None, **pool: Any) -> str:
    """Return a configuration of one pool, of *targets*, and one webhook whose policy answers after 20 ms.

    The delay keeps calls in flight when a fault happens. *pool* and *webhook* hold further fields.
    """
    return pool_document("pool", *targets, **pool) + webhook_document(
        "validate", "v", "pool", {"delay_ms": 20}, **(webhook or {})
    )


def with_side_effects(configuration: str) -> str:
    """Return *configuration* in v1beta1, the version that allows ``sideEffects: Some``."""
    return configuration.replace("admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1")


def endpoints(gateway: GatewayProcess, pool: str, state: str = "ready") -> float:
    """Return how many endpoints of *pool* are in *state*."""
    return gateway.metric("admission_gateway_worker_endpoints", pool=pool, state=state)


def wait_until_ready(gateway: GatewayProcess, count: int, pool: str = "pool") -> None:
    """Wait until *pool* has *count* ready endpoints."""
    eventually(lambda: endpoints(gateway, pool) == count, f"{count} endpoints of {pool} are ready")


def calls(gateway: GatewayProcess, worker: Worker, **labels: str) -> float:
    """Return the gateway's count of finished calls to *worker*."""
    return gateway.metric(CALLS, endpoint=f"ipv4:{worker.target}", **labels)


def wait_until_called(gateway: GatewayProcess, worker: Worker, answers: int = 10) -> None:
    """Wait until *worker* has sent *answers* more answers."""
    wanted = calls(gateway, worker, code="OK") + answers
    eventually(lambda: calls(gateway, worker, code="OK") >= wanted, f"{worker.target} gets calls again")


def retries(gateway: GatewayProcess) -> float:
    """Return how many calls were retried because their worker was lost."""
    return gateway.metric("admission_gateway_worker_retries_total")


def kill(worker: WorkerProcess) -> None:
    """Kill *worker* with SIGKILL."""
    worker.child.kill()
    worker.wait()


def calls_by_review(*logs: Path) -> Counter[tuple[str, str]]:
    """Return the number of calls by uid of the review and policy, from the logs of workers."""
    counts: Counter[tuple[str, str]] = Counter()
    for log in logs:
        for line in log.read_text().splitlines() if log.exists() else ():
            uid, _, policy = line.partition(" ")
            counts[uid, policy] += 1
    return counts


def all_well(tally: Tally) -> bool:
    """Whether every review was answered and allowed by workers."""
    return tally.sent == tally.answered == tally.allowed and not tally.failed_open and not tally.texts


def wait_past(load: Load, answers: int) -> None:
    """Wait until all reviews in flight are answered, and then for *answers* more."""
    load.wait_for_those_in_flight()
    load.wait_for(answers)


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of a process."""

    descriptors: int
    resident_bytes: int


def resources(process_id: int) -> Resources:
    """Return the resources of a process. Source: proc(5), ``fd`` and ``status``."""
    folder = Path(f"/proc/{process_id}")
    found = re.search(r"VmRSS:\s+(\d+) kB", (folder / "status").read_text())
    assert found is not None
    return Resources(len(list((folder / "fd").iterdir())), int(found[1]) * 1024)

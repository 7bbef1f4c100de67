"""What the benchmark compares: the cases, and the configuration that gives each a path.

One gateway per transport serves all its cases, each at the path of its own configuration object, so that the
cases differ in nothing but what the path selects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import yaml

from loadtest.floor import PATH as FLOOR_PATH
from loadtest.worker import mutating_name, validating_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Server = Literal["floor", "stream", "unary"]

WORKERS: Final = 4
"""Processes, each a pool of its own. Cases with up to four policies use the first only."""
_PER_WORKER: Final = 4
_COUNTS: Final = (1, 4, 16)
_RULE: Final = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "scope": "Namespaced",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure."""

    name: str
    title: str
    server: Server
    path: str


FLOOR: Final = Case("floor", "floor: same front end, orjson.loads, fixed answer", "floor", FLOOR_PATH)
CASES: Final = (
    FLOOR,
    Case("stream-1", "1 validating policy, stream", "stream", "/validate/policies-1"),
    Case("stream-4", "4 validating policies on one worker, stream", "stream", "/validate/policies-4"),
    Case("stream-16", "16 validating policies on four workers, stream", "stream", "/validate/policies-16"),
    Case("mutate-4", "4 mutating policies that change nothing, stream", "stream", "/mutate/policies-4"),
    Case("unary-1", "1 validating policy, unary", "unary", "/validate/policies-1"),
    Case("unary-4", "4 validating policies on one worker, unary", "unary", "/validate/policies-4"),
    Case("unary-16", "16 validating policies on four workers, unary", "unary", "/validate/policies-16"),
)
"""In the order of the table."""


def configuration(transport: Literal["Stream", "Unary"], worker_addresses: Sequence[str]) -> str:
    """Return the YAML of a gateway that calls the workers at *worker_addresses*, ``WORKERS`` of them."""
    documents = [_pool(number, address, transport) for number, address in enumerate(worker_addresses)]
    documents += [_webhooks("Validating", validating_name, count) for count in _COUNTS]
    documents.append(_webhooks("Mutating", mutating_name, 4))
    return yaml.safe_dump_all(documents, sort_keys=False)


def _pool(number: int, address: str, transport: str) -> dict[str, Any]:
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": f"worker-{number}"},
        "spec": {"target": address, "transport": transport},
    }


def _webhooks(phase: str, policy_name: Callable[[int], str], count: int) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{phase}WebhookConfiguration",
        "metadata": {"name": f"policies-{count}"},
        "webhooks": [
            {
                "name": f"{policy_name(number)}.loadtest.example",
                "clientConfig": {
                    "worker": {"pool": f"worker-{number // _PER_WORKER}", "policy": policy_name(number)}
                },
                "rules": [dict(_RULE)],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for number in range(count)
        ],
    }

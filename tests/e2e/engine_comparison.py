"""Clusters in which documents of another policy engine are in force, and what users see of operations there.

The same operations under the engine's own program and behind the gateway have to be seen alike.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.server.serving.devcert import make_development_certificate
from loadtest.peers.clustered import GatekeeperCel
from loadtest.peers.programs import obtain as obtain_peer
from loadtest.peers.setups import Bed
from tests.e2e.bench_peers import SERVICE, webhook
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.policy_comparison import stable
from tests.e2e.setups import REGISTRATIONS
from tests.kit import load_yaml
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from loadtest.servers import Server
    from tests.e2e.client import Answer
    from tests.e2e.compare import Operation
    from tests.e2e.engine_scenarios import Scenario

    Json = dict[str, Any]

DENIAL: Final = re.compile(r'^admission webhook "[^"]+" denied the request: ')
DRAWN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BETWEEN: Final = re.compile(r"(?:; |\n)(?=Policy )|\n(?=\[)")
"""What joins the denials of several policies and constraints."""
ADMIT: Final = "/v1/admit"
"""The path at which Gatekeeper validates."""


@dataclass(frozen=True)
class Seen:
    """What a user sees of an operation."""

    status: int
    reason: str
    denials: tuple[str, ...]
    warnings: tuple[str, ...]
    stored: Json | None


Outcomes = dict[tuple[str, int], Seen]
"""By scenario and number of the operation."""


class Running:
    """A cluster with the namespaces of *scenarios*, in which their documents are in force."""

    def __init__(self, cluster: Cluster, scenarios: Sequence[Scenario], canaries: Sequence[Scenario]) -> None:
        self._cluster, self._scenarios, self._canaries = cluster, scenarios, canaries

    def make_namespaces(self) -> None:
        """Make them."""
        for scenario in (*self._scenarios, *self._canaries):
            named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scenario.name}}
            answer = self._cluster.api.create("/api/v1/namespaces", named)
            assert answer.status == 201, answer

    def outcomes(self) -> Outcomes:
        """Perform all operations when the canaries refuse theirs."""
        self.wait()
        return {
            (scenario.name, number): self._seen_in_time(scenario, number)
            for scenario in self._scenarios
            for number in range(len(scenario.operations))
        }

    def wait(self) -> None:
        """Wait until the canaries refuse their operations."""
        for canary in self._canaries:
            eventually(partial(self._refuses, canary), canary.name)

    def change(self, scenario: Scenario, changes: Iterable[Operation]) -> None:
        """Perform *changes* in the namespace of *scenario*; each has to succeed."""
        for each in changes:
            answer = self.perform(scenario, each)
            assert answer.status < 300, answer

    def seen_of(self, scenario: Scenario, operations: Iterable[Operation]) -> Outcomes:
        """Perform *operations* in the namespace of *scenario*."""
        return {
            (scenario.name, number): self.seen(scenario, operation)
            for number, operation in enumerate(operations)
        }

    def _refuses(self, canary: Scenario) -> bool:
        return DENIAL.match(self.perform(canary, canary.operations[0]).message) is not None

    def perform(self, scenario: Scenario, operation: Operation) -> Answer:
        """Return the answer to *operation* in the namespace of *scenario*."""
        path = operation.path.replace("{namespace}", scenario.name)
        api = self._cluster.user(operation.user)
        return api.request(operation.method, path, operation.document, operation.content_type)

    def _seen_in_time(self, scenario: Scenario, number: int) -> Seen:
        operation, status = scenario.operations[number], scenario.awaited.get(number)
        if status is not None:
            what = f"{scenario.name} {number}: {status}"
            eventually(lambda: self.perform(scenario, operation).status == status, what)
        return self.seen(scenario, operation)

    def seen(self, scenario: Scenario, operation: Operation) -> Seen:
        """Perform *operation* of *scenario*."""
        return self.seen_in(operation, self.perform(scenario, operation))

    def seen_in(self, operation: Operation, answer: Answer) -> Seen:
        """Return what a user sees in the *answer* to *operation*."""
        is_denied = answer.status >= 400
        # Gatekeeper ends the text of an error with blank lines.
        text = DENIAL.sub("", answer.message).rstrip() if is_denied else ""
        fixed = partial(_fixed, operation)
        return Seen(
            answer.status,
            answer.document.get("reason", "") if is_denied else "",
            tuple(sorted(map(fixed, BETWEEN.split(text)))),
            tuple(sorted(map(fixed, answer.warnings))),
            _comparable(operation, stable(answer.document)),
        )


def _comparable(operation: Operation, document: Json | None) -> Json | None:
    """Return *document* without the time of its deletion, and without what is drawn."""
    if document is not None:
        document["metadata"].pop("deletionTimestamp", None)
    compared: Json | None = json.loads(_fixed(operation, json.dumps(document)))
    return compared


def _fixed(operation: Operation, text: str) -> str:
    """Return *text* without what is drawn: the end of a generated name, and IDs of Jobs and mutations."""
    metadata = operation.document.get("metadata", {}) if isinstance(operation.document, dict) else {}
    if start := metadata.get("generateName"):
        text = re.sub(rf"\b{re.escape(start)}[a-z0-9]{{5}}\b", f"{start}DRAWN", text)
    return DRAWN_ID.sub("DRAWN", text)


def assert_equal(found: Outcomes, expected: Outcomes) -> None:
    """Fail with each difference, unless *found* has what is *expected*."""
    lines = [
        f"{scenario} {number}, {name}: {getattr(found[scenario, number], name)!r}, expected {value!r}"
        for (scenario, number), seen in expected.items()
        for name, value in vars(seen).items()
        if getattr(found[scenario, number], name) != value
    ]
    if lines:
        pytest.fail("\n".join(lines))


def bed(stack: ExitStack, folder: Path) -> tuple[Bed, Cluster]:
    """Return a new cluster, and what the program of an engine is started with; *stack* ends both."""
    cluster = stack.enter_context(Cluster(obtain(VERSIONS[0]), folder / "cluster"))
    return Bed(stack, folder, *make_development_certificate(folder / "state"), clusters=[cluster]), cluster


def taken(cluster: Cluster) -> int:
    """Return how many constraints Gatekeeper says that it enforces, or that it cannot enforce."""
    found = cluster.api.get("/apis/status.gatekeeper.sh/v1beta1/constraintpodstatuses").document["items"]
    return sum(bool(each["status"].get("enforced") or each["status"].get("errors")) for each in found)


class Gatekeeper(GatekeeperCel):
    """Gatekeeper without the templates of the comparison of speed."""

    validates = False


def registrations(wider: Iterable[str] = ()) -> Iterator[Json]:
    """Yield Gatekeeper's registrations by its manifest, with Fail and the time that a busy machine needs.

    In the namespaces *wider* it is called for DELETE and CONNECT too, which is an option of its chart.
    """
    program = obtain_peer(Gatekeeper.program)
    assert program is not None
    for document in load_yaml((program / "manifest_staging/deploy/gatekeeper.yaml").read_text()):
        if not document or not document["kind"].endswith("WebhookConfiguration"):
            continue
        # The second validating one protects the label that exempts a namespace.
        found = document["webhooks"][0] | {"failurePolicy": "Fail", "timeoutSeconds": 30}
        webhooks = [found]
        if found["clientConfig"]["service"]["path"] == ADMIT:
            named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(wider)}
            of_wider = {
                "name": f"wider.{found['name']}",
                "rules": [{**each, "operations": ["DELETE", "CONNECT"]} for each in found["rules"]],
                "namespaceSelector": {"matchExpressions": [named]},
            }
            webhooks.append({**found, **of_wider})
        yield {**document, "webhooks": webhooks}


def register(cluster: Cluster, server: Server, folder: Path, wider: Iterable[str] = ()) -> None:
    """Register Gatekeeper by :func:`registrations`. Certificates are somewhere in *folder*."""
    cluster.add_service(SERVICE)
    for document in registrations(wider):
        for each in document["webhooks"]:
            path = each["clientConfig"]["service"]["path"]
            each["clientConfig"] = webhook(path, server, folder)["webhooks"][0]["clientConfig"]
        plural = document["kind"].lower() + "s"
        answer = cluster.api.create(f"{REGISTRATIONS}/{plural}", document)
        assert answer.status == 201, answer

"""Records what an API server makes of webhooks: the reviews that it sends, and the outcomes of operations."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.e2e.capture import Captured, phase_of, stable_namespace
from tests.e2e.compare import perform
from tests.e2e.outcome import NAMESPACE, audit_annotations, with_annotations
from tests.e2e.setups import Directly
from tests.e2e.webhook_subjects import CAPTURED
from tests.recorded.recording import Operation, Recording, Review, Surroundings
from tests.recorded.webhooks import outcome_as_json, with_stable_requests

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.e2e.compare import Case
    from tests.e2e.outcome import Outcome
    from tests.e2e.webhook_subjects import WebhookSubject

    Json = dict[str, Any]


def record_webhooks(cluster: Cluster, subject: WebhookSubject, folder: Path, version: str) -> Recording:
    """Return what the API server of *cluster*, of *version*, makes of *subject*; *folder* is for files.

    Webhooks of the API server decide. Before them it calls a server that is registered as a gateway with the
    same webhooks, and records what a gateway would get.
    """
    watching = {"auditLevel": "Request", "kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
    performed: list[tuple[Case, tuple[Review, ...], Answer, Outcome]] = []
    namespaces = [_made(cluster, case) for case in subject.cases]
    with ExitStack() as stack:
        captured = Captured(cluster, folder / CAPTURED, subject.hooks, CAPTURED, gateway=watching)
        stack.enter_context(captured)
        stack.enter_context(Directly(cluster, folder / "direct", subject.hooks))
        for case in subject.cases:
            for operation in case.operations:
                captured.take()
                api = cluster.user(operation.user)
                answer, outcome = perform(api, operation, f"case-{case.name}", case.names())
                reviews = _first_calls(captured.take())
                performed.append((case, reviews, answer, outcome))
    audited = audit_annotations(cluster, [answer for _, _, answer, _ in performed])
    operations: dict[str, tuple[Operation, ...]] = {}
    for case, reviews, answer, outcome in performed:
        annotations = audited[answer.headers["Audit-Id"]]
        found = with_annotations(outcome, annotations, NAMESPACE, case.names())
        one = Operation(reviews, outcome_as_json(with_stable_requests(_with_final(found, reviews)), reviews))
        operations[case.name] = (*operations.get(case.name, ()), one)
    return Recording(Surroundings(version, namespaces, []), {}, operations)


def _made(cluster: Cluster, case: Case) -> Json:
    """Make the namespace of *case*, and return it."""
    metadata = {"name": f"case-{case.name}", "labels": {"case": case.name, **case.labels}}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    created = cluster.api.create("/api/v1/namespaces", document)
    assert created.status == 201, created
    return stable_namespace(created.document)


def _first_calls(reviews: tuple[Review, ...]) -> tuple[Review, ...]:
    """Return *reviews* without those of a reinvocation: at most one of each phase."""
    found: dict[str, Review] = {}
    for review in reviews:
        found.setdefault(phase_of(review.paths[0]), review)
    again = [each for each in reviews if each not in found.values()]
    assert all(set(each.paths) <= set(found["mutate"].paths) for each in again), again
    return tuple(found.values())


def _with_final(outcome: Outcome, reviews: tuple[Review, ...]) -> Outcome:
    """Return *outcome* with the object after the mutating phase, in place of what the user gets and reads."""
    final = reviews[1].request.get("object") if len(reviews) > 1 else None
    return replace(outcome, answer=None, stored=final)

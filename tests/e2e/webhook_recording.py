"""Records what an API server makes of webhooks: the reviews that it sends, and the outcomes of operations."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.e2e.capture import Captured, phase_of, stable_namespace
from tests.e2e.compare import comparable, perform
from tests.e2e.outcome import NAMESPACE, audit_annotations, normalised, with_annotations
from tests.e2e.setups import Directly
from tests.e2e.webhook_subjects import CAPTURED
from tests.recorded.recording import Operation, Recording, Review, Surroundings, text_of
from tests.recorded.webhooks import decided_part, outcome_as_json, with_stable_requests

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.e2e.compare import Case
    from tests.e2e.compare import Operation as SentOperation
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
    for case in subject.cases:
        _make_namespace(cluster, case)
    with ExitStack() as stack:
        captured = Captured(cluster, folder / CAPTURED, subject.hooks, CAPTURED, gateway=watching)
        stack.enter_context(captured)
        stack.enter_context(Directly(cluster, folder / "direct", subject.hooks))
        for case in subject.cases:
            for operation in case.operations:
                captured.take()
                api = cluster.user(operation.user)
                answer, outcome = perform(api, operation, f"case-{case.name}", case.names())
                reviews = _calls(operation, captured.take())
                performed.append((case, reviews, answer, outcome))
    audited = audit_annotations(cluster, [answer for _, _, answer, _ in performed])
    operations: dict[str, tuple[Operation, ...]] = {}
    for case, reviews, answer, outcome in performed:
        annotations = audited[answer.headers["Audit-Id"]]
        found = with_annotations(outcome, annotations, NAMESPACE, case.names())
        one = Operation(
            reviews, outcome_as_json(with_stable_requests(_with_final(case, found, reviews)), reviews)
        )
        operations[case.name] = (*operations.get(case.name, ()), one)
    return Recording(Surroundings(version, _namespaces(cluster, subject), []), {}, operations)


def _make_namespace(cluster: Cluster, case: Case) -> None:
    metadata = {"name": f"case-{case.name}", "labels": {"case": case.name, **case.labels}}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    created = cluster.api.create("/api/v1/namespaces", document)
    assert created.status == 201, created


def _namespaces(cluster: Cluster, subject: WebhookSubject) -> list[Json]:
    """Return the namespaces of *subject*, also those that its operations have made."""
    prefixes = tuple(f"case-{case.name}" for case in subject.cases)
    listed = cluster.api.get("/api/v1/namespaces").document["items"]
    head = {"apiVersion": "v1", "kind": "Namespace"}
    return [
        stable_namespace({**head, "metadata": each["metadata"]})
        for each in listed
        if each["metadata"]["name"].startswith(prefixes)
    ]


def _calls(operation: SentOperation, reviews: tuple[Review, ...]) -> tuple[Review, ...]:
    """Return *reviews* in a stable order, without what differs between runs and without reinvocations.

    They are one of each phase, or one of each phase and object that is deleted.
    """
    found = [replace(each, request=normalised(each.request, NAMESPACE)) for each in reviews]
    if operation.method == "DELETE":
        return tuple(sorted(found, key=lambda each: (each.paths, text_of(each.request))))
    first: dict[str, Review] = {}
    for review in found:
        first.setdefault(phase_of(review.paths[0]), review)
    assert all(set(each.paths) <= set(first["mutate"].paths) for each in found if each not in first.values())
    return tuple(first.values())


def _with_final(case: Case, outcome: Outcome, reviews: tuple[Review, ...]) -> Outcome:
    """Return *outcome* with the object after the mutating phase, in place of what the user gets and reads.

    Annotations of the API server itself are left out.
    """
    annotations = {
        key: text for key, text in outcome.annotations.items() if key.partition("/")[0] in case.names()
    }
    final = decided_part(reviews[1].request) if len(reviews) > 1 else None
    warnings = comparable(case, outcome).warnings
    return replace(outcome, answer=None, warnings=warnings, stored=final, annotations=annotations)

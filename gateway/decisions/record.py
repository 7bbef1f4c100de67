"""One decision as structured data, from which the decision log and all other records are made.

A record has names, outcomes and times, and nothing of the object besides its kind, namespace and name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gateway.core.trace import trace_id_of
from gateway.core.verdict import Allowed, Denied, DryRunRefused
from gateway.core.webhook import WorkerRef

if TYPE_CHECKING:
    from gateway.core.answer import Answer
    from gateway.core.conditions import Excluded
    from gateway.core.matching import Invocation
    from gateway.core.outcome import Outcome
    from gateway.core.review import Json, Resource
    from gateway.core.webhook import Phase

WebhookOutcome = Literal["Allowed", "Denied", "FailedClosed", "FailedOpen", "DryRunRefused", "Excluded"]
"""``FailedClosed`` rejects the request, by failurePolicy Fail; ``FailedOpen`` lets it pass, by Ignore.
``Excluded``: a matchCondition is false."""


@dataclass(frozen=True, slots=True)
class WebhookRecord:
    """One webhook's part in a decision."""

    configuration: str
    webhook: str
    pool: str
    """The worker pool; empty for an HTTPS webhook."""
    policy: str
    """The policy of the worker; empty for an HTTPS webhook."""
    endpoint: str
    """The address that answered; empty if the webhook was not called."""
    round: int
    """0, or 1 for a reinvocation."""
    outcome: WebhookOutcome
    code: int
    """HTTP status: 200, that of the denial, or that of the failure."""
    message: str
    """Of the denial or the failure; the name of the condition for ``Excluded``."""
    started_ms: float
    """From the start of the review to the call, in milliseconds."""
    milliseconds: float
    """From the call to the verdict."""
    has_changed: bool
    """Whether its patch changed the object."""
    is_ahead: bool
    """Whether the call was made before its turn."""
    is_repeated: bool
    """Whether the call was retried or hedged."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The decision of one review."""

    time: float
    """Of the answer, in seconds since 1970."""
    uid: str
    trace_id: str
    """32 hex digits of the API server's trace, or of the gateway's own; empty if there is none."""
    user: str
    operation: str
    kind: Resource
    """Group, version and kind, as requested by the client."""
    resource: Resource
    sub_resource: str
    namespace: str
    name: str
    dry_run: bool
    path: str
    phase: Phase
    allowed: bool
    code: int
    message: str
    """Empty if the request is allowed."""
    milliseconds: float
    configuration_digest: str
    webhooks: tuple[WebhookRecord, ...]
    """In the order of a serial run; those that match, and those that a condition excluded."""


def record_of(answer: Answer, seconds: float, time: float, configuration_digest: str) -> DecisionRecord:
    """Return the record of *answer*, which was given after *seconds* at *time* (seconds since 1970)."""
    evaluation, status = answer.evaluation, answer.decision.status
    request = evaluation.request
    started_at = answer.started_at
    return DecisionRecord(
        time=time,
        uid=request.uid,
        trace_id=trace_id_of(answer.origin.traceparent),
        user=_text(_member(request.document, "userInfo").get("username")),
        operation=request.operation,
        kind=request.kind,
        resource=request.request_resource,
        sub_resource=request.request_sub_resource,
        namespace=request.namespace,
        name=_text(request.document.get("name")),
        dry_run=request.dry_run,
        path=answer.origin.target.partition(b"?")[0].decode("latin-1"),
        phase=answer.selection.phase,
        allowed=status is None,
        code=200 if status is None else status.code,
        message="" if status is None else status.message,
        milliseconds=seconds * 1000,
        configuration_digest=configuration_digest,
        webhooks=(
            *(_outcome(outcome, started_at) for outcome in evaluation.outcomes),
            *(_exclusion(invocation, excluded) for invocation, excluded in evaluation.exclusions),
        ),
    )


def _outcome(outcome: Outcome, started_at: float) -> WebhookRecord:
    webhook, verdict, call = outcome.invocation.webhook, outcome.verdict, outcome.call
    kind: WebhookOutcome
    match verdict:
        case Allowed():
            kind, code, message = "Allowed", 200, ""
        case Denied():
            kind, code, message = "Denied", verdict.code, verdict.message
        case DryRunRefused():
            kind, code, message = "DryRunRefused", 400, ""
        case _:
            kind = "FailedClosed" if outcome.rejects else "FailedOpen"
            code, message = verdict.code, verdict.cause
    pool, policy = _worker(outcome.invocation)
    return WebhookRecord(
        configuration=webhook.configuration,
        webhook=webhook.name,
        pool=pool,
        policy=policy,
        endpoint="" if call is None else call.endpoint,
        round=outcome.round,
        outcome=kind,
        code=code,
        message=message,
        started_ms=0.0 if call is None else (call.started_at - started_at) * 1000,
        milliseconds=0.0 if call is None else call.elapsed_s * 1000,
        has_changed=outcome.has_changed,
        is_ahead=call is not None and call.is_ahead,
        is_repeated=call is not None and call.is_repeated,
    )


def _exclusion(invocation: Invocation, excluded: Excluded) -> WebhookRecord:
    webhook = invocation.webhook
    pool, policy = _worker(invocation)
    return WebhookRecord(
        configuration=webhook.configuration,
        webhook=webhook.name,
        pool=pool,
        policy=policy,
        endpoint="",
        round=0,
        outcome="Excluded",
        code=0,
        message=excluded.condition,
        started_ms=0.0,
        milliseconds=0.0,
        has_changed=False,
        is_ahead=False,
        is_repeated=False,
    )


def _worker(invocation: Invocation) -> tuple[str, str]:
    client = invocation.webhook.client
    return (client.pool, client.policy) if isinstance(client, WorkerRef) else ("", "")


def _member(document: Json, name: str) -> Json:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

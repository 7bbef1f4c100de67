"""One decision as structured data, from which the decision log and all other records are made.

A record has names, outcomes and times, and nothing of the object besides its kind, namespace and name.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gateway.pure.core.decision import PLAIN_ALLOWED
from gateway.pure.core.trace import trace_id_of
from gateway.pure.core.verdict import Allowed, Denied, DryRunRefused
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.conditions import Excluded
    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.outcome import Exemption, Outcome
    from gateway.pure.core.review import Resource
    from gateway.pure.core.webhook import Mode, Phase, Webhook

WebhookOutcome = Literal[
    "Allowed", "Denied", "FailedClosed", "FailedOpen", "DryRunRefused", "Excluded", "Exempted"
]
"""``FailedClosed`` rejects the request, by failurePolicy Fail; ``FailedOpen`` lets it pass, by Ignore.
``Excluded``: a matchCondition is false. ``Exempted``: an exception covers the request. In another mode than
Enforce nothing is rejected."""

REJECTIONS: Final = frozenset({"Denied", "FailedClosed", "DryRunRefused"})
"""Outcomes that reject the request in the mode Enforce."""
FAILURES: Final = frozenset({"FailedClosed", "FailedOpen"})
"""Outcomes of a webhook without a usable answer."""


class WebhookRecord(NamedTuple):
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
    """The message of the denial, or the cause of the failure. For ``Excluded`` the name of the condition, for
    ``Exempted`` the reason of the exception."""
    started_ms: float = 0.0
    """From the start of the review to the call, in milliseconds."""
    milliseconds: float = 0.0
    """From the call to the verdict, or of the evaluation of an admission policy."""
    has_changed: bool = False
    """Whether its patch changed the object."""
    is_ahead: bool = False
    """Whether the call was made before its turn."""
    is_repeated: bool = False
    """Whether the call was retried or hedged."""
    mode: Mode | Literal["Candidate"] = "Enforce"
    exception: str = ""
    """The id of the exception for ``Exempted``, otherwise empty."""
    help: str = ""
    """The text for who was denied. Empty without one, and if it is no denial."""
    parameters: bytes = b""
    """JSON of the parameters with which the policy was called. Empty without parameters."""


class DecisionRecord(NamedTuple):
    """The decision of one review."""

    time: float
    """The time of the answer, in seconds since 1970."""
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
    """In the order of a serial run: those that match, then those that a condition excluded, then those that
    an exception covers."""

    @property
    def api_version(self) -> str:
        """Group and version of ``kind``, as in an object."""
        group, version, _ = self.kind
        return f"{group}/{version}" if group else version

    @property
    def outcome(self) -> WebhookOutcome:
        """The outcome of the deciding webhook."""
        return "Allowed" if self.deciding is None else self.deciding.outcome

    @property
    def exception(self) -> str:
        """The id of the first exception because of which a webhook was not called; empty if there is none."""
        return next((webhook.exception for webhook in self.webhooks if webhook.exception), "")

    @property
    def deciding(self) -> WebhookRecord | None:
        """The first webhook that rejects the request, or else the first that failed open; None if all
        allowed it.
        """
        failed_open = None
        for webhook in self.webhooks:
            if webhook.outcome in REJECTIONS:
                if webhook.mode == "Enforce":
                    return webhook
            elif webhook.outcome == "FailedOpen" and failed_open is None:
                failed_open = webhook
        return failed_open

    @property
    def leading(self) -> WebhookRecord | None:
        """The webhook that a list names: the deciding one, or the first that its mode kept from refusing."""
        not_enforced = (webhook for webhook in self.webhooks if webhook.outcome in REJECTIONS)
        return self.deciding or next(not_enforced, None)


def is_noteworthy(answer: Answer) -> bool:
    """Whether *answer* has a denial, a failure or a fail-open."""
    decision = answer.decision
    if decision.status is not None:
        return True
    if decision is PLAIN_ALLOWED:
        return False
    return any(type(outcome.verdict) is not Allowed for outcome in answer.evaluation.outcomes)


def is_secret(kind: Resource) -> bool:
    """Whether *kind* is that of Secrets, whose names are left out of records where that is configured."""
    return kind[2] == "Secret" and kind[0] == ""


def record_of(answer: Answer, seconds: float, time: float, configuration_digest: str) -> DecisionRecord:
    """Return the record of *answer*, which was given after *seconds* at *time* (seconds since 1970)."""
    evaluation, status = answer.evaluation, answer.decision.status
    request = evaluation.request
    started_at, traceparent = answer.started_at, answer.origin.traceparent
    webhooks = [record_of_webhook(outcome, started_at) for outcome in evaluation.outcomes]
    if evaluation.exclusions:
        webhooks += [_exclusion(invocation, excluded) for invocation, excluded in evaluation.exclusions]
    if evaluation.exemptions:
        webhooks += map(_exemption, evaluation.exemptions)
    # By position, because this is made for each review if all decisions are logged.
    return DecisionRecord(
        time,
        request.uid,
        trace_id_of(traceparent) if traceparent else "",
        request.user,
        request.operation,
        request.kind,
        request.request_resource,
        request.request_sub_resource,
        request.namespace,
        request.name,
        request.dry_run,
        answer.origin.target.partition(b"?")[0].decode("latin-1"),
        answer.selection.phase,
        status is None,
        200 if status is None else status.code,
        "" if status is None else status.message,
        seconds * 1000,
        configuration_digest,
        tuple(webhooks),
    )


@lru_cache(1024)
def digest_of(parameters: bytes) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of *parameters*."""
    return hashlib.sha256(parameters).hexdigest()[:16]


def record_of_webhook(outcome: Outcome, started_at: float) -> WebhookRecord:
    """Return the record of *outcome*, in a review that began at *started_at* (monotonic seconds)."""
    verdict, call = outcome.verdict, outcome.call
    kind: WebhookOutcome = "Allowed"
    code, message = 200, ""
    match verdict:
        case Allowed():
            pass
        case Denied():
            kind, code, message = "Denied", verdict.code, verdict.message
        case DryRunRefused():
            kind, code = "DryRunRefused", 400
        case _:
            kind = "FailedClosed" if outcome.would_reject else "FailedOpen"
            code, message = verdict.code, verdict.cause
    webhook = outcome.invocation.webhook
    client = webhook.client
    help_text = webhook.help if kind == "Denied" else ""
    pool, policy = (client.pool, client.policy) if isinstance(client, WorkerRef) else ("", "")
    if call is None:
        return WebhookRecord(
            *(webhook.configuration, webhook.name, pool, policy, "", outcome.round, kind, code, message),
            milliseconds=(outcome.elapsed_s or 0.0) * 1000,
            has_changed=outcome.has_changed,
            mode=outcome.mode,
            help=help_text,
        )
    return WebhookRecord(
        webhook.configuration,
        webhook.name,
        pool,
        policy,
        call.endpoint,
        outcome.round,
        kind,
        code,
        message,
        (call.started_at - started_at) * 1000,
        call.elapsed_s * 1000,
        outcome.has_changed,
        call.is_ahead,
        call.is_repeated,
        outcome.mode,
        help=help_text,
        parameters=call.parameters,
    )


def _exclusion(invocation: Invocation, excluded: Excluded) -> WebhookRecord:
    if excluded.is_exception:
        record = _not_called(invocation.webhook, 0, "Exempted", "")
        return record._replace(exception=excluded.condition)
    return _not_called(invocation.webhook, 0, "Excluded", excluded.condition)


def _exemption(exemption: Exemption) -> WebhookRecord:
    exception = exemption.exception
    record = _not_called(exemption.invocation.webhook, exemption.round, "Exempted", exception.reason)
    return record._replace(exception=exception.id)


def _not_called(webhook: Webhook, round_: int, outcome: WebhookOutcome, message: str) -> WebhookRecord:
    client = webhook.client
    pool, policy = (client.pool, client.policy) if isinstance(client, WorkerRef) else ("", "")
    return WebhookRecord(
        *(webhook.configuration, webhook.name, pool, policy, "", round_, outcome, 0, message)
    )

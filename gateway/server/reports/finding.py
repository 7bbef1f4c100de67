"""What a report or an Event says about one webhook and one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gateway.observe.decisions.record import FAILURES, is_secret, record_of
from gateway.pure.core.verdict import Denied, Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.observe.decisions.record import DecisionRecord, WebhookRecord
    from gateway.observe.decisions.redaction import Redactors
    from gateway.pure.core.answer import Answer

Result = Literal["fail", "warn", "error"]
"""The result of a policy: violated, violated with no more than a warning, or not evaluated."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object of a request. An object that is being created has no uid, and may have no name yet."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One webhook's result for one object."""

    result: Result
    webhook: str
    configuration: str
    policy: str
    """``POOL/POLICY`` of a worker; empty for an HTTPS webhook."""
    message: str
    operation: str
    time: float
    """In seconds since 1970."""
    about: ObjectRef


def failures(answer: Answer, seconds: float, time: float, redactors: Redactors) -> Iterator[Finding]:
    """Yield a finding for each webhook that failed in the review of *answer*.

    A dry run changes nothing in the cluster, so it has no findings.
    """
    evaluation = answer.evaluation
    if evaluation.request.dry_run or not any(type(o.verdict) is Failed for o in evaluation.outcomes):
        return
    record = _record(answer, seconds, time, redactors)
    about = _about(record)
    for webhook in record.webhooks:
        if webhook.outcome in FAILURES:
            is_rejected = webhook.outcome == "FailedClosed" and webhook.mode == "Enforce"
            effect = "the request was rejected" if is_rejected else "the request passed"
            yield _finding("error", f"{webhook.message}; {effect}", webhook, record, about)


def denials_not_enforced(
    answer: Answer, seconds: float, time: float, redactors: Redactors
) -> Iterator[Finding]:
    """Yield a finding for each webhook that would have denied the request of *answer*, which was allowed.

    The object violates the policy then: ``warn`` in the mode Warn, ``fail`` in the mode Audit.
    """
    evaluation = answer.evaluation
    if not evaluation.modes or evaluation.request.dry_run or not answer.decision.allowed:
        return
    if not any(type(o.verdict) is Denied for o in evaluation.outcomes):
        return
    record = _record(answer, seconds, time, redactors)
    about = _about(record)
    for webhook in record.webhooks:
        if webhook.outcome == "Denied":
            result: Result = "warn" if webhook.mode == "Warn" else "fail"
            yield _finding(result, f"{webhook.message}; the request passed", webhook, record, about)


def denials(answer: Answer, seconds: float, time: float, redactors: Redactors) -> Iterator[Finding]:
    """Yield a finding for each webhook that denied a request about an object that exists.

    Secrets are left out: users may read Events who may not read the names of Secrets.
    """
    evaluation = answer.evaluation
    request = evaluation.request
    if request.dry_run or not any(type(o.verdict) is Denied for o in evaluation.outcomes):
        return
    if request.operation not in ("UPDATE", "DELETE") or is_secret(request.kind):
        return
    record = _record(answer, seconds, time, redactors)
    # A large review would have to be parsed for the uid.
    old = request.old_object if request.outline is None else None
    metadata = old.get("metadata") if old is not None else None
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    about = _about(record, uid if isinstance(uid, str) else "")
    for webhook in record.webhooks:
        if webhook.outcome == "Denied" and webhook.mode == "Enforce":
            yield _finding("fail", webhook.message, webhook, record, about)


def _record(answer: Answer, seconds: float, time: float, redactors: Redactors) -> DecisionRecord:
    record = record_of(answer, seconds, time, "")
    return redactors.redacted(record, answer.evaluation.request, secret_names=True)


def _finding(
    result: Result, message: str, webhook: WebhookRecord, record: DecisionRecord, about: ObjectRef
) -> Finding:
    policy = f"{webhook.pool}/{webhook.policy}" if webhook.pool else ""
    return Finding(
        result,
        webhook.webhook,
        webhook.configuration,
        policy,
        message,
        record.operation,
        record.time,
        about,
    )


def _about(record: DecisionRecord, uid: str = "") -> ObjectRef:
    is_named = not is_secret(record.kind)
    return ObjectRef(
        record.api_version,
        record.kind[2],
        record.namespace,
        record.name if is_named else "",
        uid if is_named else "",
    )

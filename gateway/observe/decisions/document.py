"""The JSON of a decision. The decision log, OTLP, recordings and the pages take their members from it.

What the log leaves out of its lines is in ``gateway.observe.decisions.line``; docs/decision-log.md describes
the members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict

from gateway.base.text import rfc3339
from gateway.observe.decisions.record import REJECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.observe.decisions.record import DecisionRecord, WebhookRecord


class WebhookDocument(TypedDict):
    """One webhook's part in a decision, see ``gateway.observe.decisions.record.WebhookRecord``."""

    configuration: str
    webhook: str
    pool: str
    policy: str
    endpoint: str
    round: int
    outcome: str
    code: int
    message: str
    startedMilliseconds: float
    milliseconds: float
    changed: bool
    ahead: bool
    repeated: bool
    mode: str
    exception: str
    help: str
    parameters: NotRequired[Any]
    """The parameters of the call without secrets, or null. Only the pages have them."""


class DecisionHead(TypedDict):
    """A decision without its webhooks, see ``gateway.observe.decisions.record.DecisionRecord``.

    From ``configuration`` to ``outcome``, and ``mode``, the members are about the webhook that decided.
    """

    time: str
    uid: str
    traceId: str
    user: str
    operation: str
    apiVersion: str
    kind: str
    resource: str
    namespace: str
    name: str
    dryRun: bool
    path: str
    phase: str
    configuration: str
    webhook: str
    pool: str
    policy: str
    endpoint: str
    outcome: str
    allowed: bool
    code: int
    message: str
    milliseconds: float
    mode: str
    exception: str
    configurationDigest: str


class DecisionDocument(DecisionHead):
    """A decision."""

    webhooks: list[WebhookDocument]


class ChangeDocument(TypedDict):
    """What one webhook changed: its index in ``webhooks``, and a JSON Patch."""

    webhook: int
    patch: list[Any]


class NotCalledDocument(TypedDict):
    """A webhook of the path that was not called, and why."""

    configuration: str
    webhook: str
    reason: str


class DetailedDocument(DecisionDocument):
    """A decision with its ``gateway.observe.decisions.details.RecordDetails``."""

    groups: list[str]
    object: Any
    """The object before all changes; null for none, and then ``objectNote`` may have the reason."""
    objectNote: str
    changes: list[ChangeDocument]
    finalObject: Any
    """The object after all changes."""
    overwritten: dict[str, list[int]]
    notCalled: list[NotCalledDocument]
    notCalledLeftOut: int
    warnings: list[str]
    auditAnnotations: dict[str, str]
    callsAheadKept: int
    callsAheadDiscarded: int


def decision_head(record: DecisionRecord) -> DecisionHead:
    """Return the document of *record* without its webhooks."""
    deciding, resource = record.deciding, record.resource[2]
    return {
        "time": rfc3339(record.time, 3),
        "uid": record.uid,
        "traceId": record.trace_id,
        "user": record.user,
        "operation": record.operation,
        "apiVersion": record.api_version,
        "kind": record.kind[2],
        "resource": f"{resource}/{record.sub_resource}" if record.sub_resource else resource,
        "namespace": record.namespace,
        "name": record.name,
        "dryRun": record.dry_run,
        "path": record.path,
        "phase": record.phase,
        "configuration": "" if deciding is None else deciding.configuration,
        "webhook": "" if deciding is None else deciding.webhook,
        "pool": "" if deciding is None else deciding.pool,
        "policy": "" if deciding is None else deciding.policy,
        "endpoint": "" if deciding is None else deciding.endpoint,
        "outcome": "Allowed" if deciding is None else deciding.outcome,
        "allowed": record.allowed,
        "code": record.code,
        "message": record.message or ("" if deciding is None else deciding.message),
        "milliseconds": round(record.milliseconds, 3),
        "mode": "" if deciding is None else deciding.mode,
        "exception": record.exception,
        "configurationDigest": record.configuration_digest,
    }


def decision_document(record: DecisionRecord) -> DecisionDocument:
    """Return the document of *record*, without the parameters of its webhooks."""
    return {**decision_head(record), "webhooks": list(map(webhook_document, record.webhooks))}


def not_enforced(decision: Mapping[str, Any]) -> list[WebhookDocument]:
    """Return the webhooks of *decision*, a document, that would have refused it in the mode Enforce.

    Each is there once. There are none if the request was refused.
    """
    refusing = (hook for hook in decision["webhooks"] if hook["outcome"] in REJECTIONS)
    found = {(hook["configuration"], hook["webhook"]): hook for hook in refusing}
    return list(found.values()) if decision["allowed"] else []


def names_with_modes(webhooks: Iterable[WebhookDocument]) -> str:
    """Return the names of *webhooks* that are not enforced: ``NAME (mode Warn), NAME (mode Audit)``."""
    return ", ".join(f"{hook['webhook']} (mode {hook['mode']})" for hook in webhooks)


def webhook_document(record: WebhookRecord) -> WebhookDocument:
    """Return the member of ``webhooks`` for *record*, without its parameters."""
    return {
        "configuration": record.configuration,
        "webhook": record.webhook,
        "pool": record.pool,
        "policy": record.policy,
        "endpoint": record.endpoint,
        "round": record.round,
        "outcome": record.outcome,
        "code": record.code,
        "message": record.message,
        "startedMilliseconds": round(record.started_ms, 3),
        "milliseconds": round(record.milliseconds, 3),
        "changed": record.has_changed,
        "ahead": record.is_ahead,
        "repeated": record.is_repeated,
        "mode": record.mode,
        "exception": record.exception,
        "help": record.help,
    }


_USUAL: Final = {
    "round": 0,
    "changed": False,
    "repeated": False,
    "mode": "Enforce",
    "exception": "",
    "help": "",
}


def unusual(document: Mapping[str, Any], members: Iterable[str]) -> dict[str, Any]:
    """Return those of *members* whose value in *document*, a ``WebhookDocument``, is not the usual one."""
    return {name: document[name] for name in members if document[name] != _USUAL[name]}

"""The outcomes of all webhooks to one answer: status, patch, warnings and audit annotations.

The answer is a function of the outcomes in their order, so equal outcomes give equal bytes.

Source: docs/answers.md; kubernetes/apiserver admission/attributes.go,
endpoints/filters/warning.go (warnings).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from gateway.base.text import rfc3339
from gateway.pure.core.annotations import annotations_of
from gateway.pure.core.final_patch import final_patch
from gateway.pure.core.modes import NO_STAGES
from gateway.pure.core.verdict import (
    ALLOWED,
    NO_DETAILS,
    Allowed,
    Cause,
    Denied,
    Details,
    DryRunRefused,
    Failed,
)
from gateway.pure.core.webhook import PolicyRef, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gateway.pure.core.annotations import AuditLevel, Dropped
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.webhook import Rollout, Webhook, WebhookId

MAX_WARNING_CHARS: Final = 256
MAX_WARNINGS_CHARS: Final = 4096
"""The API server passes on so much of one warning, and of all warnings of a request. It cuts warnings only if
all together are too long. Source: k8s.io/apiserver pkg/endpoints/filters/warning.go."""

MAX_MESSAGE_CHARS: Final = 64 * 1024
"""The length of one webhook's message, and of any other text of its status. Longer texts are cut."""
MAX_MESSAGES_CHARS: Final = 256 * 1024
"""The length of all messages of a review, and again of all causes. The audit log keeps them."""
MAX_CAUSES: Final = 1000
"""Causes of a review."""

WOULD_BE_REFUSED: Final = "would be refused"
"""The beginning of a warning about a rejection by a webhook in the mode Warn."""

DecisionReference = Literal["None", "Warning", "Message"]
"""Where a refusal names the command that shows its decision: nowhere, or in a warning, or in the last line of
its message."""
_UID = re.compile(r"[-0-9A-Za-z_.]{1,100}")
"""A uid that needs no quotes in a shell; those of API servers are UUIDs."""
_REFERENCES = tuple(
    re.compile(rf"{before}({_UID.pattern})")
    for before in (r"\badmission(?:-gateway decisions| why)\s+", "/decisions/")
)
"""What names a uid: a command, or the address of a page, which the message of a policy may have, too."""

_LAST_S: Final = 253_402_300_799
"""The last second of the year 9999, the last one with a date."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Status:
    """The reason for a refusal, as the user sees it. Source: meta/v1 Status."""

    code: int
    reason: str
    message: str
    causes: tuple[Cause, ...] = ()
    details: Details = NO_DETAILS
    status: str = "Failure"
    metadata: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one review, before it is encoded."""

    status: Status | None = None
    """None if the request is allowed."""
    patch: bytes = b""
    """JSON of the JSON Patch from the request's object to the final one; empty for no change."""
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] = field(default_factory=dict)
    dropped_annotations: tuple[Dropped, ...] = ()
    """The first few annotations that could not be passed on."""

    @property
    def allowed(self) -> bool:
        """Whether the request is allowed."""
        return self.status is None


PLAIN_ALLOWED: Final = Decision()
"""Allowed, without patch, warnings and annotations."""


def decide(
    evaluation: Evaluation, audit_level: AuditLevel, stages: Mapping[WebhookId, Rollout] = NO_STAGES
) -> Decision:
    """Return the decision of a finished *evaluation*; *stages* are as in ``gateway.pure.core.modes``.

    Raises:
        AssertionError: the derived patch does not give the final object, which is a bug here.
    """
    outcomes = evaluation.outcomes
    is_mutating = evaluation.is_mutating
    exemptions = evaluation.exemptions
    if not is_mutating and not exemptions and _are_silent(outcomes):
        return PLAIN_ALLOWED
    status = _status([outcome for outcome in outcomes if outcome.rejects])
    annotations, dropped = annotations_of(
        outcomes, audit_level, is_mutating=is_mutating, exemptions=exemptions, modes=evaluation.modes
    )
    return Decision(
        status,
        final_patch(evaluation.request, evaluation.final_object)
        if status is None and evaluation.has_changed
        else b"",
        _warnings(_texts(outcomes, stages, evaluation.now)),
        annotations,
        dropped,
    )


def with_reference(decision: Decision, uid: str, reference: DecisionReference) -> Decision:
    """Return *decision* on the review *uid* with how to find it, in the form *reference*, if it is a refusal.

    The message gets one more line, or the warnings one more warning, the first, because others may fill the
    space for warnings.
    """
    status = decision.status
    if status is None or reference == "None" or not _UID.fullmatch(uid):
        return decision
    text = f"to see why the request was refused, run: admission-gateway decisions {uid} --cluster"
    if reference == "Message":
        return replace(decision, status=replace(status, message=f"{status.message}\n{text}"))
    return replace(decision, warnings=_warnings([((text, *decision.warnings), True)]))


def uid_in(text: str) -> str:
    """Return the uid that *text* names: a refusal with a reference, a command, or the address of a page.

    Any other text is returned as it is, without spaces around it.
    """
    found = filter(None, (reference.search(text) for reference in _REFERENCES))
    return next((one[1] for one in found), text.strip())


def _are_silent(outcomes: Sequence[Outcome]) -> bool:
    """Whether all webhooks allowed the request, without warnings and annotations."""
    for outcome in outcomes:
        verdict = outcome.verdict
        if verdict is not ALLOWED and (
            not isinstance(verdict, Allowed) or verdict.warnings or verdict.audit_annotations
        ):
            return False
    return True


def _status(rejections: Sequence[Outcome]) -> Status | None:
    """Return the status: a line for each rejection; all but message and causes is that of the first."""
    if not rejections:
        return None
    refusals = [_refusal(outcome) for outcome in rejections]
    first = refusals[0]
    causes = [cause for refusal in refusals for cause in refusal.causes]
    if (
        first.reason == "Invalid"
        and len(refusals) > 1
        and (causes or first.details.kind or first.details.name)
    ):
        # With this reason, and with causes, a kind or a name, kubectl shows the causes instead of the
        # message. A refusal without a cause would not be shown.
        causes = [
            cause for refusal in refusals for cause in refusal.causes or (Cause(message=refusal.message),)
        ]
    return Status(
        first.code,
        first.reason,
        _joined(refusals),
        _first_causes(causes),
        first.details,
        first.status,
        first.metadata,
    )


def _joined(refusals: Sequence[Status]) -> str:
    """Return the messages, a line each, up to the bound."""
    room = MAX_MESSAGES_CHARS
    for number, refusal in enumerate(refusals):
        room -= len(refusal.message) + 1
        if room < 0:
            kept = [one.message for one in refusals[:number]]
            return "\n".join([*kept, f"and {len(refusals) - number} more that refuse the request"])
    return "\n".join(refusal.message for refusal in refusals)


def _first_causes(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the first of *causes*, up to the bounds."""
    room = MAX_MESSAGES_CHARS
    for number, cause in enumerate(causes[:MAX_CAUSES]):
        room -= len(cause.reason) + len(cause.message) + len(cause.field)
        if room < 0:
            return tuple(causes[:number])
    return tuple(causes[:MAX_CAUSES])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[: MAX_MESSAGE_CHARS - 3]}..."


def _cut_details(details: Details) -> Details:
    if details is NO_DETAILS:
        return details
    return Details(
        _cut(details.name),
        _cut(details.group),
        _cut(details.kind),
        _cut(details.uid),
        details.retry_after_seconds,
    )


def _cut_values(members: Iterable[tuple[str, str | int]]) -> tuple[tuple[str, str | int], ...]:
    return tuple((name, _cut(value) if isinstance(value, str) else value) for name, value in members)


def _refusal(outcome: Outcome) -> Status:
    webhook, verdict = outcome.invocation.webhook, outcome.verdict
    name = webhook.name
    prefix = "" if webhook.has_own_words else f"{name}: "
    match verdict:
        case Denied():
            message = f"{prefix}{_cut(verdict.message) or 'denied without explanation'}"
            reason = _cut(verdict.reason) or ("Forbidden" if verdict.code == 403 else "")
            causes = tuple(
                Cause(_cut(cause.reason), f"{prefix}{_cut(cause.message)}", _cut(cause.field))
                for cause in verdict.causes[:MAX_CAUSES]
            )
            if webhook.help:
                message = f"{message}\n{webhook.help}"
                if reason == "Invalid" and causes:
                    # kubectl shows the causes instead of the message.
                    causes = (*causes, Cause(message=webhook.help))
            status, metadata = _cut(verdict.status) or "Failure", _cut_values(verdict.metadata)
            return Status(
                verdict.code, reason, message, causes, _cut_details(verdict.details), status, metadata
            )
        case DryRunRefused():
            return Status(400, "BadRequest", f'admission webhook "{name}" does not support dry run')
        case Failed():
            failed = f'failed calling webhook "{name}"'
            if isinstance(webhook.client, PolicyRef):
                failed = f"{webhook.client.kind} '{name}' failed"
            return Status(500, "InternalError", f"{failed}: {verdict.cause}")
        case Allowed():
            raise AssertionError(f"{name} allows the request and does not refuse it")


def _texts(
    outcomes: Sequence[Outcome], stages: Mapping[WebhookId, Rollout], time_s: float
) -> Iterator[tuple[Sequence[str], bool]]:
    """Yield the warnings of each webhook, and whether they may be long.

    Those of webhooks in the mode Warn are last: by the bounds they could displace others.
    """
    in_warn = []
    for outcome in outcomes:
        if outcome.mode == "Enforce":
            yield _texts_of(outcome)
        elif outcome.mode == "Warn":
            in_warn.append(outcome)
    for outcome in in_warn:
        if outcome.would_reject:
            webhook = outcome.invocation.webhook
            when = _refused_from(webhook, stages.get(webhook.plan_id, webhook.rollout), time_s)
            text = f"{WOULD_BE_REFUSED}{when}: {_refusal(outcome).message}"
            yield (_CONTROL.sub(" ", text),), False
        yield _texts_of(outcome)


def _refused_from(webhook: Webhook, rollout: Rollout | None, time_s: float) -> str:
    """Return from when on *webhook*, which is in the mode Warn at *time_s*, refuses what it warns of."""
    client = webhook.client
    if rollout is None or (isinstance(client, PolicyRef) and client.is_on_templates):
        return ""
    after_s = 0.0 if rollout.enforce is None else rollout.enforce.after_s
    at_s = rollout.enforced_from_s or (after_s if after_s > time_s else 0.0)
    if not 0 < at_s <= _LAST_S:
        return " later, date not set"
    return f" from {rfc3339(at_s).partition('T')[0]} on"


def _texts_of(outcome: Outcome) -> tuple[Sequence[str], bool]:
    verdict, client = outcome.worker_verdict, outcome.invocation.webhook.client
    may_be_long = (
        client.has_long_warnings
        if isinstance(client, PolicyRef)
        else isinstance(client, WorkerRef) and client.has_own_words
    )
    return () if verdict is None else verdict.warnings, may_be_long


def _warnings(by_webhook: Iterable[tuple[Sequence[str], bool]]) -> tuple[str, ...]:
    """Return the warnings that are passed on. Those that may be long are cut unless there is room for all."""
    whole: dict[str, None] = {}
    kept: dict[str, None] = {}
    size, room = 0, MAX_WARNINGS_CHARS
    # An answer may repeat a warning 20,000 times. Removing repetitions first takes a tenth of the time.
    for text, may_be_long in (
        (text, is_long) for texts, is_long in by_webhook for text in dict.fromkeys(texts)
    ):
        if not text or _CONTROL.search(text):
            continue
        cut = text[:MAX_WARNING_CHARS]
        passed = text if may_be_long else cut
        if passed not in whole:
            whole[passed] = None
            size += len(passed)
        if cut in kept:
            continue
        if len(cut) > room:
            break
        room -= len(cut)
        kept[cut] = None
    return tuple(whole if size <= MAX_WARNINGS_CHARS else kept)

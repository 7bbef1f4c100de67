"""Settled webhooks to the one answer: status, patch, warnings and audit annotations.

Everything here is a function of the outcomes in their order, so equal outcomes give equal bytes.

Source: contract of this project (README, "What comes back"); kubernetes/apiserver admission/attributes.go,
plugin/webhook/mutating/dispatcher.go (annotations), endpoints/filters/warning.go (warnings).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import orjson

from gateway.core.call import Payload
from gateway.core.diff import diff, same
from gateway.core.patch import apply_patch, parse_patch
from gateway.core.verdict import ALLOWED, Allowed, Cause, Denied, DryRunRefused, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.core.call import Outcome
    from gateway.core.evaluation import Evaluation

AuditLevel = Literal["None", "Metadata", "Request"]

MAX_WARNING_CHARS: Final = 256
MAX_WARNINGS_CHARS: Final = 4096
"""What the API server passes on of one warning, and of all those of a request."""

MAX_ANNOTATION_KEY_CHARS: Final = 63
"""A Kubernetes name part; the API server puts the gateway's own webhook name and a slash before it."""

_NOTES_KEPT: Final = 4096
"""Texts of audit annotations: two for each mutating webhook, which every review of it repeats."""

_NAME_PART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Status:
    """Why a request was refused, as the user will see it. Source: meta/v1 Status."""

    code: int
    reason: str
    message: str
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one review, before it is encoded."""

    status: Status | None = None
    """None: the request is allowed."""
    patch: bytes = b""
    """JSON of the JSON Patch from the request's object to the final one; empty for no change."""
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] = field(default_factory=dict)
    dropped_annotations: tuple[tuple[str, str], ...] = ()
    """Webhook name and key of annotations whose key is not a Kubernetes name part."""

    @property
    def allowed(self) -> bool:
        """Whether the request goes through."""
        return self.status is None


UNCONDITIONAL: Final = Decision()
"""Allowed, and nothing else to say."""


def decide(evaluation: Evaluation, audit_level: AuditLevel) -> Decision:
    """Return the decision of a finished *evaluation*.

    Raises:
        AssertionError: the derived patch does not give the final object, which is a bug here.
    """
    outcomes = evaluation.outcomes
    is_mutating = evaluation.is_mutating
    if not is_mutating and _are_silent(outcomes):
        return UNCONDITIONAL
    status = _status([outcome for outcome in outcomes if outcome.rejects])
    annotations, dropped = _annotations(outcomes, audit_level, is_mutating=is_mutating)
    return Decision(
        status,
        _final_patch(evaluation) if status is None and evaluation.has_changed else b"",
        _warnings(outcome.spoken.warnings for outcome in outcomes if outcome.spoken is not None),
        annotations,
        dropped,
    )


def _are_silent(outcomes: Sequence[Outcome]) -> bool:
    """Whether all webhooks allowed the request, and none had more to say."""
    for outcome in outcomes:
        verdict = outcome.verdict
        if verdict is not ALLOWED and (
            not isinstance(verdict, Allowed) or verdict.warnings or verdict.audit_annotations
        ):
            return False
    return True


def _status(rejections: Sequence[Outcome]) -> Status | None:
    """Return what the user reads: every rejection a line, the first giving code and reason."""
    if not rejections:
        return None
    refusals = [_refusal(outcome) for outcome in rejections]
    first = refusals[0]
    causes = [cause for refusal in refusals for cause in refusal.causes]
    if causes and first.reason == "Invalid":
        # For this reason kubectl shows the causes alone: whoever has none would go unread.
        causes = [
            cause for refusal in refusals for cause in refusal.causes or (Cause(message=refusal.message),)
        ]
    return Status(first.code, first.reason, "\n".join(refusal.message for refusal in refusals), tuple(causes))


def _refusal(outcome: Outcome) -> Status:
    name, verdict = outcome.invocation.webhook.name, outcome.verdict
    match verdict:
        case Denied():
            message = f"{name}: {verdict.message or 'denied without explanation'}"
            reason = verdict.reason or ("Forbidden" if verdict.code == 403 else "")
            causes = tuple(
                Cause(cause.reason, f"{name}: {cause.message}", cause.field) for cause in verdict.causes
            )
            return Status(verdict.code, reason, message, causes)
        case DryRunRefused():
            return Status(400, "BadRequest", f'admission webhook "{name}" does not support dry run')
        case Failed():
            return Status(500, "InternalError", f'failed calling webhook "{name}": {verdict.cause}')
        case Allowed():
            raise AssertionError(f"{name} allows the request and does not refuse it")


def _final_patch(evaluation: Evaluation) -> bytes:
    final = evaluation.final_object
    operations = diff(evaluation.request.object, final)
    if not operations:
        # Changed, and changed back.
        return b""
    patch = orjson.dumps(operations)
    check = apply_patch(Payload(evaluation.request).fresh_object(), parse_patch(patch))
    assert same(check, final), f"the derived patch does not give the final object: {patch[:1000]!r}"
    return patch


def _warnings(spoken: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    kept: dict[str, None] = {}
    room = MAX_WARNINGS_CHARS
    for text in (text for texts in spoken for text in texts):
        if not text or _CONTROL.search(text):
            continue
        cut = text[:MAX_WARNING_CHARS]
        if cut in kept:
            continue
        if len(cut) > room:
            break
        room -= len(cut)
        kept[cut] = None
    return tuple(kept)


def _annotations(
    outcomes: Sequence[Outcome], audit_level: AuditLevel, *, is_mutating: bool
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the annotations, and those dropped. A key that is taken keeps its first value."""
    annotations: dict[str, str] = {}
    dropped: list[tuple[str, str]] = []
    for number, outcome in enumerate(outcomes):
        webhook = outcome.invocation.webhook
        # As in the API server: all webhooks are counted in the mutating phase, matching ones in the other.
        index = outcome.invocation.position if is_mutating else number
        place = f"round_{outcome.round}_index_{index}"
        if audit_level != "None":
            for key, value in _own_annotations(outcome, place, audit_level, is_mutating=is_mutating):
                annotations.setdefault(key, value)
        for key, value in outcome.spoken.audit_annotations if outcome.spoken is not None else ():
            if _NAME_PART.match(key):
                annotations.setdefault(annotation_key(webhook.name, key), value)
            else:
                dropped.append((webhook.name, key))
    return annotations, tuple(dropped)


def _own_annotations(
    outcome: Outcome, place: str, audit_level: AuditLevel, *, is_mutating: bool
) -> Iterable[tuple[str, str]]:
    webhook, verdict = outcome.invocation.webhook, outcome.verdict
    if is_mutating and (outcome.call is not None or isinstance(verdict, DryRunRefused)):
        yield f"mutation.{place}", _mutated(webhook.configuration, webhook.name, outcome.has_changed)
    if outcome.is_patched and audit_level == "Request":
        assert isinstance(verdict, Allowed)
        # Members in the API server's order, those of the operations sorted.
        operations = orjson.dumps(parse_patch(verdict.patch), option=orjson.OPT_SORT_KEYS)
        patch = {
            "configuration": webhook.configuration,
            "webhook": webhook.name,
            "patch": orjson.Fragment(operations),
            "patchType": "JSONPatch",
        }
        yield f"patch.{place}", orjson.dumps(patch).decode()
    if isinstance(verdict, Failed) and not outcome.rejects:
        yield f"failed-open.{place}", webhook.name


@lru_cache(maxsize=_NOTES_KEPT)
def _mutated(configuration: str, webhook: str, has_changed: bool) -> str:
    return orjson.dumps({"configuration": configuration, "webhook": webhook, "mutated": has_changed}).decode()


def annotation_key(webhook_name: str, key: str) -> str:
    """Return the key under which a worker's annotation leaves: ``NAME.KEY``, shortened to 63 characters.

    Shortened keys end in the first 8 hex digits of the full key's SHA-256, so that they stay apart.
    """
    full = f"{webhook_name}.{key}"
    if len(full) <= MAX_ANNOTATION_KEY_CHARS:
        return full
    return f"{full[:54]}-{hashlib.sha256(full.encode()).hexdigest()[:8]}"

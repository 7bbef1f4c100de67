"""Audit annotations of a review: those of the workers, and those of the gateway about each webhook.

Source: docs/answers.md; kubernetes/apiserver
plugin/webhook/mutating/dispatcher.go (mutation and patch annotations), admission/attributes.go (keys).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import orjson

from admission_gateway_worker.json_patch.patch import parse_patch
from gateway.pure.core.evaluation import NO_MODES
from gateway.pure.core.verdict import Allowed, Denied, DryRunRefused, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.core.outcome import Exemption, Outcome
    from gateway.pure.core.webhook import Mode

AuditLevel = Literal["None", "Metadata", "Request"]

MAX_KEY_CHARS: Final = 63
"""The length of a Kubernetes name part. The API server puts the name of the gateway's own webhook and a
slash before it."""

MAX_WORKER_CHARS: Final = 1024 * 1024
"""Keys and values of all workers' annotations together. The API server's bounds are 10 kB for an
annotation of its own policies, 20 annotations for a policy (ValidatingAdmissionPolicy), and 256 KiB for the
annotations of an object."""

MAX_WORKER_ANNOTATIONS: Final = 20_000
"""Annotations of all workers together; the rest is dropped. One answer may have as many, which take 20 ms."""

MAX_PATCH_CHARS: Final = 8 * 1024 * 1024
"""All patches in annotations together. A worker's answer cannot have a longer one."""

MAX_DROPPED: Final = 8
"""Dropped annotations of a review that are logged, so that thousands do not fill the log."""

MAX_NOT_ENFORCED_CHARS: Final = 2048
"""The length of the message in an annotation about a rejection that is not enforced."""

_SHOWN_CHARS: Final = 80
_NOTES_KEPT: Final = 4096
"""Cached values of ``mutation`` annotations: two for each mutating webhook, the same in every review."""

_NAME_PART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")


class Dropped(NamedTuple):
    """An annotation that was dropped."""

    webhook: str
    key: str
    reason: str


class _Annotations:
    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.dropped: list[Dropped] = []
        self._worker_annotations = 0
        self._worker_room, self._patch_room = MAX_WORKER_CHARS, MAX_PATCH_CHARS

    def drop(self, webhook: str, key: str, reason: str) -> None:
        if len(self.dropped) < MAX_DROPPED:
            self.dropped.append(Dropped(webhook, key[:_SHOWN_CHARS], reason))

    def add_from_worker(self, webhook: str, found: Iterable[tuple[str, str]]) -> None:
        """Keep a worker's annotations, as far as there is room."""
        for key, value in found:
            self._worker_annotations += 1
            if self._worker_annotations > MAX_WORKER_ANNOTATIONS:
                self.drop(webhook, key, f"more than {MAX_WORKER_ANNOTATIONS} annotations in a review")
                return
            if not _NAME_PART.match(key):
                self.drop(webhook, key, "not a name part")
                continue
            full = annotation_key(webhook, key)
            if full in self.kept:
                continue
            room = self._worker_room - len(full) - len(value)
            if room < 0:
                self.drop(webhook, key, f"more than {MAX_WORKER_CHARS} characters of annotations in a review")
                continue
            self._worker_room = room
            self.kept[full] = value

    def add_not_enforced(self, webhook: str, key: str, rejection: str) -> None:
        """Keep the *rejection* of a webhook that is not enforced, if there is room."""
        if len(rejection) > self._worker_room:
            self.drop(webhook, key, f"more than {MAX_WORKER_CHARS} characters of annotations in a review")
            return
        self._worker_room -= len(rejection)
        self.kept.setdefault(key, rejection)

    def add_patch(self, webhook: str, key: str, patch: str) -> None:
        """Keep a patch, if there is room."""
        if len(patch) > self._patch_room:
            self.drop(webhook, key, f"more than {MAX_PATCH_CHARS} characters of patches in a review")
            return
        self._patch_room -= len(patch)
        self.kept.setdefault(key, patch)


def annotations_of(
    outcomes: Sequence[Outcome],
    audit_level: AuditLevel,
    *,
    is_mutating: bool,
    exemptions: Sequence[Exemption] = (),
    modes: Mapping[int, Mode] = NO_MODES,
) -> tuple[dict[str, str], tuple[Dropped, ...]]:
    """Return the annotations, and the first dropped ones. The first annotation with a key counts.

    *modes* are those of the evaluation. Webhooks in the mode Shadow have no number, and the annotations of
    webhooks that are not enforced displace no others.
    """
    annotations = _Annotations()
    numbered = list(enumerate(outcomes))
    shadows: list[int] = []
    if modes:
        numbered.sort(key=lambda one: one[1].mode != "Enforce")
        shadows = sorted(position for position, mode in modes.items() if mode == "Shadow")
    for number, outcome in numbered:
        webhook = outcome.invocation.webhook
        # As in the API server: the mutating phase counts all webhooks, the validating phase the matching
        # ones.
        position = outcome.invocation.position
        index = position - bisect(shadows, position) if is_mutating else number
        if audit_level != "None":
            _add_own(outcome, f"round_{outcome.round}_index_{index}", annotations, is_mutating=is_mutating)
            if audit_level == "Request" and outcome.is_patched:
                _add_patch(outcome, f"patch.round_{outcome.round}_index_{index}", annotations)
        if outcome.worker_verdict is not None:
            annotations.add_from_worker(webhook.name, outcome.worker_verdict.audit_annotations)
    if audit_level != "None":
        for exemption in exemptions:
            webhook = exemption.invocation.webhook
            note = {
                "configuration": webhook.configuration,
                "webhook": webhook.name,
                "exception": exemption.exception.id,
            }
            position = exemption.invocation.position
            key = f"exception.round_{exemption.round}_index_{position - bisect(shadows, position)}"
            annotations.kept.setdefault(key, orjson.dumps(note).decode())
    return annotations.kept, tuple(annotations.dropped)


def _add_own(outcome: Outcome, suffix: str, annotations: _Annotations, *, is_mutating: bool) -> None:
    webhook, verdict = outcome.invocation.webhook, outcome.verdict
    if is_mutating and (outcome.elapsed_s is not None or isinstance(verdict, DryRunRefused)):
        mutated = _mutated(webhook.configuration, webhook.name, outcome.has_changed)
        annotations.kept.setdefault(f"mutation.{suffix}", mutated)
    if isinstance(verdict, Failed) and not outcome.would_reject:
        annotations.kept.setdefault(f"failed-open.{suffix}", webhook.name)
    if outcome.mode != "Enforce" and outcome.would_reject:
        annotations.add_not_enforced(webhook.name, f"not-enforced.{suffix}", _rejection(outcome))


def _rejection(outcome: Outcome) -> str:
    webhook, verdict = outcome.invocation.webhook, outcome.verdict
    code, message = 400, "does not support dry run"
    if isinstance(verdict, Denied):
        code, message = verdict.code, verdict.message
    elif isinstance(verdict, Failed):
        code, message = 500, verdict.cause
    document = {
        "configuration": webhook.configuration,
        "webhook": webhook.name,
        "mode": outcome.mode,
        "code": code,
        "message": message[:MAX_NOT_ENFORCED_CHARS],
    }
    return orjson.dumps(document).decode()


def _add_patch(outcome: Outcome, key: str, annotations: _Annotations) -> None:
    # A policy may fail in part and change the object nevertheless.
    webhook, verdict = outcome.invocation.webhook, outcome.worker_verdict
    assert isinstance(verdict, Allowed), "a patch needs a verdict that has it"
    # Members are in the API server's order; the members of operations are sorted.
    operations = orjson.dumps(parse_patch(verdict.patch), option=orjson.OPT_SORT_KEYS)
    patch = {
        "configuration": webhook.configuration,
        "webhook": webhook.name,
        "patch": orjson.Fragment(operations),
        "patchType": "JSONPatch",
    }
    annotations.add_patch(webhook.name, key, orjson.dumps(patch).decode())


@lru_cache(maxsize=_NOTES_KEPT)
def _mutated(configuration: str, webhook: str, has_changed: bool) -> str:
    return orjson.dumps({"configuration": configuration, "webhook": webhook, "mutated": has_changed}).decode()


def annotation_key(webhook_name: str, key: str) -> str:
    """Return the key of a worker's annotation in the answer: ``NAME.KEY``, shortened to 63 characters.

    Shortened keys end in the first 8 hex digits of the full key's SHA-256, so that they stay different.
    """
    full = f"{webhook_name}.{key}"
    if len(full) <= MAX_KEY_CHARS:
        return full
    return f"{full[:54]}-{hashlib.sha256(full.encode()).hexdigest()[:8]}"

"""Audit annotations of a review: the workers' own, and what the gateway says of each webhook.

Source: docs/answers.md; kubernetes/apiserver
plugin/webhook/mutating/dispatcher.go (mutation and patch annotations), admission/attributes.go (keys).
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import orjson

from gateway.core.patch import parse_patch
from gateway.core.verdict import Allowed, DryRunRefused, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.core.outcome import Outcome

AuditLevel = Literal["None", "Metadata", "Request"]

MAX_KEY_CHARS: Final = 63
"""A Kubernetes name part; the API server puts the gateway's own webhook name and a slash before it."""

MAX_SPOKEN_CHARS: Final = 1024 * 1024
"""Keys and values of all workers' annotations together. The API server bounds those of its own policies by
10 kB each and 20 a policy (ValidatingAdmissionPolicy), and an object's annotations by 256 KiB."""

MAX_SPOKEN: Final = 20_000
"""Annotations of all workers together that are looked at, in some 20 ms: as many as one answer may have."""

MAX_PATCH_CHARS: Final = 8 * 1024 * 1024
"""All patches in annotations together; a worker's answer has no longer one."""

MAX_DROPPED: Final = 8
"""How many of the annotations that were left out of a review are told of: thousands are not to fill a log."""

_SHOWN_CHARS: Final = 80
_NOTES_KEPT: Final = 4096
"""Texts of audit annotations: two for each mutating webhook, which every review of it repeats."""

_NAME_PART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")


class Dropped(NamedTuple):
    """An annotation that was left out."""

    webhook: str
    key: str
    why: str


class _Annotations:
    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.dropped: list[Dropped] = []
        self._spoken = 0
        self._spoken_room, self._patch_room = MAX_SPOKEN_CHARS, MAX_PATCH_CHARS

    def drop(self, webhook: str, key: str, why: str) -> None:
        if len(self.dropped) < MAX_DROPPED:
            self.dropped.append(Dropped(webhook, key[:_SHOWN_CHARS], why))

    def speak(self, webhook: str, spoken: Iterable[tuple[str, str]]) -> None:
        """Keep what a worker said, as far as there is room."""
        for key, value in spoken:
            self._spoken += 1
            if self._spoken > MAX_SPOKEN:
                self.drop(webhook, key, f"more than {MAX_SPOKEN} annotations in a review")
                return
            if not _NAME_PART.match(key):
                self.drop(webhook, key, "not a name part")
                continue
            full = annotation_key(webhook, key)
            if full in self.kept:
                continue
            room = self._spoken_room - len(full) - len(value)
            if room < 0:
                self.drop(webhook, key, f"more than {MAX_SPOKEN_CHARS} characters of annotations in a review")
                continue
            self._spoken_room = room
            self.kept[full] = value

    def quote(self, webhook: str, key: str, patch: str) -> None:
        """Keep a patch, if there is room."""
        if len(patch) > self._patch_room:
            self.drop(webhook, key, f"more than {MAX_PATCH_CHARS} characters of patches in a review")
            return
        self._patch_room -= len(patch)
        self.kept.setdefault(key, patch)


def annotations_of(
    outcomes: Sequence[Outcome], audit_level: AuditLevel, *, is_mutating: bool
) -> tuple[dict[str, str], tuple[Dropped, ...]]:
    """Return the annotations, and the first of those dropped. A key that is taken keeps its first value."""
    annotations = _Annotations()
    for number, outcome in enumerate(outcomes):
        webhook = outcome.invocation.webhook
        # As in the API server: all webhooks are counted in the mutating phase, matching ones in the other.
        index = outcome.invocation.position if is_mutating else number
        if audit_level != "None":
            _note(outcome, f"round_{outcome.round}_index_{index}", annotations, is_mutating=is_mutating)
            if audit_level == "Request" and outcome.is_patched:
                _quote(outcome, f"patch.round_{outcome.round}_index_{index}", annotations)
        if outcome.worker_verdict is not None:
            annotations.speak(webhook.name, outcome.worker_verdict.audit_annotations)
    return annotations.kept, tuple(annotations.dropped)


def _note(outcome: Outcome, place: str, annotations: _Annotations, *, is_mutating: bool) -> None:
    webhook, verdict = outcome.invocation.webhook, outcome.verdict
    if is_mutating and (outcome.call is not None or isinstance(verdict, DryRunRefused)):
        mutated = _mutated(webhook.configuration, webhook.name, outcome.has_changed)
        annotations.kept.setdefault(f"mutation.{place}", mutated)
    if isinstance(verdict, Failed) and not outcome.rejects:
        annotations.kept.setdefault(f"failed-open.{place}", webhook.name)


def _quote(outcome: Outcome, key: str, annotations: _Annotations) -> None:
    webhook, verdict = outcome.invocation.webhook, outcome.verdict
    assert isinstance(verdict, Allowed)
    # Members in the API server's order, those of the operations sorted.
    operations = orjson.dumps(parse_patch(verdict.patch), option=orjson.OPT_SORT_KEYS)
    patch = {
        "configuration": webhook.configuration,
        "webhook": webhook.name,
        "patch": orjson.Fragment(operations),
        "patchType": "JSONPatch",
    }
    annotations.quote(webhook.name, key, orjson.dumps(patch).decode())


@lru_cache(maxsize=_NOTES_KEPT)
def _mutated(configuration: str, webhook: str, has_changed: bool) -> str:
    return orjson.dumps({"configuration": configuration, "webhook": webhook, "mutated": has_changed}).decode()


def annotation_key(webhook_name: str, key: str) -> str:
    """Return the key under which a worker's annotation leaves: ``NAME.KEY``, shortened to 63 characters.

    Shortened keys end in the first 8 hex digits of the full key's SHA-256, so that they stay apart.
    """
    full = f"{webhook_name}.{key}"
    if len(full) <= MAX_KEY_CHARS:
        return full
    return f"{full[:54]}-{hashlib.sha256(full.encode()).hexdigest()[:8]}"

"""Verdicts that hold for other requests: those of webhooks with ``cache``.

Each configuration has a cache of its own, so that no verdict outlives the configuration that it was made for.
Failures are not kept, and neither are patches, which are made for one object.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter, OrderedDict
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

from gateway.pure.core.verdict import Allowed, Denied, Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gateway.pure.core.call import Call
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Phase, Webhook

    Lookup = tuple[str, Phase, Literal["hit", "miss"]]
    """Name and phase of the webhook, and the result."""

CACHE: Final = "cache"
"""The endpoint of a call that was not made because there was a verdict."""
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the verdicts of one webhook or server. One answer can have 8 MiB."""
_BYTES_OF_PART: Final = 40
"""The size of what holds a text of a verdict, such as half of a pair."""
_TEXTS_OF_CAUSE: Final = attrgetter("reason", "message", "field")


class KeptVerdicts:
    """Verdicts by key, each for a time. The least recently used go above a number or ``MAX_KEPT_BYTES``."""

    def __init__(self, max_entries: int, now: Callable[[], float]) -> None:
        """*now* returns seconds."""
        self._max_entries = max_entries
        self._now = now
        self._kept: OrderedDict[bytes, tuple[float, int, Verdict]] = OrderedDict()
        """The least recently used first: when it expires, its bytes, and the verdict."""
        self._bytes = 0

    def find(self, key: bytes) -> Verdict | None:
        """Return the verdict with *key*; None if there is none, or none any more."""
        expires_at, _, verdict = self._kept.get(key, (0.0, 0, None))
        if verdict is None:
            return None
        if expires_at <= self._now():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return verdict

    def keep(self, key: bytes, verdict: Verdict, ttl_s: float) -> None:
        """Keep *verdict* for so many seconds, unless it is a failure or has a patch."""
        if isinstance(verdict, Failed) or (isinstance(verdict, Allowed) and verdict.patch):
            return
        if ttl_s <= 0 or (size := _bytes_of(verdict)) > MAX_KEPT_BYTES:
            return
        if key in self._kept:
            self._drop(key)
        now = self._now()
        self._kept[key] = now + ttl_s, size, verdict
        self._bytes += size
        while True:
            first = next(iter(self._kept))
            is_over = len(self._kept) > self._max_entries or self._bytes > MAX_KEPT_BYTES
            if not is_over and self._kept[first][0] > now:
                return
            self._drop(first)

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._kept.pop(key)[1]


def _bytes_of(verdict: Allowed | Denied) -> int:
    """Return the size of *verdict* in memory, roughly. It can have tens of thousands of parts."""
    parts: list[object] = [*verdict.warnings, *chain.from_iterable(verdict.audit_annotations)]
    if isinstance(verdict, Denied):
        details = verdict.details
        parts += verdict.reason, verdict.message, verdict.status
        parts += details.name, details.group, details.kind, details.uid
        parts += chain.from_iterable(verdict.metadata)
        parts += chain.from_iterable(map(_TEXTS_OF_CAUSE, verdict.causes))
    return _BYTES_OF_PART * len(parts) + sum(map(sys.getsizeof, filter(None, parts)))


class VerdictCache:
    """The verdicts of *webhooks*, those of one configuration."""

    def __init__(
        self,
        webhooks: Iterable[Webhook] = (),
        lookups: Counter[Lookup] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """*lookups* are counted up; *now* returns seconds."""
        self._kept = {
            webhook: KeptVerdicts(webhook.cache.max_entries, now)
            for webhook in webhooks
            if webhook.cache is not None
        }
        self._lookups: Counter[Lookup] = Counter() if lookups is None else lookups

    def find(self, call: Call) -> Verdict | None:
        """Return the verdict for *call*; None, with its ``cache_key`` for :meth:`keep`, if there is none."""
        if not self._kept:
            return None
        webhook = call.invocation.webhook
        kept = self._kept.get(webhook)
        # The object of a call in a chain is not known yet.
        if kept is None or webhook.cache is None or call.after is not None:
            return None
        key = webhook.cache.key.digest(call.payload.condition_input)
        if key and call.parameters:
            # Those of a namespace can differ.
            key += hashlib.sha256(call.parameters).digest()
        verdict = kept.find(key)
        self._lookups[webhook.name, webhook.phase, "miss" if verdict is None else "hit"] += 1
        if verdict is None:
            call.cache_key = key
        return verdict

    def keep(self, call: Call, verdict: Verdict) -> None:
        """Keep the *verdict* of *call*, for which :meth:`find` found none."""
        webhook = call.invocation.webhook
        kept = self._kept.get(webhook)
        if kept is not None and webhook.cache is not None:
            kept.keep(call.cache_key, verdict, webhook.cache.ttl_s)

"""The recent decisions of a process, with the details that the pages of the admin port show.

Kept are denials, failures and fail-opens, and a small sample of the other decisions, in rings: ordinary
decisions never displace the others, and a burst of one webhook in one namespace hardly does, see ``ring``.

A review costs a few microseconds in :meth:`RecentDecisions.offer`. The record and the details are
made after the answer, by a work queue, and at most ``NOTEWORTHY_PER_SECOND`` times a second and process. Of
further denials, failures and fail-opens only the records are kept, ``BRIEF_PER_SECOND`` a second, and of
still more the first and the last of each webhook and namespace, see ``bursts``. ``left_out`` counts the
others.

Webhooks in the mode Shadow are called after the answer. What they would have refused is kept apart, and
joined to the decision about the same request when somebody reads it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from gateway.base.work_queue import WorkQueue
from gateway.observe.decisions.bursts import MAX_BURSTS, Bursts, key_of
from gateway.observe.decisions.details import RecordDetails, details_of
from gateway.observe.decisions.document import decision_document
from gateway.observe.decisions.rate import TokenBucket
from gateway.observe.decisions.record import record_of
from gateway.observe.decisions.redaction import Redactor, has_secrets, has_texts
from gateway.observe.decisions.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from gateway.observe.decisions.document import DecisionDocument, DetailedDocument
    from gateway.observe.decisions.record import DecisionRecord
    from gateway.observe.decisions.ring import Place
    from gateway.pure.core.answer import Answer

log = logging.getLogger(__name__)

NOTEWORTHY_PER_SECOND: Final = 5
NOTEWORTHY_AT_ONCE: Final = 50
BRIEF_PER_SECOND: Final = 100
BRIEF_AT_ONCE: Final = 500
"""Records without details: each costs some 30 microseconds of CPU, and 2 KiB."""
_FOR_FIRST: Final = 0.2
"""The part of them that is for the first denials of a webhook and namespace."""
OTHERS_PER_SECOND: Final = 0.5
OTHERS_AT_ONCE: Final = 5
MAX_PENDING: Final = 64
"""Decisions whose details are still to be made: they keep their requests in memory."""
MAX_PENDING_BYTES: Final = 8 * 1024 * 1024
"""The largest request has 7 MiB by default."""


@dataclass(frozen=True, slots=True)
class RecentDecision:
    """One decision that was kept."""

    record: DecisionRecord
    details: RecordDetails

    @property
    def size_bytes(self) -> int:
        """About the memory that it takes."""
        messages = sum(len(webhook.message) + 400 for webhook in self.record.webhooks)
        return 1000 + len(self.record.message) + messages + self.details.size_bytes


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """Which decisions are wanted. An empty field matches everything."""

    uid: str = ""
    trace_id: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    kind: str = ""
    """The kind alone, such as ``Pod``."""
    webhook: str = ""
    """The name of a webhook, or CONFIGURATION/NAME, that is part of the decision."""
    outcome: str = ""
    """The outcome of a webhook, see ``record.WebhookOutcome``; with ``webhook``, of that one."""

    def matches(self, record: DecisionRecord) -> bool:
        """Whether *record* is wanted."""
        return (
            self.uid in ("", record.uid)
            and self.trace_id in ("", record.trace_id)
            and self.namespace in ("", record.namespace)
            and self.name in ("", record.name)
            and self.user in ("", record.user)
            and self.kind in ("", record.kind[2])
            and (
                not (self.webhook or self.outcome)
                or any(
                    self.webhook in ("", one.webhook, f"{one.configuration}/{one.webhook}")
                    and self.outcome in ("", one.outcome)
                    for one in record.webhooks
                )
            )
        )


EVERYTHING: Final = DecisionFilter()


class Kept(NamedTuple):
    """What was kept at one moment. To read it takes milliseconds, which another thread may spend."""

    decisions: Sequence[RecentDecision | Callable[[], RecentDecision]]
    shadowed: Sequence[RecentDecision]

    def recent(self, wanted: DecisionFilter = EVERYTHING, limit: int | None = None) -> list[RecentDecision]:
        """Return the decisions that *wanted* matches, the latest first, at most *limit*."""
        made = (one() if callable(one) else one for one in self.decisions)
        # The first of a burst may be in a ring, too.
        every = {id(one): one for one in made}.values()
        found = _with_shadows(sorted(every, key=_time, reverse=True), self.shadowed)
        return sorted((one for one in found if wanted.matches(one.record)), key=_time, reverse=True)[:limit]

    def find(self, uid: str) -> RecentDecision | None:
        """Return the latest decision with *uid*; None if it was not kept, or not for long enough."""
        return next(iter(self.recent(DecisionFilter(uid=uid), 1)), None)


class RecentDecisions:
    """Keeps some of the decisions that it is offered. For one event loop."""

    def __init__(
        self,
        *,
        secret_names: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*secret_names* is whether the names of Secrets are kept (``logging.decisionLog.secretNames``)."""
        self.secret_names = secret_names
        self.left_out = 0
        """Denials, failures and fail-opens of which not even the record was kept."""
        self.ordinary_at = 0.0
        """No decision that is not noteworthy is kept before this time, in monotonic seconds."""
        self._clock = clock
        self.lost: OrderedDict[Place, int] = OrderedDict()
        """How many denials, failures and fail-opens of a place were not kept, or went for later ones of the
        same place. Of the last ``MAX_BURSTS`` places with any."""
        self._noteworthy = Ring(400, 8 * 1024 * 1024, self._lose)
        self._brief = Ring(1000, 4 * 1024 * 1024, self._lose)
        self._bursts: Bursts[RecentDecision] = Bursts()
        self._others = Ring(100, 2 * 1024 * 1024, lambda place: None)
        self._shadowed = Ring(200, 1024 * 1024, lambda place: None)
        self._noteworthy_rate = TokenBucket(NOTEWORTHY_PER_SECOND, NOTEWORTHY_AT_ONCE)
        self._brief_rate = TokenBucket(BRIEF_PER_SECOND, BRIEF_AT_ONCE)
        self._others_rate = TokenBucket(OTHERS_PER_SECOND, OTHERS_AT_ONCE)
        self._queue = WorkQueue()
        self.pending = 0
        """Decisions whose details are not made yet."""
        self._pending_bytes = 0

    def offer(self, answer: Answer, seconds: float, digest: str, *, is_noteworthy: bool) -> None:
        """Keep *answer*, which was given after *seconds*, if it is one of those that are kept.

        *digest* is that of the configuration; *is_noteworthy* see ``record.is_noteworthy``.
        """
        rate = self._noteworthy_rate if is_noteworthy else self._others_rate
        size = len(answer.evaluation.request.json)
        now = self._clock()
        if (
            not rate.take(now)
            or self.pending >= MAX_PENDING
            or self._pending_bytes + size > MAX_PENDING_BYTES
        ):
            if is_noteworthy:
                self._keep_briefly(partial(brief, answer, seconds, time.time(), digest), answer, now)
            self.ordinary_at = self._others_rate.next_at
            return
        self.pending += 1
        self._pending_bytes += size
        steps = capture(answer, seconds, time.time(), digest, secret_names=self.secret_names)
        ring = self._noteworthy if is_noteworthy else self._others
        self._queue.begin(steps, partial(self._keep, ring, size), partial(self._fail, size))

    def keep_shadowed(self, record: DecisionRecord) -> None:
        """Keep *record*: a request without secrets, and a webhook in the mode Shadow that would refuse it."""
        self._shadowed.add(RecentDecision(record, _SHADOW_DETAILS))

    @property
    def since(self) -> float:
        """Denials, failures and fail-opens before this time are gone, in seconds since 1970; 0 if none."""
        return max(self._noteworthy.since, self._brief.since)

    def read(self) -> Kept:
        """Return what is kept now."""
        decisions = [*self._noteworthy, *self._brief, *self._bursts, *self._others]
        return Kept(decisions, list(self._shadowed))

    def _keep_briefly(self, make: Callable[..., RecentDecision], answer: Answer, now: float) -> None:
        """Keep the decision that *make* makes of *answer*, which came at *now*, without details."""
        make = partial(make, secret_names=self.secret_names)
        key = key_of(answer)
        is_first = not self._bursts.is_under_way(key, now)
        if self._brief_rate.take(now, 0.0 if is_first else _FOR_FIRST):
            decision = make()
            self._brief.add(decision)
            if is_first:
                self._bursts.begin(key, decision, now)
        elif is_first or self._bursts.end_with(key, make, len(answer.evaluation.request.json), now):
            self.left_out += 1
            self._lose(key)

    def _lose(self, place: Place) -> None:
        self.lost[place] = self.lost.pop(place, 0) + 1
        if len(self.lost) > MAX_BURSTS:
            self.lost.popitem(last=False)

    def _keep(self, ring: Ring, size: int, decision: RecentDecision) -> None:
        self.pending -= 1
        self._pending_bytes -= size
        ring.add(decision)

    def _fail(self, size: int, error: Exception) -> None:
        self.pending -= 1
        self._pending_bytes -= size
        log.error("internal error: a decision cannot be kept for the pages", exc_info=error)


def _time(decision: RecentDecision) -> float:
    return decision.record.time


def _with_shadows(
    decisions: Iterable[RecentDecision], shadowed: Iterable[RecentDecision]
) -> Iterator[RecentDecision]:
    """Yield *decisions* with the webhooks that *shadowed* has of the same requests, and the rest of these."""
    requests: dict[tuple[str, str], list[RecentDecision]] = {}
    for one in shadowed:
        requests.setdefault((one.record.uid, one.record.phase), []).append(one)
    for one in decisions:
        yield _joined(one, requests.pop((one.record.uid, one.record.phase), ()))
    for first, *others in requests.values():
        yield _joined(first, others)


def _joined(decision: RecentDecision, others: Sequence[RecentDecision]) -> RecentDecision:
    """Return *decision* with the webhooks of *others*, too."""
    webhooks = tuple(webhook for one in others for webhook in one.record.webhooks)
    if not webhooks:
        return decision
    record, details = decision.record, decision.details
    called = {(one.configuration, one.webhook) for one in webhooks}
    unmatched = tuple(one for one in details.unmatched if (one.configuration, one.webhook) not in called)
    record = record._replace(webhooks=record.webhooks + webhooks)
    return RecentDecision(record, replace(details, unmatched=unmatched))


def capture(
    answer: Answer, seconds: float, at: float, digest: str, *, secret_names: bool
) -> Generator[None, None, RecentDecision]:
    """Return the record and the details of *answer* without secrets; yields between steps.

    *at* is the time of the answer, in seconds since 1970. *digest* is that of the configuration.
    """
    yield  # what is read below is parsed after the answer is written
    redactor = Redactor(secret_names=secret_names)
    redactor.learn_request(answer.evaluation.request)
    details = yield from details_of(answer, redactor)
    record = record_of(answer, seconds, at, digest)
    return RecentDecision(redactor.record(record), details)


def brief(answer: Answer, seconds: float, at: float, digest: str, *, secret_names: bool) -> RecentDecision:
    """Return the record of *answer* alone, see :func:`capture`.

    Without the search for secret values, which takes longer, messages that may quote one are left out.
    """
    redactor = Redactor(secret_names=secret_names)
    record = record_of(answer, seconds, at, digest)
    if has_texts(record) and has_secrets(answer.evaluation.request):
        redactor.leave_out_messages()
    return RecentDecision(redactor.record(record), _NO_DETAILS)


_NO_DETAILS: Final = RecordDetails(
    groups=(),
    object=b"",
    object_note="too many decisions came at the time, so only the answers of the webhooks were kept",
    changes=(),
    unmatched=(),
    unmatched_left_out=0,
    warnings=(),
    audit_annotations=(),
    kept_ahead=0,
    discarded_ahead=0,
)


_SHADOW_DETAILS: Final = replace(
    _NO_DETAILS, object_note="only the answers of webhooks in the mode Shadow were kept of this request"
)


# -- JSON ---------------------------------------------------------------------------------------------


def page_json(decision: RecentDecision) -> DecisionDocument:
    """Return the JSON of *decision* for a list: its document, with the parameters without secrets."""
    document = decision_document(decision.record)
    for shown, record in zip(document["webhooks"], decision.record.webhooks, strict=True):
        shown["parameters"] = _shown_parameters(record.parameters)
    return document


def detailed_page_json(decision: RecentDecision) -> DetailedDocument:
    """Return the JSON of *decision* with all details."""
    details = decision.details
    stages = details.stages()
    return {
        **page_json(decision),
        "groups": list(details.groups),
        "object": stages[0] if stages else None,
        "objectNote": details.object_note,
        "changes": [
            {"webhook": change.index, "patch": orjson.loads(change.patch or b"[]")}
            for change in details.changes
        ],
        "finalObject": stages[-1] if stages else None,
        "overwritten": {path: list(indices) for path, indices in details.overwritten().items()},
        "notCalled": [
            {"configuration": one.configuration, "webhook": one.webhook, "reason": one.reason}
            for one in details.unmatched
        ],
        "notCalledLeftOut": details.unmatched_left_out,
        "warnings": list(details.warnings),
        "auditAnnotations": dict(details.audit_annotations),
        "callsAheadKept": details.kept_ahead,
        "callsAheadDiscarded": details.discarded_ahead,
    }


@lru_cache(64)
def _shown_parameters(parameters: bytes) -> object:
    """Return *parameters* without secrets, None for none. The decisions of a list share them: do not change
    them.
    """
    return Redactor(secret_names=True).redacted(orjson.loads(parameters)) if parameters else None

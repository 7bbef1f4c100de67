"""Calls after the answer: webhooks in the mode Shadow, and candidates.

Nothing here can affect an answer. The calls wait in a queue of bounded number and bytes, a few run at a time,
and only while the event loop is on time; the others are dropped and counted. Each is an evaluation of its own
with one webhook, on the object that the webhook would be called with in its turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.base.work_queue import WorkQueue
from gateway.engine.dispatch.driver import NO_ROOM_FOR_SHADOWS
from gateway.observe.decisions.line import decision
from gateway.observe.decisions.rate import TokenBucket
from gateway.observe.decisions.record import record_of, record_of_webhook
from gateway.observe.decisions.redaction import Redactor
from gateway.pure.core.comparison import Comparison, compare, is_sampled
from gateway.pure.core.decision import PLAIN_ALLOWED
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.matching import Selection
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gateway.engine.snapshot import Snapshot
    from gateway.observe.decisions.record import DecisionRecord
    from gateway.observe.telemetry.metrics import Metrics
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.call import Payload
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.webhook import Candidate, Phase, Webhook

    Cancel = Callable[[], None]
    CallApart = Callable[
        [Snapshot, Selection, Evaluation, Payload, Callable[[Evaluation], None], Callable[[Exception], None]],
        Cancel,
    ]
    """``gateway.engine.admit.call_apart``."""

log = logging.getLogger(__name__)

MAX_WAITING: Final = 256
MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the requests of calls that wait or run: an eighth of what unary calls to one worker may have."""
MAX_RUNNING: Final = 16
INTERVAL_S: Final = 0.01
LATE_S: Final = 0.05
"""A timer that is so late shows that the event loop has more work than it can do."""
FINDINGS_PER_SECOND: Final = 5
FINDINGS_AT_ONCE: Final = 50
"""Findings that are kept and logged, which takes up to ten milliseconds for a Secret. All are counted."""
MAX_FINDINGS: Final = 200
"""The last findings, for the pages: of 16 KiB each at most."""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """One call that is to be made."""

    snapshot: Snapshot
    answer: Answer
    seconds: float
    """From the request to the answer."""
    webhook: Webhook
    selection: Selection
    """With the one webhook that is called."""
    payload: Payload
    in_force: Outcome | None
    """The outcome with which that of the candidate is compared. None if this is not a candidate."""

    @property
    def size_bytes(self) -> int:
        return len(self.answer.evaluation.request.json) + self.payload.size_bytes


class AfterAnswer(Protocol):
    """Is notified of the calls after the answer."""

    def called(self, answer: Answer, outcome: Outcome) -> None:
        """A webhook in the mode Shadow was called after *answer*."""

    def compared(self, answer: Answer, webhook: Webhook, kinds: Iterable[str]) -> None:
        """The candidate of *webhook* was compared, with differences of these *kinds*."""


class ShadowCalls:
    """The calls after the answer of one process. Make it on a running event loop."""

    def __init__(
        self,
        metrics: Metrics,
        log_finding: Callable[[dict[str, Any]], None],
        keep_refusal: Callable[[DecisionRecord], None],
        call_apart: CallApart,
    ) -> None:
        """*log_finding* takes the documents of findings, without secrets. *call_apart* makes a call.

        *keep_refusal* takes the record of a request with a webhook in the mode Shadow that would refuse it.
        """
        self.findings: deque[dict[str, Any]] = deque(maxlen=MAX_FINDINGS)
        """The documents of the last findings, the oldest first."""
        self.listener: AfterAnswer | None = None
        self.secret_names = False
        """Whether findings have the names of Secrets."""
        self._metrics = metrics
        self._log_finding = log_finding
        self._keep_refusal = keep_refusal
        self._call_apart = call_apart
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Work] = deque()
        self._running: dict[_Work, Cancel | None] = {}
        """What cancels a call, or None while its result is compared."""
        self._bytes = 0
        self._timer: asyncio.Handle | None = None
        self._due_at = 0.0
        self._queue = WorkQueue()
        self._rate = TokenBucket(FINDINGS_PER_SECOND, FINDINGS_AT_ONCE)

    def observer(self, snapshot: Snapshot, *, has_stages: bool) -> ShadowObserver | None:
        """Return the observer that makes these calls for reviews by *snapshot*, or None without any.

        *has_stages* is whether any webhook may be in a stage of a plan: stages change without another
        snapshot.
        """
        webhooks = (*snapshot.paths["/mutate"].webhooks, *snapshot.paths["/validate"].webhooks)
        if has_stages or any(map(_may_be_called_afterwards, webhooks)):
            return ShadowObserver(snapshot, self._enter)
        return None

    def close(self) -> None:
        """Cancel all calls."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        for cancel in self._running.values():
            if cancel is not None:
                cancel()
        self._running.clear()

    def _enter(self, work: _Work) -> None:
        size = work.size_bytes
        if len(self._waiting) >= MAX_WAITING or size > LARGE_BYTES or self._bytes + size > MAX_BYTES:
            self._metrics.rollouts.dropped(work.webhook)
            return
        self._bytes += size
        self._waiting.append(work)
        self._begin_later()

    def _begin_later(self) -> None:
        if self._timer is None:
            self._due_at = self._loop.time() + INTERVAL_S
            self._timer = self._loop.call_later(INTERVAL_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._loop.time() - self._due_at > LATE_S:
            for work in self._waiting:
                self._drop(work)
            self._waiting.clear()
        while self._waiting and len(self._running) < MAX_RUNNING:
            self._call(self._waiting.popleft())
        if self._waiting:
            self._begin_later()

    def _drop(self, work: _Work) -> None:
        self._bytes -= work.size_bytes
        self._metrics.rollouts.dropped(work.webhook)

    def _call(self, work: _Work) -> None:
        self._running[work] = _starting
        cancel = self._call_apart(
            work.snapshot,
            work.selection,
            work.answer.evaluation,
            work.payload,
            partial(self._called, work),
            partial(self._crashed, work),
        )
        if self._running.get(work) is _starting:
            self._running[work] = cancel

    def _called(self, work: _Work, evaluation: Evaluation) -> None:
        outcome = evaluation.outcomes[0] if evaluation.outcomes else None
        if outcome is not None and outcome.verdict is NO_ROOM_FOR_SHADOWS:
            self._metrics.rollouts.dropped(work.webhook)
        elif outcome is not None and work.in_force is not None:
            self._running[work] = None
            done = partial(self._compared, work, outcome)
            self._queue.begin(compare(work.in_force, outcome), done, partial(self._crashed, work))
            return
        elif outcome is not None:
            self._metrics.outcomes(evaluation.request.operation, [outcome])
            if self.listener is not None:
                self.listener.called(work.answer, outcome)
            if outcome.would_reject or outcome.would_change:
                self._find(work, [outcome], "Shadow", Comparison())
        self._leave(work)

    def _compared(self, work: _Work, outcome: Outcome, found: Comparison) -> None:
        if work in self._running and work.in_force is not None:
            self._metrics.rollouts.compared(work.webhook, found.kinds)
            if self.listener is not None:
                self.listener.compared(work.answer, work.webhook, found.kinds)
            if found.kinds:
                self._find(work, [work.in_force, outcome], "Difference", found)
        self._leave(work)

    def _crashed(self, work: _Work, error: Exception) -> None:
        log.error("internal error in a call of %s after the answer", work.webhook.name, exc_info=error)
        self._leave(work)

    def _leave(self, work: _Work) -> None:
        if work in self._running:
            del self._running[work]
            self._bytes -= work.size_bytes

    def _find(self, work: _Work, outcomes: list[Outcome], kind: str, found: Comparison) -> None:
        """Keep and log a finding, unless there are too many."""
        answer = work.answer
        if not self._rate.take(self._loop.time()):
            return
        redactor = Redactor(secret_names=self.secret_names)
        redactor.learn_request(answer.evaluation.request)
        record = record_of(
            answer._replace(decision=PLAIN_ALLOWED), work.seconds, time.time(), work.snapshot.digest
        )
        webhooks = [record_of_webhook(outcome, answer.started_at) for outcome in outcomes]
        if work.in_force is not None:
            webhooks[-1] = webhooks[-1]._replace(mode="Candidate")
        record = redactor.record(record._replace(webhooks=tuple(webhooks)))
        document = decision(record, secret_names=self.secret_names)
        last = record.webhooks[-1]
        about = ", ".join(found.kinds) or last.outcome
        document |= {name: getattr(last, name) for name in ("configuration", "webhook", "pool", "policy")}
        document |= {"endpoint": last.endpoint, "mode": last.mode, "outcome": kind}
        document["message"] = f"{about}: {last.message}" if last.message else about
        document["differences"] = list(found.kinds)
        document["paths"] = [redactor.text(path)[:256] for path in found.paths]
        self.findings.append(document)
        if kind == "Shadow" and outcomes[0].would_reject:
            self._keep_refusal(record)
        self._log_finding(document)


def _starting() -> None:
    """Stand for what cancels a call that is about to begin."""


class ShadowObserver:
    """Finds the calls after the answer that the reviews by one snapshot need. A ``ReviewObserver``."""

    def __init__(self, snapshot: Snapshot, enter: Callable[[_Work], None]) -> None:
        self._snapshot = snapshot
        self._enter = enter
        self._selections: dict[tuple[Webhook, bool], Selection] = {}
        """Selections of one webhook, by the webhook and whether its candidate is called."""

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Have the calls made that *answer* leaves."""
        for webhook, payload, in_force in _wanted(answer):
            selection = self._selections.get((webhook, in_force is not None))
            if selection is None:
                selection = _selection(answer, webhook, is_candidate=in_force is not None)
                self._selections[webhook, in_force is not None] = selection
            self._enter(_Work(self._snapshot, answer, seconds, webhook, selection, payload, in_force))

    def review_cancelled(self, phase: Phase) -> None:
        """Do nothing: a cancelled review has no answer."""


def _wanted(answer: Answer) -> Iterator[tuple[Webhook, Payload, Outcome | None]]:
    """Yield the webhook of each call, its payload, and the outcome to compare with, if it is a candidate."""
    evaluation = answer.evaluation
    for position, mode in evaluation.modes.items():
        if mode == "Shadow":
            payload = _payload_at(evaluation, position)
            if payload is not None:
                yield evaluation.selection.webhooks[position], payload, None
    for outcome in evaluation.outcomes:
        webhook = outcome.invocation.webhook
        candidate = _candidate_of(webhook)
        if (
            candidate is not None
            and outcome.round == 0
            and outcome.call is not None
            and not isinstance(outcome.verdict, Failed)
            and is_sampled(evaluation.request.uid, candidate.percent_of_reviews)
        ):
            yield webhook, outcome.call.payload, outcome


def _may_be_called_afterwards(webhook: Webhook) -> bool:
    rollout = webhook.rollout
    return rollout is not None and (rollout.mode == "Shadow" or rollout.candidate is not None)


def _candidate_of(webhook: Webhook) -> Candidate | None:
    return None if webhook.rollout is None else webhook.rollout.candidate


def _payload_at(evaluation: Evaluation, position: int) -> Payload | None:
    """Return the object at the turn of the webhook at *position*, or None if its turn did not come."""
    for outcome in evaluation.outcomes:
        is_later = outcome.round == 1 or outcome.invocation.position > position
        if is_later and outcome.payload is not None:
            return outcome.payload
        if evaluation.is_mutating and not is_later and outcome.rejects:
            return None
    return evaluation.payload


def _selection(answer: Answer, webhook: Webhook, *, is_candidate: bool) -> Selection:
    selection, candidate = answer.evaluation.selection, _candidate_of(webhook)
    if not is_candidate or candidate is None:
        return Selection(selection.phase, [webhook], selection.exceptions)
    # That it matches is known: the webhook in force was called.
    hook = replace(
        webhook,
        client=candidate.client,
        namespace_selector=EVERYTHING,
        object_selector=EVERYTHING,
        match_conditions=None,
    )
    return Selection(selection.phase, [hook])

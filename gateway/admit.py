"""The spine: one review from its bytes to the bytes of its answer, every stage named in order.

    decode -> invocations -> evaluation <-> workers -> decide -> encode

The stages do not call each other; each gives back a value, and the order stands here and nowhere else. The
one stage that waits is the run of the evaluation, which calls back when it is done.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.core.decision import decide
from gateway.core.evaluation import Evaluation
from gateway.core.response import encode
from gateway.core.review import decode
from gateway.dispatch.dispatcher import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.config.model import AuditLevel
    from gateway.core.decision import Decision
    from gateway.core.matching import Selection
    from gateway.core.speculation import ChangeMemory
    from gateway.dispatch.dispatcher import Workers
    from gateway.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One configuration in force. A review keeps the one it started with, whatever is loaded meanwhile."""

    paths: Mapping[str, Selection]
    """What each path of the front end selects."""
    workers: Workers
    namespace_labels: Mapping[str, Mapping[str, str]]
    memory: ChangeMemory
    audit_level: AuditLevel


@dataclass(frozen=True, slots=True)
class Answer:
    """A review that was settled: the bytes that answer it, and how they came about."""

    body: bytes
    """JSON of an AdmissionReview."""
    decision: Decision
    evaluation: Evaluation


def admit(
    snapshot: Snapshot,
    selection: Selection,
    body: bytes,
    limits_s: tuple[float, float],
    answer: Callable[[Answer], None],
    crashed: Callable[[Exception], None],
) -> Run:
    """Review *body* by the webhooks of *selection*, and give the result to *answer*.

    *limits_s* are the deadline, on the clock of ``snapshot.workers.now``, and the whole budget that messages
    about it name. *answer* or *crashed* (a bug) is called once, perhaps before this returns, and not after
    the ``cancel`` of the run that is returned.

    Raises:
        ReviewError: *body* is not a review that can be answered.
    """
    request = decode(body)
    evaluation = Evaluation(selection, request, snapshot.namespace_labels, snapshot.memory)

    def done(evaluation: Evaluation) -> None:
        decision = decide(evaluation, snapshot.audit_level)
        answer(Answer(encode(request.api_version, request.uid, decision), decision, evaluation))

    run = Run(evaluation, snapshot.workers, limits_s, done, crashed)
    run.start()
    return run


class Admission:
    """``admit`` as the front end uses it: counted, and with what went wrong in the log."""

    def __init__(self, metrics: Metrics, now: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._now = now

    def review(
        self,
        snapshot: Snapshot,
        selection: Selection,
        body: bytes,
        limits_s: tuple[float, float],
        respond: Callable[[bytes], None],
        crashed: Callable[[Exception], None],
    ) -> Callable[[], None]:
        """Review *body*, give the answer's bytes to *respond*, and return what withdraws the review."""
        started = self._now()
        metrics = self._metrics

        def answered(answer: Answer) -> None:
            respond(answer.body)
            evaluation, decision = answer.evaluation, answer.decision
            operation = evaluation.request.operation
            metrics.review(
                selection.phase, operation, allowed=decision.allowed, seconds=self._now() - started
            )
            metrics.outcomes(operation, evaluation.outcomes)
            metrics.speculation(evaluation.kept_ahead, evaluation.discarded_ahead)
            for webhook, key in decision.dropped_annotations:
                log.warning("webhook %s: audit annotation %.80r dropped: not a name part", webhook, key)

        return admit(snapshot, selection, body, limits_s, answered, crashed).cancel

"""The spine: one review from its bytes to the bytes of its answer, every stage named in order.

    decode -> namespace -> invocations -> evaluation <-> workers -> decide -> encode

The stages do not call each other; each gives back a value, and the order stands here and nowhere else. What
waits calls back when it is done: the run of the evaluation, and before it, where a cluster is watched that
has not told of the request's namespace yet, the look-up of that.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from gateway.core.decision import decide
from gateway.core.evaluation import Evaluation
from gateway.core.large import LARGE_BYTES
from gateway.core.matching import is_namespace_write
from gateway.core.response import encode
from gateway.core.review import decode_in_steps, decode_plain
from gateway.dispatch.driver import EvaluationDriver
from gateway.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from gateway.core.deadline import Deadline
    from gateway.core.decision import Decision
    from gateway.core.matching import Selection
    from gateway.core.review import AdmissionRequest
    from gateway.snapshot import FoundNamespace, Snapshot
    from gateway.telemetry.metrics import Metrics

Awaited = TypeVar("Awaited")

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """A review that was settled: the bytes that answer it, and how they came about."""

    body: bytes
    """JSON of an AdmissionReview."""
    decision: Decision
    evaluation: Evaluation


def admit(
    snapshot: Snapshot,
    selection: Selection,
    body: bytes,
    deadline: Deadline,
    answer: Callable[[Answer], None],
    crashed: Callable[[Exception], None],
) -> Callable[[], None]:
    """Review *body* by the webhooks of *selection*, and give the result to *answer*.

    *deadline* is on the clock of ``snapshot.backends.now``. *answer* or *crashed* (a bug) is called once,
    perhaps before this returns, and not after what is returned was called, which withdraws the review.

    A *body* that is large, or that orjson does not read, is read in turns with others, so that small ones
    need not wait for it. What is wrong with it is then given to *crashed*.

    Raises:
        ReviewError: *body* is not a review that can be answered.
    """

    def look_up(request: AdmissionRequest) -> Callable[[], None]:
        namespace = snapshot.namespaces.get(request.namespace)
        if namespace is None and snapshot.look_up is not None and needs_namespace(selection, request):
            # Half of the time is left for the webhooks.
            timeout_s = deadline.remaining_s(snapshot.backends.now()) / 2
            waiting = _Waiting(partial(begin, request), crashed)
            waiting.withdraw = snapshot.look_up(request.namespace, timeout_s, waiting.found)
            return waiting.cancel
        return begin(request, namespace)

    def begin(request: AdmissionRequest, namespace: FoundNamespace) -> Callable[[], None]:
        evaluation = Evaluation(selection, request, namespace, snapshot.memory)
        run = EvaluationDriver(evaluation, snapshot.backends, deadline, partial(done, request), crashed)
        run.start()
        return run.cancel

    def done(request: AdmissionRequest, evaluation: Evaluation) -> None:
        decision = decide(evaluation, snapshot.audit_level)
        answer(Answer(encode(request.api_version, request.uid, decision), decision, evaluation))

    if len(body) <= LARGE_BYTES and (request := decode_plain(body)) is not None:
        return look_up(request)
    waiting = _Waiting(look_up, crashed)
    steps = _until(decode_in_steps(body), deadline, snapshot.backends.now)
    waiting.withdraw = snapshot.backends.turns.begin(steps, waiting.found, crashed)
    return waiting.cancel


def _until(
    steps: Generator[None, None, AdmissionRequest], deadline: Deadline, now: Callable[[], float]
) -> Generator[None, None, AdmissionRequest]:
    """Do as *steps*, but not after the deadline.

    Raises:
        Overloaded: it has passed.
    """
    while not deadline.has_passed(now()):
        try:
            next(steps)
        except StopIteration as end:
            request: AdmissionRequest = end.value
            return request
        yield
    raise Overloaded(f"the {deadline.budget_s:g} seconds for the review were over before it was read")


def needs_namespace(selection: Selection, request: AdmissionRequest) -> bool:
    """Whether a webhook's selector may need the request's namespace, or its worker be shown it.

    One that is just being made is not there yet.
    """
    return request.namespace != "" and not is_namespace_write(request) and selection.has_rule_for(request)


class _Waiting(Generic[Awaited]):
    """A review that waits: for its request to be read, or for its namespace to be looked up."""

    __slots__ = ("_begin", "_crashed", "withdraw")

    withdraw: Callable[[], None]
    """Withdraws what is waited for, or from its end on the review."""

    def __init__(
        self, begin: Callable[[Awaited], Callable[[], None]], crashed: Callable[[Exception], None]
    ) -> None:
        self._begin = begin
        self._crashed = crashed

    def found(self, awaited: Awaited) -> None:
        """Go on with the review."""
        try:
            self.withdraw = self._begin(awaited)
        except Exception as error:
            self._crashed(error)

    def cancel(self) -> None:
        """Withdraw the review, whether it has begun or not."""
        self.withdraw()


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
        deadline: Deadline,
        respond: Callable[[bytes], None],
        crashed: Callable[[Exception], None],
    ) -> Callable[[], None]:
        """Review *body*, give the answer's bytes to *respond*, and return what withdraws the review.

        That is to be called at most once, and not after *respond* or *crashed* was: it is counted.
        """
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
            metrics.exclusions(operation, evaluation.exclusions)
            metrics.speculation(evaluation.kept_ahead, evaluation.discarded_ahead)
            for webhook, key, why in decision.dropped_annotations:
                log.warning("webhook %s: audit annotation %r dropped: %s", webhook, key, why)

        return partial(
            self._withdraw, selection.phase, admit(snapshot, selection, body, deadline, answered, crashed)
        )

    def _withdraw(self, phase: str, withdraw: Callable[[], None]) -> None:
        self._metrics.withdrawn[phase] += 1
        withdraw()

"""The spine: one review from the bytes of its request to the bytes of its answer, every stage named in order.

    decode -> namespace -> modes -> evaluation <-> workers -> decide -> encode

The stages do not call each other; each returns a value, and only ``_Review`` has their order.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from gateway.base.errors import NotAttested, Overloaded
from gateway.engine.dispatch.driver import EvaluationDriver
from gateway.pure.core.answer import NO_ORIGIN, Answer
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.decision import decide, with_reference
from gateway.pure.core.evaluation import NO_MODES, Evaluation
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.modes import modes_of
from gateway.pure.core.response import encode
from gateway.pure.core.review import decode_in_steps, decode_plain, is_namespace_write

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from gateway.engine.cluster_source import FoundNamespace
    from gateway.engine.snapshot import Snapshot
    from gateway.pure.core.answer import Origin
    from gateway.pure.core.call import Payload
    from gateway.pure.core.matching import Selection
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Phase

    Cancel = Callable[[], None]

log = logging.getLogger(__name__)


class ReviewObserver(Protocol):
    """Is notified of the end of each review, for metrics and records."""

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """A review ended with *answer* after so many *seconds*."""

    def review_cancelled(self, phase: Phase) -> None:
        """A review of *phase* was cancelled before its answer."""


class Observers:
    """Several observers as one."""

    def __init__(self, observers: Sequence[ReviewObserver]) -> None:
        self._observers = observers

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Notify every observer; one that fails is logged and does not affect the others."""
        for observer in self._observers:
            try:
                observer.review_answered(answer, seconds)
            except Exception:
                log.exception("internal error: %s failed on an answered review", type(observer).__name__)

    def review_cancelled(self, phase: Phase) -> None:
        """Notify every observer."""
        for observer in self._observers:
            observer.review_cancelled(phase)


class Admission:
    """The reviews of one snapshot."""

    def __init__(
        self, snapshot: Snapshot, observer: ReviewObserver, clock: Callable[[], float] = time.time
    ) -> None:
        """*clock* returns seconds since 1970. It is read once for each review."""
        self.snapshot = snapshot
        self.observer = observer
        self.clock = clock

    def review(
        self,
        selection: Selection,
        body: bytes,
        deadline: Deadline,
        answered: Callable[[Answer], None],
        failed: Callable[[Exception], None],
        origin: Origin = NO_ORIGIN,
    ) -> Cancel:
        """Review *body* by the webhooks of *selection*, and return a function that cancels the review.

        *origin* is the HTTP request, for records.
        *deadline* is on the clock of ``snapshot.backends.now``. *answered* or *failed* is called once,
        perhaps before this returns, and not after the review was cancelled. The error is a ReviewError if
        *body* is not a review that can be answered, Unavailable if its time was over too early, and otherwise
        a bug.
        """
        moved = self.snapshot.moved
        if moved is not None:
            selection = moved.leave_out(selection)
        review = _Review(self, selection, deadline, answered, failed, origin)
        review.start(body)
        return review.cancel


class _Review:
    """One review. Each method begins the next stage."""

    __slots__ = (
        "_admission",
        "_answered",
        "_cancel_stage",
        "_deadline",
        "_failed",
        "_origin",
        "_request",
        "_selection",
        "_started_at",
    )

    _request: AdmissionRequest
    _cancel_stage: Callable[[], None]
    """Cancels the stage that the review waits for."""

    def __init__(
        self,
        admission: Admission,
        selection: Selection,
        deadline: Deadline,
        answered: Callable[[Answer], None],
        failed: Callable[[Exception], None],
        origin: Origin,
    ) -> None:
        self._admission = admission
        self._selection = selection
        self._deadline = deadline
        self._answered = answered
        self._failed = failed
        self._origin = origin
        self._started_at = admission.snapshot.backends.now()

    def cancel(self) -> None:
        """Cancel the review; at most once, and not after its end."""
        cancel_stage = self._cancel_stage
        self._leave_stage()
        cancel_stage()
        self._admission.observer.review_cancelled(self._selection.phase)

    def start(self, body: bytes) -> None:
        """Decode *body*: at once, or in steps by the work queue if it is large or unusual."""
        try:
            request = decode_plain(body) if len(body) <= LARGE_BYTES else None
        except Exception as error:
            self._fail(error)
            return
        if request is not None:
            self._look_up(request)
        else:
            queue = self._admission.snapshot.backends.read_queue
            self._cancel_stage = queue.begin(self._decode(body), self._look_up, self._fail)

    def _decode(self, body: bytes) -> Generator[None, None, AdmissionRequest]:
        """Decode *body* in steps.

        Raises:
            Overloaded: the deadline has passed.
        """
        deadline = self._deadline
        steps = decode_in_steps(body)
        now = self._admission.snapshot.backends.now
        while not deadline.has_passed(now()):
            try:
                next(steps)
            except StopIteration as end:
                request: AdmissionRequest = end.value
                return request
            yield
        raise Overloaded(f"the {deadline.budget_s:g} seconds for the review were over before it was read")

    def _look_up(self, request: AdmissionRequest) -> None:
        """Find the namespace of *request*: in the snapshot, or at the API server of the cluster."""
        self._request = request
        snapshot = self._admission.snapshot
        request.has_go_types = snapshot.has_go_types
        try:
            allowed = self._origin.api_group
            if allowed is not None and request.resource[0] != allowed:
                raise NotAttested("the token does not attest the API group of the request")
            namespace = snapshot.namespaces.get(request.namespace)
            look_up = snapshot.look_up if namespace is None else None
            if look_up is not None and needs_namespace(self._selection, request):
                # Half of the time is left for the webhooks.
                timeout_s = self._deadline.remaining_s(snapshot.backends.now()) / 2
                trace = self._origin.trace
                found = self._evaluate if trace is None else trace.look_up("namespace", self._evaluate)
                self._cancel_stage = look_up(request.namespace, timeout_s, found)
                return
        except Exception as error:
            self._fail(error)
            return
        self._evaluate(namespace)

    def _evaluate(self, namespace: FoundNamespace) -> None:
        """Call the webhooks that match."""
        snapshot, selection, request = self._admission.snapshot, self._selection, self._request
        try:
            now = self._admission.clock()
            modes = NO_MODES
            stages = snapshot.stages.in_force
            if selection.has_modes or stages:
                modes = modes_of(selection, request, namespace, now, stages)
            evaluation = Evaluation(
                selection,
                request,
                namespace,
                snapshot.memory,
                now,
                modes,
                params=snapshot.params,
                schemas=snapshot.schemas,
                rejects_conflicts=snapshot.rejects_conflicts,
            )
            calls = evaluation.start()
            if evaluation.done:
                self._decide(evaluation)
                return
        except Exception as error:
            self._fail(error)
            return
        driver = EvaluationDriver(
            evaluation, snapshot.backends, self._deadline, self._decide, self._fail, self._origin.trace
        )
        self._cancel_stage = driver.cancel
        driver.start(calls)

    def _decide(self, evaluation: Evaluation) -> None:
        """Answer by the outcomes of *evaluation*."""
        self._leave_stage()
        request, snapshot = self._request, self._admission.snapshot
        decision = decide(evaluation, snapshot.audit_level, snapshot.stages.in_force)
        if snapshot.decision_reference != "None":
            decision = with_reference(decision, request.uid, snapshot.decision_reference)
        body = encode(request.api_version, request.uid, decision)
        answer = Answer(body, decision, evaluation, self._selection, self._origin, self._started_at)
        self._answered(answer)
        self._admission.observer.review_answered(answer, snapshot.backends.now() - self._started_at)
        for webhook, key, reason in decision.dropped_annotations:
            log.warning("audit annotation dropped: webhook %s, key %r: %s", webhook, key, reason)

    def _fail(self, error: Exception) -> None:
        self._leave_stage()
        self._failed(error)

    def _leave_stage(self) -> None:
        # Else a review and its stage refer to each other, and only the garbage collector frees them.
        self._cancel_stage = _do_nothing


def _do_nothing() -> None:
    pass


def call_apart(
    snapshot: Snapshot,
    selection: Selection,
    before: Evaluation,
    payload: Payload,
    called: Callable[[Evaluation], None],
    failed: Callable[[Exception], None],
) -> Cancel:
    """Call the one webhook of *selection* with *payload*, apart from *before*, the evaluation of its review.

    Its timeout begins now. *called* or *failed* is called once, perhaps before this returns. Returns a
    function that cancels the call.
    """
    evaluation = Evaluation(
        selection,
        before.request,
        before.namespace,
        now=time.time(),
        modes={0: "Shadow"},
        payload=payload,
        params=snapshot.params,
        schemas=snapshot.schemas,
    )
    backends = snapshot.backends
    deadline = Deadline.after(selection.webhooks[0].timeout_s, backends.now())
    driver = EvaluationDriver(evaluation, backends, deadline, called, failed)
    try:
        calls = evaluation.start()
    except Exception as error:
        failed(error)
    else:
        driver.start(calls)
    return driver.cancel


def needs_namespace(selection: Selection, request: AdmissionRequest) -> bool:
    """Whether a webhook's selector may need the request's namespace, or its worker may be shown it.

    A namespace that is being created does not exist yet.
    """
    return request.namespace != "" and not is_namespace_write(request) and selection.has_rule_for(request)

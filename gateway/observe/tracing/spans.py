"""Makes the spans of one review from its recorded trace, once it has ended.

The spans are the SDK's own ReadableSpans with ids and times that were recorded: a span of its tracer takes
tens of microseconds, and would have to begin on the way of the review. Attributes have names and outcomes,
nothing of the object besides its resource and namespace; the uid leads to the rest in the decision log.

Source: OpenTelemetry semantic conventions for HTTP server spans and Kubernetes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from admission_gateway_worker.text import printable
from gateway import __version__
from gateway.observe.decisions.record import record_of_webhook
from gateway.observe.decisions.redaction import Redactors
from gateway.observe.tracing.recording import RecordedTrace, new_span_id
from gateway.pure.core.verdict import Failed
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.sdk.resources import Resource

    from gateway.observe.decisions.redaction import Redactor
    from gateway.observe.tracing.recording import RecordedCall
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.call import Call
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.webhook import Phase

    Attributes = dict[str, str | int | float | bool]

PREFIX: Final = "admission_gateway."
_SCOPE: Final = InstrumentationScope("admission-gateway", __version__)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status()
_LOOK_UPS: Final = {
    "namespace": ("look up namespace", SpanKind.CLIENT),
    "AccessCheck": ("SubjectAccessReview", SpanKind.CLIENT),
    "ParamLookup": ("look up parameter", SpanKind.CLIENT),
    "BackendGet": ("get from backend", SpanKind.CLIENT),
    "LongEvaluation": ("evaluate matchConditions", SpanKind.INTERNAL),
}
_NAME_CHARS: Final = 200


class SpanMaker:
    """Makes the spans of one gateway process. Times come as seconds on the monotonic clock *now*."""

    def __init__(self, resource: Resource, now: Callable[[], float]) -> None:
        self._resource = resource
        self._now = now
        self._redactors = Redactors(now)
        self._epoch_ns = 0
        """The Unix time at which the monotonic clock was 0; read again for each review, as it may be set."""

    def review(
        self, trace: RecordedTrace, received_at: float, phase: Phase, result: Answer | str
    ) -> list[ReadableSpan]:
        """Return the spans of a review that has ended; *result* is its answer, or the kind of its failure.

        The first is that of the review itself, the server span.
        """
        self._read_clock()
        ended_at = trace.ended_at
        context = self._context(trace, trace.span_id)
        parent = self._context(trace, trace.parent_id, is_remote=True) if trace.parent_id else None
        attributes: Attributes = {"http.request.method": "POST", f"{PREFIX}phase": phase}
        if trace.dropped:
            attributes[f"{PREFIX}calls_without_span"] = trace.dropped
        name: str = phase
        status = _UNSET
        settled: dict[Call | None, Outcome] = {}
        if isinstance(result, str):
            attributes["error.type"] = result
            status = Status(StatusCode.ERROR, result)
        else:
            name = self._describe_answer(result, attributes)
            settled = {outcome.call: outcome for outcome in result.evaluation.outcomes}
        spans = [
            self._span(name, context, parent, SpanKind.SERVER, received_at, ended_at, attributes, status)
        ]
        for look_up in trace.look_ups:
            own = self._context(trace, new_span_id())
            until = ended_at if look_up.ended_at is None else look_up.ended_at
            text, kind = _LOOK_UPS[look_up.name]
            spans.append(self._span(text, own, context, kind, look_up.began_at, until, {}))
        message = (lambda text: "") if isinstance(result, str) else self._messages(result)
        for call, recorded in trace.calls.items():
            outcome = settled.get(call)
            if outcome is None and not _was_sent(call):
                # A speculative call for which there was no room.
                continue
            spans.append(self._call(trace, context, call, recorded, outcome, ended_at, message))
        return spans

    def reload(self, began_at: float, source: str, error: str) -> ReadableSpan:
        """Return the span of a reload of the configuration that ended now.

        *source* has changed: ``files`` or ``cluster``. *error* is empty if the configuration is in force.
        """
        trace, ended_at = RecordedTrace("", self._now), self._read_clock()
        context = self._context(trace, trace.span_id)
        status = Status(StatusCode.ERROR, printable(error)) if error else _UNSET
        attributes: Attributes = {f"{PREFIX}source": source}
        name = "reload configuration"
        return self._span(name, context, None, SpanKind.INTERNAL, began_at, ended_at, attributes, status)

    def _read_clock(self) -> float:
        """Return the present time, and read the time of day."""
        now = self._now()
        self._epoch_ns = time.time_ns() - int(now * 1e9)
        return now

    @staticmethod
    def _describe_answer(answer: Answer, attributes: Attributes) -> str:
        """Add *attributes* of the request and the decision, and return the name of the span."""
        request, status = answer.evaluation.request, answer.decision.status
        group, version, plural = request.request_resource
        resource = plural + (f"/{request.request_sub_resource}" if request.request_sub_resource else "")
        attributes["http.response.status_code"] = 200
        attributes["url.path"] = printable(answer.origin.target.partition(b"?")[0].decode("latin-1"))
        attributes[f"{PREFIX}uid"] = printable(request.uid)
        attributes[f"{PREFIX}operation"] = request.operation
        attributes[f"{PREFIX}resource"] = printable(f"{group}/{version}/{resource}".removeprefix("/"))
        attributes[f"{PREFIX}dry_run"] = request.dry_run
        attributes[f"{PREFIX}allowed"] = status is None
        attributes[f"{PREFIX}code"] = 200 if status is None else status.code
        if request.namespace:
            attributes["k8s.namespace.name"] = printable(request.namespace)
        return printable(f"{answer.selection.phase} {request.operation} {resource}", _NAME_CHARS)

    def _call(
        self,
        trace: RecordedTrace,
        parent: SpanContext,
        call: Call,
        recorded: RecordedCall,
        outcome: Outcome | None,
        review_ended_at: float,
        message: Callable[[str], str],
    ) -> ReadableSpan:
        """Return the client span of *call*; *outcome* is None if its verdict did not count.

        *message* returns a message without secrets.
        """
        webhook = call.invocation.webhook
        client = webhook.client
        attributes: Attributes = {
            f"{PREFIX}webhook": webhook.name,
            f"{PREFIX}configuration": webhook.configuration,
        }
        if isinstance(client, WorkerRef):
            attributes[f"{PREFIX}pool"], attributes[f"{PREFIX}policy"] = client.pool, client.policy
        # A verdict sets the times of the call; without one, the review or the call was cancelled.
        is_answered = call.started_at > 0
        began_at = ended_at = recorded.began_at
        if is_answered:
            began_at, ended_at = call.started_at, call.started_at + call.elapsed_s
            attributes["server.address"] = call.endpoint
        elif outcome is None:
            ended_at = recorded.withdrawn_at or review_ended_at
        if call.sent_at:
            attributes[f"{PREFIX}queue_seconds"] = max(0.0, call.sent_at - began_at)
        if call.is_ahead:
            attributes[f"{PREFIX}speculation"] = "discarded" if outcome is None else "kept"
        attributes[f"{PREFIX}retried"] = any(not repeat.is_hedge for repeat in recorded.repeats)
        attributes[f"{PREFIX}hedged"] = any(repeat.is_hedge for repeat in recorded.repeats)
        status = _UNSET
        if outcome is None:
            attributes[f"{PREFIX}outcome"] = "Discarded" if is_answered else "Withdrawn"
        else:
            found = record_of_webhook(outcome, 0.0)
            attributes[f"{PREFIX}outcome"], attributes[f"{PREFIX}code"] = found.outcome, found.code
            attributes[f"{PREFIX}round"], attributes[f"{PREFIX}changed"] = found.round, found.has_changed
            text = printable(message(found.message)) if found.message else ""
            if isinstance(outcome.verdict, Failed):
                attributes["error.type"] = outcome.verdict.reason.name
                status = Status(StatusCode.ERROR, text)
            elif text:
                attributes[f"{PREFIX}message"] = text
        events = tuple(self._events(recorded))
        own = self._context(trace, recorded.span_id)
        name = f"webhook {webhook.name}"
        return self._span(name, own, parent, SpanKind.CLIENT, began_at, ended_at, attributes, status, events)

    def _events(self, recorded: RecordedCall) -> Iterator[Event]:
        for repeat in recorded.repeats:
            name = "hedge" if repeat.is_hedge else "retry"
            yield Event(name, {"server.address": repeat.endpoint}, self._unix_ns(repeat.at))

    @staticmethod
    def _context(trace: RecordedTrace, span_id: str, *, is_remote: bool = False) -> SpanContext:
        return SpanContext(int(trace.trace_id, 16), int(span_id, 16), is_remote, _SAMPLED)

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        began_at: float,
        ended_at: float,
        attributes: Attributes,
        status: Status = _UNSET,
        events: tuple[Event, ...] = (),
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            events,
            kind=kind,
            status=status,
            start_time=self._unix_ns(began_at),
            end_time=self._unix_ns(max(began_at, ended_at)),
            instrumentation_scope=_SCOPE,
        )

    def _messages(self, answer: Answer) -> Callable[[str], str]:
        """Return a function that returns a message of *answer* without secrets; of a Secret, nothing."""
        request = answer.evaluation.request
        if request.request_resource[::2] == ("", "secrets"):
            return lambda text: ""
        made: list[Redactor] = []

        def message(text: str) -> str:
            if not made:
                made.append(self._redactors.of(request, secret_names=True))
            return made[0].message(text)

        return message

    def _unix_ns(self, at: float) -> int:
        """Return the Unix time of *at* in nanoseconds."""
        return self._epoch_ns + int(at * 1e9)


def _was_sent(call: Call) -> bool:
    return call.started_at > 0 or call.sent_at > 0

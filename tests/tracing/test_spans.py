"""The spans of one review, made from recorded times, and the bounds of what is recorded."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanKind

from gateway.observe.tracing.collector import WARN_EVERY_S, DropLog
from gateway.observe.tracing.recording import MAX_CALLS, MAX_LOOK_UPS, RecordedTrace
from gateway.observe.tracing.spans import _LOOK_UPS, SpanMaker
from gateway.observe.tracing.tracer import SpanBudget
from gateway.pure.core.call import Delivery
from gateway.pure.core.conditions import ConditionTask
from gateway.pure.core.trace import read_traceparent
from gateway.pure.core.verdict import Denied, Failed, FailureReason
from tests.core.build import request
from tests.decisions.kit import answer

if TYPE_CHECKING:
    from gateway.pure.core.answer import Answer

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Clock:
    """A clock that is set by hand, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spans(found: Answer, trace: RecordedTrace | None = None) -> list[Any]:
    """Return the spans of *found*, all of whose calls are recorded."""
    trace = trace or RecordedTrace(PARENT, Clock())
    for outcome in found.evaluation.outcomes:
        if outcome.call is not None:
            trace.begin(outcome.call)
            outcome.call.started_at = trace.ended_at = 100.0
    return list(SpanMaker(Resource({}), Clock()).review(trace, 99.0, found.selection.phase, found))


@given(st.integers(0, 255))
def test_a_recorded_trace_sends_valid_contexts_that_are_sampled(flags: int) -> None:
    trace = RecordedTrace(f"{PARENT[:-2]}{flags:02x}", Clock())
    # A call is a key by identity.
    call: Any = type("Call", (), {"delivery": Delivery()})()
    trace.begin(call)
    for sent in (trace.traceparent, call.traceparent):
        assert read_traceparent(sent.encode()) == sent
        assert sent[3:35] == TRACE
        assert int(sent[-2:], 16) == flags & 2 | 1
    assert trace.traceparent != call.traceparent


def test_calls_and_look_ups_of_a_review_are_bounded() -> None:
    trace = RecordedTrace("", Clock())
    calls: list[Any] = [type("Call", (), {"delivery": Delivery()})() for _ in range(MAX_CALLS + 3)]
    for call in calls:
        trace.begin(call)
    assert (len(trace.calls), trace.dropped) == (MAX_CALLS, 3)
    assert calls[-1].traceparent == trace.traceparent
    results: list[int] = []
    for number in range(MAX_LOOK_UPS + 3):
        trace.look_up("namespace", results.append)(number)
    assert len(results) == MAX_LOOK_UPS + 3
    assert len(trace.look_ups) == MAX_LOOK_UPS


def test_look_ups_are_children_of_the_review() -> None:
    clock = Clock()
    trace = RecordedTrace(PARENT, clock)
    for name in ("namespace", "AccessCheck", "LongEvaluation"):
        end = trace.look_up(name, lambda result: None)
        clock.now += 1
        end(None)
    trace.look_up("namespace", lambda result: None)
    trace.ended_at = clock.now
    made: list[Any] = list(SpanMaker(Resource({}), clock).review(trace, 99.0, "mutate", "Cancelled"))
    server, *look_ups = made
    assert server.status.description == "Cancelled"
    assert [(span.name, span.kind) for span in look_ups] == [
        ("look up namespace", SpanKind.CLIENT),
        ("SubjectAccessReview", SpanKind.CLIENT),
        ("evaluate matchConditions", SpanKind.INTERNAL),
        ("look up namespace", SpanKind.CLIENT),
    ]
    assert all(span.parent == server.context for span in look_ups)
    assert [span.end_time - span.start_time for span in look_ups] == [10**9, 10**9, 10**9, 0]


@pytest.mark.parametrize(
    "verdict", [Denied(403, "", "token is abc"), Failed(FailureReason.STATUS, "token is abc")]
)
def test_messages_of_secrets_are_left_out(verdict: Denied | Failed) -> None:
    def shown(plural: str) -> str:
        review = request(resource={"group": "", "version": "v1", "resource": plural}, name="hidden-name")
        found = spans(answer(lambda call: verdict, review=review))
        return " ".join(str((span.name, dict(span.attributes), span.status.description)) for span in found)

    assert "token is abc" in shown("configmaps")
    assert "token is abc" not in shown("secrets")
    assert "hidden-name" not in shown("configmaps")


@pytest.mark.parametrize(
    "verdict",
    [Denied(403, "", "found 'hunter2hunter2'"), Failed(FailureReason.STATUS, "found 'hunter2hunter2'")],
)
def test_messages_have_no_secret_value(verdict: Denied | Failed) -> None:
    pod = {"kind": "Pod", "spec": {"containers": [{"env": [{"name": "DB_PASS", "value": "hunter2hunter2"}]}]}}
    found = spans(answer(lambda call: verdict, review=request(object=pod)))
    shown = " ".join(str((dict(span.attributes), span.status.description)) for span in found)
    assert "hunter2" not in shown
    assert "found '(redacted " in shown.replace("\\'", "'")


@given(st.text())
def test_texts_from_outside_are_one_printable_line(text: str) -> None:
    for span in spans(answer(lambda call: Denied(403, "", text))):
        for value in (span.name, *span.attributes.values()):
            assert not isinstance(value, str) or value.isprintable()
            str(value).encode()


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 50)), max_size=60), st.integers(1, 100))
def test_spans_stay_within_the_bound(reviews: list[tuple[float, int]], per_second: int) -> None:
    clock = Clock()
    budget = SpanBudget(per_second, clock)
    taken = 0
    for pause_s, number in reviews:
        clock.now += pause_s
        if budget.has_room():
            budget.take(number)
            taken += number
    # A burst of one second, and one review that overdraws.
    assert taken <= per_second * (1 + clock.now - 100.0) + 50


def test_drops_are_logged_once_a_minute_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    drops = DropLog("http://collector", clock)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            drops.dropped("export_failed", 10, "HTTP status 500\n\x1b[2J")
            drops.dropped("queue_full", 1, "the queue is full")
        clock.now += WARN_EVERY_S
        drops.dropped("export_failed", 10, "HTTP status 503")
        drops.exported()
        drops.exported()
    texts = [record.getMessage() for record in caplog.records]
    assert [re.findall(r"traces: (\d+) ", text) for text in texts] == [["10"], ["1"], ["30"], []]
    assert all(text.isprintable() for text in texts)
    assert "again" in texts[-1]


def test_every_task_of_conditions_has_a_name() -> None:
    assert {task.__name__ for task in get_args(ConditionTask)} < _LOOK_UPS.keys()

"""Checks of the gateway's call metrics and of its latency."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gateway.observe.telemetry.series import Counts
from gateway.pure.core.verdict import Failed, FailureReason
from tests.simulation.laws import calls_of
from tests.simulation.pipe import MAX_DELAY_S

if TYPE_CHECKING:
    from gateway.pure.core.call import Call
    from tests.simulation.record import Record
    from tests.simulation.run import Simulation

ROUND_TRIP_S = 2 * MAX_DELAY_S


class KeptCounts(Counts):
    """Counts that remain after their endpoint is closed."""

    def drop(self, *first_values: str) -> None:
        """Keep all counts."""


def check_counts(simulation: Simulation) -> None:
    """Check that the metrics equal the calls that were made.

    Raises:
        AssertionError: they differ.
    """
    counted: Counter[str] = Counter()
    answered = 0
    for family in simulation.metrics.worker_calls.collect():
        for sample in family.samples:
            counted[sample.labels["endpoint"]] += int(sample.value)
            answered += int(sample.value) if sample.labels["code"] == "OK" else 0
    assert counted == simulation.submitted + simulation.repeated, (
        f"counted: {counted}; submitted: {simulation.submitted}; repeated: {simulation.repeated}"
    )
    counting = sum(_is_an_answer(call) for _, call in calls_of(simulation))
    # An invalid answer also counts as answered, but has no verdict if another endpoint was called as well.
    unread = sum(question.is_odd for question in simulation.stage.questions)
    dropped = sum(
        len(record.evaluation.dropped) for record in simulation.records.values() if record.evaluation
    )
    assert counting <= answered <= counting + unread + dropped, (
        f"{answered} calls counted as answered, {counting} were"
    )


def _is_an_answer(call: Call) -> bool:
    verdict = call.verdict
    if isinstance(verdict, Failed):
        return verdict.reason is FailureReason.MALFORMED
    return verdict is not None


def check_latency(simulation: Simulation) -> None:
    """Check, in a scenario without faults, that no review takes longer than its calls one after another.

    Raises:
        AssertionError: a review took longer.
    """
    has_changed = False
    for record in simulation.records.values():
        assert record.evaluation is not None
        outcomes = record.evaluation.outcomes
        latencies_s = [_latency_s(simulation, record, outcome.call) for outcome in outcomes if outcome.call]
        taken_s = record.answers[0][0] - record.at
        serially_s = sum(latency_s + ROUND_TRIP_S for latency_s in latencies_s)
        # The gateway waits once for an answer that a worker without chains gives on another object.
        assert taken_s <= serially_s + ROUND_TRIP_S or record.evaluation.dropped, (
            f"{record.review.uid}: {taken_s} s, a serial run {serially_s} s"
        )
        has_changed |= any(outcome.has_changed for outcome in outcomes)
        if not has_changed and all(hook.side_effects == "None" for hook in record.selection.webhooks):
            # No webhook is known to change objects, so all were called at once.
            longest_s = max(latencies_s, default=0.0)
            assert taken_s <= longest_s + 2 * ROUND_TRIP_S, (
                f"{record.review.uid}: {taken_s} s, not {longest_s} s"
            )


def _latency_s(simulation: Simulation, record: Record, call: Call) -> float:
    """Return the latency of the worker whose verdict counted, at most the timeout of *call*."""
    hook = call.invocation.webhook
    made = simulation.made_at[call]
    assert record.evaluation is not None
    ended = record.evaluation.ended_at[call]
    found = [
        question.at - made + question.latency_s
        for question in simulation.questions_of(record.review.uid)
        if question.policy == hook.name and made <= question.at <= ended
    ]
    # Of two attempts the first answer counts; if both failed, the last failure.
    which = max if isinstance(call.verdict, Failed) else min
    return min(hook.timeout_s, which(found, default=hook.timeout_s))

"""Checks that every failure in a run is caused by one of its faults, within the limits of that fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.engine.dispatch.driver import MIN_RETRY_S
from gateway.engine.dispatch.timer_wheel import TICK_S
from gateway.pure.core.verdict import Failed, FailureReason
from tests.simulation.laws import calls_of
from tests.simulation.pipe import MAX_DELAY_S
from tests.simulation.scenario import UNBOUNDED, WIDE_BYTES

if TYPE_CHECKING:
    from gateway.pure.core.call import Call
    from tests.simulation.record import Record
    from tests.simulation.run import Simulation
    from tests.simulation.stage import Question

    Span = tuple[float, float]

MOMENT_S: Final = 1e-6
UNNOTIFIED_FAULTS: Final = ("stop", "cut off", "vanish", "mute", "window")
"""Faults that the gateway is not notified of."""
RECOVERY_S: Final = 3.0
"""Recovery time after a fault: a back-off of at most one second, a connection, and a margin."""
DIAL_TIMEOUT_S: Final = 5.0
"""Silence after which a new connection is closed."""
SMALL_WINDOW_S: Final = 0.5
"""Longest transfer of a large batch through a small window."""
MIN_RETRIED_TIMEOUT_S: Final = 0.9
"""The shortest timeout of a call in which a stopped worker is detected early enough for a retry."""
KEEPALIVE_S: Final = 40.0
"""Silence after which keepalive ends a stream."""


class Causes:
    """The faults of one run, for checks of its calls."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        scenario, begin = simulation.scenario, simulation.began_at
        self._troubles: dict[str, list[tuple[float, float]]] = {
            spec.address: [] for spec in scenario.worker_specs
        }
        self._silences: dict[str, list[tuple[float, float]]] = {
            spec.address: [] for spec in scenario.worker_specs
        }
        for fault in scenario.faults:
            until = begin + fault.at + fault.lasting_s + RECOVERY_S
            if fault.kind in ("stop", "cut off", "mute"):
                until += DIAL_TIMEOUT_S
            elif fault.kind == "vanish":
                until = max(until, begin + fault.at + KEEPALIVE_S + RECOVERY_S) + DIAL_TIMEOUT_S
            span = begin + fault.at - MOMENT_S, until
            self._troubles[fault.address].append(span)
            if fault.kind in UNNOTIFIED_FAULTS:
                self._silences[fault.address].append(span)
        for troubles in self._troubles.values():
            # end_faults() restarts a worker that serves another service than configured.
            troubles.append((simulation.healed_at - MOMENT_S, simulation.healed_at + RECOVERY_S))
        if not scenario.waits:
            for troubles in self._troubles.values():
                troubles.append((0.0, begin + RECOVERY_S))

    def check(self) -> None:
        """Check every call.

        Raises:
            AssertionError: a call failed without a cause; a note names the call.
        """
        for record, call in calls_of(self._simulation):
            try:
                self._check(record, call)
            except AssertionError as error:
                hook, uid = call.invocation.webhook, record.review.uid
                error.add_note(
                    f"in the call of {hook.name} at pool {hook.worker.pool} about {uid}: {call.verdict}"
                )
                error.add_note(self._simulation.journal.tail(uid))
                raise

    def is_calm(self, address: str, since: float, until: float) -> bool:
        """Whether a worker had no fault in a span of time or shortly before it."""
        return not any(begin <= until and since <= end for begin, end in self._troubles[address])

    def _check(self, record: Record, call: Call) -> None:
        simulation, verdict = self._simulation, call.verdict
        hook = call.invocation.webhook
        if call.after is not None:
            # The object on which it was evaluated is not known.
            return
        if verdict is None or verdict == simulation.stage.policies.verdict(hook.name, call.payload.object):
            return
        assert record.evaluation is not None
        made, ended = simulation.made_at[call], record.evaluation.ended_at[call]
        questions = [
            question
            for question in simulation.questions_of(record.review.uid)
            if question.policy == hook.name and made <= question.at <= ended
        ]
        addresses = simulation.addresses_of(hook.worker.pool)
        is_calm = all(self.is_calm(address, made, ended) for address in addresses)
        no_room = any(refused is call for refused, _ in record.evaluation.no_room)
        if any(question.is_odd for question in questions):
            # The verdict may be of another call. It is not checked further.
            return
        assert isinstance(verdict, Failed), "a verdict that no worker sent"
        if verdict.reason is FailureReason.MALFORMED:
            raise AssertionError("an invalid answer that no worker sent")
        before = record.evaluation.after.get(call)
        began = made if before is None else record.evaluation.ended_at[before]
        limit = min(began + hook.timeout_s, record.deadline)
        if verdict.reason is FailureReason.DEADLINE:
            assert ended <= limit + MOMENT_S
            if not no_room:
                self._check_timeout(call, questions, ended, limit)
        elif no_room or (hook.failure_policy == "Ignore" and "maxInFlight" in verdict.cause):
            self._check_refusal(hook.worker.pool, verdict.cause)
        else:
            assert verdict.reason is FailureReason.STATUS
            assert not is_calm, "failed without a fault of its workers"
            if hook.side_effects == "None" and limit - ended >= MIN_RETRY_S:
                troubled = [address for address in addresses if not self.is_calm(address, made, ended)]
                free = record.evaluation.in_rotation[call] - set(troubled)
                assert len(troubled) > 1 or not free, f"lost at {troubled} and not retried at {free}"

    def _check_timeout(self, call: Call, questions: list[Question], ended: float, limit: float) -> None:
        """Fail if a call timed out too early, or although a worker could have answered it."""
        assert ended >= limit - TICK_S - MOMENT_S or any(question.was_late for question in questions), (
            f"timed out at {ended}, before its limit at {limit}"
        )
        made = self._simulation.made_at[call]
        addresses = self._simulation.addresses_of(call.invocation.webhook.worker.pool)
        if not self._had_silent_worker(addresses, made, ended):
            _check_answer_was_late(questions, made, limit, self._slack_s(addresses))
        elif limit - made >= MIN_RETRIED_TIMEOUT_S and self._was_silent(addresses, call, limit):
            assert questions, "its worker had stopped, and no other worker was called"

    def _slack_s(self, addresses: list[str]) -> float:
        """Return how long before the limit a worker must answer so that the answer arrives in time."""
        workers = [self._simulation.workers[address] for address in addresses]
        is_narrow = any(worker.spec.window_bytes < WIDE_BYTES for worker in workers)
        return 2 * MAX_DELAY_S + TICK_S + MOMENT_S + (SMALL_WINDOW_S if is_narrow else 0.0)

    def _had_silent_worker(self, addresses: list[str], since: float, until: float) -> bool:
        """Whether a worker was silent in a span of time, so that a call may have timed out there."""
        return any(
            begin <= until and since <= end for address in addresses for begin, end in self._silences[address]
        )

    def _was_silent(self, addresses: list[str], call: Call, limit: float) -> bool:
        """Whether one worker was stopped while *call* was in flight, and its pool had no other fault."""
        made = self._simulation.made_at[call]
        if call.invocation.webhook.side_effects != "None":
            return False
        troubled = [address for address in addresses if not self.is_calm(address, made, limit)]
        pool = call.invocation.webhook.worker.pool
        is_roomy = self._simulation.max_in_flight(pool) == UNBOUNDED
        is_settled = not any(name.startswith(f"{pool}.") for _, name, _ in self._simulation.scenario.moves)
        return (
            is_roomy
            and is_settled
            and len(troubled) == 1 < len(addresses)
            and any(
                fault.address == troubled[0]
                and fault.kind in ("stop", "cut off")
                and self._simulation.began_at + fault.at <= made
                and limit <= self._simulation.began_at + fault.at + fault.lasting_s
                for fault in self._simulation.scenario.faults
            )
        )

    def _check_refusal(self, pool: str, cause: str) -> None:
        """Fail if a call was refused although its pool had an endpoint with room."""
        simulation = self._simulation
        if "cannot be resolved" in cause:
            assert any(
                name.startswith(f"{pool}.") and not found for _, name, found in simulation.scenario.moves
            )
        else:
            assert "maxInFlight" in cause
            assert simulation.max_in_flight(pool) < UNBOUNDED


def _check_answer_was_late(questions: list[Question], made: float, limit: float, slack_s: float) -> None:
    """Fail if a call timed out although a worker that received it answers in time."""
    if limit - made <= slack_s:
        return
    assert questions, "timed out without an attempt, although no worker was silent"
    assert any(question.at + question.latency_s >= limit - slack_s for question in questions), (
        "timed out, although its workers answered in time or were known to be lost"
    )

"""Checks that every failure in a run is caused by one of its faults, within the limits of that fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.core.verdict import Failed, FailureReason
from gateway.dispatch.driver import MIN_RETRY_S
from gateway.dispatch.timer_wheel import TICK_S
from tests.simulation.laws import calls_of
from tests.simulation.pipe import MAX_DELAY_S
from tests.simulation.world import UNBOUNDED, WIDE_BYTES

if TYPE_CHECKING:
    from gateway.core.call import Call
    from tests.simulation.record import Record
    from tests.simulation.run import Simulation
    from tests.simulation.stage import Question

    Span = tuple[float, float]

MOMENT_S: Final = 1e-6
SILENT: Final = ("stop", "cut off", "vanish", "mute", "window")
"""Faults that the gateway is not notified of."""
RECOVERY_S: Final = 3.0
"""After a fault: back-off of a second at most, a connection, and some room."""
DIAL_S: Final = 5.0
"""Silence after which a connection is ended."""
TRICKLE_S: Final = 0.5
"""Time that a large batch may take through a small window."""
WORTH_WAITING_S: Final = 0.9
"""The shortest timeout of a call in which a stopped worker is detected early enough for a retry."""
UNHEARD_S: Final = 40.0
"""Silence after which a stream is ended."""


class Causes:
    """The faults of one run, for checks of its calls."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        world, begin = simulation.world, simulation.began_at
        self._troubles: dict[str, list[tuple[float, float]]] = {
            spec.address: [] for spec in world.worker_specs
        }
        self._silences: dict[str, list[tuple[float, float]]] = {
            spec.address: [] for spec in world.worker_specs
        }
        for fault in world.faults:
            until = begin + fault.at + fault.lasting_s + RECOVERY_S
            if fault.kind in ("stop", "cut off", "mute"):
                until += DIAL_S
            elif fault.kind == "vanish":
                until = max(until, begin + fault.at + UNHEARD_S + RECOVERY_S) + DIAL_S
            span = begin + fault.at - MOMENT_S, until
            self._troubles[fault.address].append(span)
            if fault.kind in SILENT:
                self._silences[fault.address].append(span)
        for troubles in self._troubles.values():
            # A service that is not the configured one is put right by a restart.
            troubles.append((simulation.healed_at - MOMENT_S, simulation.healed_at + RECOVERY_S))
        if not world.waits:
            for troubles in self._troubles.values():
                troubles.append((0.0, begin + RECOVERY_S))

    def judge(self) -> None:
        """Check every call.

        Raises:
            AssertionError: one failed for no reason; a note says which.
        """
        for record, call in calls_of(self._simulation):
            try:
                self._check(record, call)
            except AssertionError as error:
                hook, uid = call.invocation.webhook, record.review.uid
                error.add_note(
                    f"of the call of {hook.name} at pool {hook.worker.pool} about {uid}: {call.verdict}"
                )
                error.add_note(self._simulation.journal.tail(uid))
                raise

    def is_calm(self, address: str, since: float, until: float) -> bool:
        """Whether nothing befell a worker in some span of time, or shortly before it."""
        return not any(begin <= until and since <= end for begin, end in self._troubles[address])

    def _check(self, record: Record, call: Call) -> None:
        simulation, verdict = self._simulation, call.verdict
        hook = call.invocation.webhook
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
            # It may be the verdict on another call; what else it may be is not looked into.
            return
        assert isinstance(verdict, Failed), "an answer that nobody gave"
        if verdict.reason is FailureReason.MALFORMED:
            raise AssertionError("an answer that cannot be read, and that nobody gave")
        limit = min(made + hook.timeout_s, record.deadline)
        if verdict.reason is FailureReason.DEADLINE:
            assert ended <= limit + MOMENT_S
            if not no_room:
                self._check_patience(call, questions, ended, limit)
        elif no_room or (hook.failure_policy == "Ignore" and "maxInFlight" in verdict.cause):
            self._check_refusal(hook.worker.pool, verdict.cause)
        else:
            assert verdict.reason is FailureReason.STATUS
            assert not is_calm, "failed, and nothing befell its workers"
            if hook.side_effects == "None" and limit - ended >= MIN_RETRY_S:
                troubled = [address for address in addresses if not self.is_calm(address, made, ended)]
                free = record.evaluation.in_rotation[call] - set(troubled)
                assert len(troubled) > 1 or not free, f"lost with {troubled}, and not moved to {free}"

    def _check_patience(self, call: Call, questions: list[Question], ended: float, limit: float) -> None:
        """Say no to a call given up too early, or given up though somebody could have answered it."""
        assert ended >= limit - TICK_S - MOMENT_S or any(question.was_late for question in questions), (
            f"given up at {ended}, though there was time until {limit}"
        )
        made = self._simulation.made_at[call]
        addresses = self._simulation.addresses_of(call.invocation.webhook.worker.pool)
        if not self._may_have_lost_unnoticed(addresses, made, ended):
            _check_lateness(questions, made, limit, self._slack_s(addresses))
        elif limit - made >= WORTH_WAITING_S and self._was_silent(addresses, call, limit):
            assert questions, "its worker had stopped, and nobody else was asked"

    def _slack_s(self, addresses: list[str]) -> float:
        """Return how long before its limit an answer has to be given to be sure to arrive."""
        workers = [self._simulation.workers[address] for address in addresses]
        is_narrow = any(worker.spec.window_bytes < WIDE_BYTES for worker in workers)
        return 2 * MAX_DELAY_S + TICK_S + MOMENT_S + (TRICKLE_S if is_narrow else 0.0)

    def _may_have_lost_unnoticed(self, addresses: list[str], since: float, until: float) -> bool:
        """Whether a worker was silent in some span of time, so that a call may have waited for it in vain."""
        return any(
            begin <= until and since <= end for address in addresses for begin, end in self._silences[address]
        )

    def _was_silent(self, addresses: list[str], call: Call, limit: float) -> bool:
        """Whether one worker had stopped while *call* was out, and all others of its pool were well."""
        made = self._simulation.made_at[call]
        if call.invocation.webhook.side_effects != "None":
            return False
        troubled = [address for address in addresses if not self.is_calm(address, made, limit)]
        pool = call.invocation.webhook.worker.pool
        is_roomy = self._simulation.max_in_flight(pool) == UNBOUNDED
        is_settled = not any(name.startswith(f"{pool}.") for _, name, _ in self._simulation.world.moves)
        return (
            is_roomy
            and is_settled
            and len(troubled) == 1 < len(addresses)
            and any(
                fault.address == troubled[0]
                and fault.kind in ("stop", "cut off")
                and self._simulation.began_at + fault.at <= made
                and limit <= self._simulation.began_at + fault.at + fault.lasting_s
                for fault in self._simulation.world.faults
            )
        )

    def _check_refusal(self, pool: str, cause: str) -> None:
        """Say no to a call that was not even made, though there was somebody to ask and room."""
        simulation = self._simulation
        if "cannot be resolved" in cause:
            assert any(name.startswith(f"{pool}.") and not found for _, name, found in simulation.world.moves)
        else:
            assert "maxInFlight" in cause
            assert simulation.max_in_flight(pool) < UNBOUNDED


def _check_lateness(questions: list[Question], made: float, limit: float, slack_s: float) -> None:
    """Say no to a call given up at its limit, though a worker that it was asked of would have answered."""
    if limit - made <= slack_s:
        return
    assert questions, "given up, and never asked, though nobody was silent"
    assert any(question.at + question.latency_s >= limit - slack_s for question in questions), (
        "given up, though its workers answered in time or were seen to be gone"
    )

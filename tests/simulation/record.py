"""The record of a run for the checks: reviews with their evaluations, and the calls of each endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.engine.dispatch.calls import with_followers
from gateway.engine.dispatch.endpoint import WorkerEndpoint
from gateway.engine.dispatch.transport import WorkerTransport
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gateway.engine.dispatch.calls import CallGroup, Transport
    from gateway.engine.snapshot import Snapshot
    from gateway.pure.core.annotations import AuditLevel
    from gateway.pure.core.call import Call
    from gateway.pure.core.matching import Selection
    from gateway.pure.core.verdict import Verdict
    from tests.simulation.run import Simulation
    from tests.simulation.scenario import Review


class Recorded(Evaluation):
    """An evaluation that records its calls and verdicts."""

    def __init__(self, simulation: Simulation, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.made: list[Call] = []
        """Calls in the order in which the evaluation returned them."""
        self.unwanted: list[Call] = []
        self.dropped: list[Call] = []
        """Calls of chains that were not evaluated as a part of them."""
        self.after: dict[Call, Call] = {}
        """The calls of chains, each with the call before it."""
        self.ended_at: dict[Call, float] = {}
        """Time of each call's first verdict."""
        self.no_room: list[tuple[Call, Failed]] = []
        self.in_rotation: dict[Call, set[str]] = {}
        """For each failed call: the addresses of its pool that could take it at that time."""
        self._simulation = simulation
        simulation.records[self.request.uid].evaluation = self

    def start(self) -> Sequence[Call]:
        return self._made(super().start())

    def receive_all(self, answered: Iterable[tuple[Call, Verdict]]) -> Sequence[Call]:
        assert not self.done, "a verdict after the end"
        for call, verdict in answered:
            self.ended_at.setdefault(call, self._simulation.loop.time())
            if isinstance(verdict, Failed):
                self.in_rotation[call] = self._simulation.in_rotation(self, call)
        return self._made(super().receive_all(answered))

    def drop(self, call: Call) -> Sequence[Call]:
        if self.wants(call):
            self.dropped.append(call)
        return self._made(super().drop(call))

    def receive_refusal(self, call: Call, failure: Failed) -> Sequence[Call]:
        self.no_room.append((call, failure))
        return super().receive_refusal(call, failure)

    def take_withdrawn(self) -> Sequence[Call]:
        unwanted = super().take_withdrawn()
        self.unwanted += unwanted
        return unwanted

    def _made(self, calls: Sequence[Call]) -> Sequence[Call]:
        assert not (calls and self.done), "calls after the end"
        for call in calls:
            self.made.append(call)
            if call.after is not None:
                self.after[call] = call.after
            self._simulation.made_at[call] = self._simulation.loop.time()
        return calls


def counting(simulation: Simulation) -> type[WorkerEndpoint]:
    """Return the class of endpoints that record their calls in *simulation*."""

    class Counting(WorkerEndpoint):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            simulation.endpoints_seen[self] = None

        def submit(self, group: CallGroup) -> None:
            simulation.submitted[self.address] += group.open_count
            super().submit(group)

        def _submit_followers(self, group: CallGroup, transport: Transport) -> None:
            super()._submit_followers(group, transport)
            simulation.submitted[self.address] += sum(
                follower.open_count for follower in with_followers(group)[1:]
            )

    return Counting


def repeating(simulation: Simulation) -> Callable[[WorkerTransport, CallGroup], None]:
    """Return a function that records retries by unary calls in *simulation*."""
    resubmit_unary = WorkerTransport._resubmit_unary

    def resubmit(connection: WorkerTransport, group: CallGroup) -> None:
        # A refused stream is no attempt: only the unary call counts.
        if connection.is_streaming:
            simulation.repeated[connection._owner.address] += group.open_count
        resubmit_unary(connection, group)

    return resubmit


@dataclass(eq=False)
class Record:
    """A review with its evaluation and its answers."""

    review: Review
    deadline: float
    snapshot: Snapshot
    selection: Selection
    audit_level: AuditLevel
    at: float
    evaluation: Recorded | None = None
    answers: list[tuple[float, bytes]] = field(default_factory=list)
    crashes: list[Exception] = field(default_factory=list)
    cancelled_at: float | None = None
    is_probe: bool = False

"""The calls of one ReviewStream: begins them, one after another in a chain, and reports each outcome.

A call with ``after`` begins when that call has ended, on the payload that it leaves. If it has already
ended, which is usual, the whole chain runs at once. Otherwise the call waits; it counts as in flight, and is
cancelled with the call before it.

Source: protos/README.md, sections Batching, Cancellation and Chains.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.answer import Outcome, error, with_parameters
from admission_gateway_worker.batch import ProtocolViolation
from admission_gateway_worker.evaluation import Evaluator, Running
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.load import CALL_BYTES
from admission_gateway_worker.payload import MAX_CHAINED_BYTES, TOO_LARGE, Held, Payload
from admission_gateway_worker.review import Review

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from admission_gateway_worker.pb import worker_pb2 as pb
    from admission_gateway_worker.policy import Policy
    from admission_gateway_worker.rpc import Rpc
    from admission_gateway_worker.stream_parameters import StreamParameters

    Report = Callable[[int, Outcome, bool], None]
    """Gets the id of a call, its outcome, and whether the call followed another one."""

MAX_IN_FLIGHT: Final = 4096
"""Limit of waiting calls for each stream, and of calls in a batch: four times the default maxInFlight of the
gateway."""

LISTED_CALLS: Final = 1024
"""Calls of a batch up to which their objects are made once. In larger ones each is made when it is looked at,
and freed, because an object takes more memory than the shortest call in its message."""


def unknown_policy(name: str, policies: Mapping[str, Policy]) -> pb.Error:
    """Return the Error of a call for an unknown policy."""
    served = ", ".join(sorted(policies)) or "none"
    return error(StatusCode.NOT_FOUND, f'policy "{name}" is not served here; served are: {served}')


class _Link:
    """A call that other calls of its batch follow."""

    __slots__ = ("followers", "is_cancelled", "leaves", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        """The index of its payload in the batch."""
        self.is_cancelled = False
        self.leaves: Payload | None = None
        """The payload that it leaves; None until it has ended."""
        self.followers: list[_Call] = []


class _Call:
    """A call before its begin; in flight if it waits for the end of the call before it."""

    __slots__ = ("is_chained", "link", "number", "parameters", "policy", "timeout_s", "traceparent")

    def __init__(self, call: pb.Call, link: _Link | None, parameters: bytes | None = b"") -> None:
        # A message keeps the whole batch in memory.
        self.number = call.id
        self.policy = call.policy
        self.timeout_s = call.timeout_millis / 1000
        self.traceparent = call.traceparent
        self.is_chained = bool(call.after)
        self.link = link
        """None unless other calls follow."""
        self.parameters = parameters
        """JSON, empty without parameters. None if their id is unknown."""

    def cancel(self) -> None:
        """Do nothing, since it has not begun."""


class _Batch:
    """A batch whose calls begin."""

    __slots__ = ("arrived", "cancelled", "links", "payloads", "rest", "size")

    def __init__(self, batch: pb.ReviewBatch, arrived: float) -> None:
        self.payloads = [
            Payload(payload.admission_request, payload.namespace_object) for payload in batch.payloads
        ]
        calls: Sequence[pb.Call] = batch.calls
        self.size = len(calls)
        if self.size <= LISTED_CALLS:
            calls = list(calls)
        self.links = _prepare(calls, self.payloads)
        self.cancelled = set(batch.cancelled)
        self.arrived = arrived
        self.rest: Iterator[tuple[int, pb.Call]] = enumerate(calls)
        """The calls that have not begun, with their positions."""


class Calls:
    """The calls of one stream: those of a batch that are still to begin, and those in flight."""

    def __init__(
        self,
        policies: Mapping[str, Policy],
        evaluator: Evaluator,
        report: Report,
        reported: Callable[[], None],
        rpc: Rpc,
        parameters: StreamParameters,
    ) -> None:
        """*reported* is called after reports that ``go_on`` did not make."""
        self._policies = policies
        self._evaluator = evaluator
        self._report = report
        self._reported = reported
        self._rpc = rpc
        self._stream_parameters = parameters
        self.is_pausing = False
        """Whether ``go_on`` is to return after the present call; reset by it."""
        self._batch: _Batch | None = None
        self._parsed: Payload = TOO_LARGE
        """The payload that may have a parsed copy, for the next call."""
        self._in_flight: dict[int, Running | _Call] = {}
        self._links: dict[int, _Link] = {}
        """The links of the calls in flight that others follow."""
        self._held_calls = 0
        """Calls in flight that count as held."""

    def __bool__(self) -> bool:
        """Whether calls are in flight or still to begin."""
        return bool(self._in_flight) or self._batch is not None

    @property
    def is_busy(self) -> bool:
        """Whether ``go_on`` has something to do. Until then no further batch may be accepted."""
        return self._batch is not None

    def accept(self, batch: pb.ReviewBatch, arrived: float) -> None:
        """Take *batch*, which *arrived* at that monotonic time, and cancel calls; ``go_on`` begins its calls.

        Raises:
            ProtocolViolation: parameters have an invalid id or too many bytes.
        """
        if batch.parameters:
            self._stream_parameters.take(batch.parameters)
        self._batch = _Batch(batch, arrived)
        for number in self._batch.cancelled:
            self._cancel(number)
        self._count_held()

    def go_on(self, end: float) -> None:
        """Begin calls of the batch until the monotonic time *end*, at least one.

        Raises:
            ProtocolViolation: the id of a call in flight is used again.
        """
        batch = self._batch
        if batch is None:
            return
        links, cancelled = batch.links, batch.cancelled
        self.is_pausing = False
        self._evaluator.mark()
        for position, message in batch.rest:
            number = message.id
            before = links.get(message.after) if message.after else None
            link = None
            if number in links:
                link = links[number] = _Link(message.payload)
            if number in cancelled or (before is not None and before.is_cancelled):
                if link is not None:
                    link.is_cancelled = True
            elif number in self._in_flight:
                raise ProtocolViolation(f"call id {number} is used again while its call is in flight")
            elif position >= MAX_IN_FLIGHT:
                self._refuse_above_limit(_Call(message, None))
            else:
                named = message.parameters
                call = _Call(message, link, self._stream_parameters.get(named) if named else b"")
                self._accept(message, call, before, batch.payloads, batch.arrived)
            if (self.is_pausing or time.monotonic() > end) and position + 1 < batch.size:
                break
        else:
            self._batch = None
        self._keep_parsed(TOO_LARGE)
        self._count_held()

    def cancel_all(self) -> None:
        """Cancel all calls."""
        self._batch = None
        for call in self._in_flight.values():
            call.cancel()
        self._in_flight.clear()
        self._links.clear()
        self._count_held()

    def _keep_parsed(self, payload: Payload) -> None:
        """Let no other payload than *payload* keep a parsed copy, which takes many times its bytes."""
        if self._parsed is not payload:
            self._parsed.drop_parsed()
            self._parsed = payload

    def _count_held(self) -> None:
        """Count the calls in flight as held."""
        change = len(self._in_flight) - self._held_calls
        if change:
            self._held_calls += change
            self._rpc.hold(change * CALL_BYTES)

    def _hold(self, payload: Payload) -> None:
        """Count *payload* as held, until nothing refers to it."""
        if payload.held is None and payload is not TOO_LARGE:
            payload.held = Held(self._rpc.hold, len(payload.json) + len(payload.namespace_json))

    def _accept(
        self, message: pb.Call, call: _Call, before: _Link | None, payloads: list[Payload], arrived: float
    ) -> None:
        """Begin the *call* of *message*, let it wait for the call *before* it, or refuse it."""
        position = message.payload
        if position >= len(payloads):
            self._refuse(call, f"the call is for payload {position}, the batch has {len(payloads)}")
            return
        payload = payloads[position]
        payload.calls -= 1
        if not call.is_chained:
            self._begin(call, payload, arrived)
        elif before is None or before.position != position:
            self._refuse(
                call, f"no earlier call of the batch has the id {message.after} and the same payload"
            )
            if call.link is not None:
                call.link.leaves = payload
        elif before.leaves is not None:
            self._begin(call, before.leaves, time.monotonic())
        elif len(self._in_flight) >= MAX_IN_FLIGHT:
            self._refuse_above_limit(call)
            before.followers.append(call)
        else:
            self._in_flight[call.number] = call
            before.followers.append(call)
            self._hold(payload)

    def _begin(self, call: _Call, payload: Payload, now: float) -> bool:
        """Begin a call whose timeout counts from the monotonic time *now*; return whether it has ended."""
        if self._parsed is not payload:
            self._keep_parsed(payload)
        policy = self._policies.get(call.policy)
        if policy is None:
            self._report(call.number, unknown_policy(call.policy, self._policies), call.is_chained)
        elif payload is TOO_LARGE:
            text = f"a call before this one leaves a request of more than {MAX_CHAINED_BYTES} bytes"
            self._report(call.number, error(StatusCode.RESOURCE_EXHAUSTED, text), call.is_chained)
        elif len(self._in_flight) >= MAX_IN_FLIGHT:
            self._refuse_above_limit(call)
        elif (parameters := call.parameters) is None:
            text = "the call has an id of parameters that this stream has not had"
            self._report(call.number, error(StatusCode.INVALID_ARGUMENT, text), call.is_chained)
        else:
            shares = (payload.calls > 0 or call.link is not None) and not policy.mutating
            review = Review(
                payload,
                deadline=now + call.timeout_s,
                mutating=policy.mutating,
                sharing=policy.sharing if shares else None,
                traceparent=call.traceparent,
            )
            finish = partial(self._finished, call, payload, review)
            outcome = self._evaluator.begin(policy, review, finish, parameters, self._rpc.connection)
            if isinstance(outcome, Running):
                self._in_flight[call.number] = outcome
                self._hold(payload)
                if call.link is not None:
                    self._links[call.number] = call.link
                return False
            self._end(call, payload, review, outcome)
            return True
        if call.link is not None:
            call.link.leaves = payload
        return True

    def _end(self, call: _Call, payload: Payload, review: Review, outcome: Outcome) -> None:
        if call.parameters:
            outcome = with_parameters(outcome)
        self._report(call.number, outcome, call.is_chained)
        if call.link is not None:
            call.link.leaves = leaves = payload.left_by(outcome, is_derived=review.patch is None)
            self._keep_parsed(leaves)
            if leaves is not payload:
                self._hold(leaves)

    def _finished(self, call: _Call, payload: Payload, review: Review, outcome: Outcome) -> None:
        if self._in_flight.pop(call.number, None) is None:
            return
        self._links.pop(call.number, None)
        self._end(call, payload, review, outcome)
        ended = [] if call.link is None else [call.link]
        # A loop, since a chain may be longer than the interpreter's stack.
        while ended:
            link = ended.pop()
            assert link.leaves is not None
            for follower in link.followers:
                if self._in_flight.get(follower.number) is follower:
                    del self._in_flight[follower.number]
                    has_ended = self._begin(follower, link.leaves, time.monotonic())
                else:  # cancelled, as those after it, or refused
                    has_ended = True
                    if follower.link is not None:
                        follower.link.leaves = link.leaves
                if has_ended and follower.link is not None:
                    ended.append(follower.link)
        self._keep_parsed(TOO_LARGE)
        self._count_held()
        self._reported()

    def _cancel(self, number: int) -> None:
        """Cancel a call in flight and those that wait for it."""
        numbers = [number]
        while numbers:
            number = numbers.pop()
            call = self._in_flight.pop(number, None)
            if call is None:
                continue
            call.cancel()
            link = call.link if isinstance(call, _Call) else self._links.pop(number, None)
            if link is not None:
                numbers += [
                    follower.number
                    for follower in link.followers
                    if self._in_flight.get(follower.number) is follower
                ]

    def _refuse(self, call: _Call, text: str) -> None:
        call.is_chained = False
        self._report(call.number, error(StatusCode.INVALID_ARGUMENT, text), call.is_chained)

    def _refuse_above_limit(self, call: _Call) -> None:
        text = f"{MAX_IN_FLIGHT} calls of this stream are in flight"
        self._report(call.number, error(StatusCode.RESOURCE_EXHAUSTED, text), call.is_chained)


def _prepare(calls: Sequence[pb.Call], payloads: list[Payload]) -> dict[int, _Link | None]:
    """Count the *calls* of each payload, and return the ids of those that others follow, without links."""
    links: dict[int, _Link | None] = {}
    if len(calls) > len(payloads):
        for call in calls:
            if call.payload < len(payloads):
                payloads[call.payload].calls += 1
            if call.after:
                links[call.after] = None
    return links

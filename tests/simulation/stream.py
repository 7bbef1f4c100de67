"""One connection of a simulated worker: a ReviewStream, or a health watch."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import orjson
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

from admission_gateway_worker.json_patch.patch import (
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)
from admission_gateway_worker.pb import worker_pb2
from gateway.pure.core.verdict import Allowed, Failed
from tests.simulation.policies import ERRORS, response_of
from tests.simulation.server import ServerCall
from tests.simulation.stage import SERVICE

if TYPE_CHECKING:
    from gateway.pure.core.verdict import Verdict
    from tests.simulation.network import Connection
    from tests.simulation.stage import Question
    from tests.simulation.worker import Worker

WATCH: Final = "/grpc.health.v1.Health/Watch"
SERVING, NOT_SERVING = 1, 2
QUIET_S: Final = 0.5
"""Time without a batch after which a draining worker ends its stream."""


class Stream:
    """The worker's end. It is a ``server.Service``."""

    def __init__(self, worker: Worker, connection: Connection) -> None:
        self.connection = connection
        self.call = ServerCall(self, connection.answer, connection.hang_up, worker.spec.window_bytes)
        self._worker = worker
        self._stage = worker.stage
        self._open: dict[int, Question] = {}
        """Unanswered calls by id."""
        self._payloads: dict[int, worker_pb2.Payload] = {}
        """The payloads of unanswered calls by id, each with the object on which the call is evaluated."""
        self._waiting: dict[int, list[worker_pb2.Call]] = {}
        """Calls of chains that have not begun, by the id of the call before them."""
        self._dropped: set[int] = set()
        """Ids of cancelled calls."""
        self._highest = 0
        self._outbox = worker_pb2.VerdictBatch()
        self._has_begun = self._is_serving = self._is_watched = self._is_woken = False
        self._is_draining = self._is_half_closed = False
        self._received_at = 0.0

    def begin(self) -> None:
        """Send the settings, once."""
        if not self._has_begun:
            self._has_begun = True
            self.call.send_settings()

    def drop_all(self) -> None:
        """Drop all state, as a process that ends."""
        self.call.is_over = True
        self._open.clear()
        self._waiting.clear()
        self._outbox = worker_pb2.VerdictBatch()

    def drain(self, *, by_goaway: bool) -> None:
        """Announce the drain: by GOAWAY, or by the field ``draining``."""
        if self._is_watched and by_goaway:
            self.call.send_goaway(1)
        if not self._is_serving or self._is_draining:
            return
        self._is_draining = True
        self._received_at = self._stage.loop.time()
        if by_goaway:
            self.call.send_goaway(1)
        else:
            self._outbox.draining = True
            self.flush()
        self._watch_drain()

    def report_health(self) -> None:
        """Send the health status, if this is a watch."""
        if self._is_watched and not self.call.is_over and not self._worker.is_stopped:
            status = SERVING if self._worker.is_healthy else NOT_SERVING
            self.call.send(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    def flush(self) -> None:
        """Send all ready verdicts in one message."""
        self._is_woken = False
        if self._worker.is_stopped or self.call.is_over:
            return
        if self._outbox.verdicts or self._outbox.draining:
            self.call.send(self._outbox.SerializeToString())
            self._outbox = worker_pb2.VerdictBatch()
        self._end_if_done()

    # -- called by the server's call --------------------------------------------------------------

    def called(self, call: ServerCall, path: str) -> None:
        """Serve ReviewStream and the watch; end other calls with UNIMPLEMENTED."""
        if path == f"{SERVICE}/ReviewStream" and self._worker.is_streaming:
            self._is_serving = True
            call.respond()
        elif path == WATCH and self._worker.spec.serves_health:
            self._is_watched = True
            call.respond()
            self.report_health()
        else:
            self._worker.note("does not serve %s", path)
            call.end(12, "no such method")

    def received(self, call: ServerCall, message: bytes) -> None:
        """Process a batch."""
        del call
        if not self._is_serving or self.call.is_over:
            return
        self._received_at = self._stage.loop.time()
        batch = worker_pb2.ReviewBatch.FromString(message)
        cancelled = set(batch.cancelled)
        earlier: dict[int, int] = {}
        for one in batch.calls:
            self._check(one, len(batch.payloads), earlier)
            earlier[one.id] = one.payload
            if one.id in cancelled:
                continue
            if one.after and self._worker.spec.has_chains:
                self._waiting.setdefault(one.after, []).append(one)
            else:
                self._begin_call(one, batch.payloads[one.payload])
        for number in batch.cancelled:
            if self._worker.honours_cancellation:
                self._drop(number)

    def _drop(self, number: int) -> None:
        """Drop a cancelled call."""
        self._open.pop(number, None)
        self._dropped.add(number)

    def half_closed(self, call: ServerCall) -> None:
        """End after the open calls; a watch stays open."""
        del call
        self._is_half_closed = self._is_serving
        self._end_if_done()

    def ended(self, call: ServerCall) -> None:
        """Drop the stream."""
        del call
        self._worker.note("has lost a stream")
        self._open.clear()
        self._waiting.clear()
        self._worker.streams.pop(self, None)

    def pinged_too_often(self, call: ServerCall) -> None:
        """Record a violation for which real servers close the connection."""
        del call
        self._stage.breaches.append(f"too many pings for {self._worker.address}")
        self._worker.note("is pinged too often")

    # -- answering --------------------------------------------------------------------------------

    def _begin_call(self, one: worker_pb2.Call, payload: worker_pb2.Payload) -> None:
        question = self._worker.question(payload.admission_request, one.policy, one.timeout_millis / 1000)
        question.is_chained = one.after != 0 and self._worker.spec.has_chains
        question.traceparent = one.traceparent
        self._open[one.id] = question
        self._payloads[one.id] = payload
        self._plan(one.id, question)

    def _begin_waiting(self, number: int, patch: bytes) -> None:
        """Begin the calls after call *number*, on the object that *patch* leaves."""
        payload = self._payloads.pop(number)
        waiting = [one for one in self._waiting.pop(number, ()) if one.id not in self._dropped]
        if waiting and patch:
            document = orjson.loads(payload.admission_request)
            with contextlib.suppress(PatchSyntaxError, PatchConflict):
                document["object"] = apply_patch(document["object"], parse_patch(patch))
                payload = worker_pb2.Payload(
                    admission_request=orjson.dumps(document), namespace_object=payload.namespace_object
                )
        for one in waiting:
            self._begin_call(one, payload)

    def _check(self, one: worker_pb2.Call, payloads: int, earlier: dict[int, int]) -> None:
        if one.after and earlier.get(one.after) != one.payload:
            self._stage.breaches.append(f"call {one.id} after {one.after}, which is not in its batch")
        timeout = one.timeout_millis
        if one.id <= self._highest:
            self._stage.breaches.append(f"id {one.id} is not new")
        if one.payload >= payloads or not 0 < timeout <= 30_000:
            self._stage.breaches.append(f"call {one.id}: payload {one.payload} of {payloads}, {timeout} ms")
        self._highest = max(self._highest, one.id)

    def _plan(self, number: int, question: Question) -> None:
        oddity, after_s = self._worker.oddity(), question.latency_s
        if oddity:
            question.is_odd = True
            self._worker.note(f"{oddity}: %s about %s", question.policy, question.uid)
        if self._worker.enforces_timeouts and after_s > question.timeout_s and oddity != "answers late":
            self._stage.loop.call_later(question.timeout_s, self._answer, number, question, "is late")
        elif oddity == "answers late":
            self._stage.loop.call_later(question.timeout_s + after_s, self._answer, number, question, "")
        elif oddity != "hangs":
            self._stage.loop.call_later(after_s, self._answer, number, question, oddity)

    def _answer(self, number: int, question: Question, oddity: str) -> None:
        if self._open.get(number) is not question:
            return
        del self._open[number]
        verdict: Verdict | None = self._worker.verdict(question)
        numbers = [number]
        if oddity == "answers twice":
            numbers *= 2
        elif oddity == "answers an unknown id":
            numbers = [number + 1_000_000]
        elif oddity == "answers another call":
            numbers = [*list(self._open)[-1:], number]
        elif oddity == "answers nothing":
            verdict = None
        elif oddity == "is late":
            self._outbox.verdicts.add(id=number, chained=question.is_chained).error.code = 4
            question.was_late = True
            numbers = []
        for at in numbers:
            self._open.get(at, question).is_odd |= at != number
            self._add(at, verdict, is_chained=question.is_chained)
        self._begin_waiting(number, verdict.patch if isinstance(verdict, Allowed) and numbers else b"")
        if not self._is_woken:
            self._is_woken = True
            self._stage.loop.call_soon(self.flush)

    def _add(self, number: int, verdict: Verdict | None, *, is_chained: bool) -> None:
        entry = self._outbox.verdicts.add(id=number, chained=is_chained)
        if isinstance(verdict, Failed):
            entry.error.code, entry.error.message = ERRORS[verdict]
        elif verdict is not None:
            entry.response.CopyFrom(response_of(verdict))
            entry.response.SetInParent()

    def _watch_drain(self) -> None:
        """End a draining stream as the worker contract requires."""
        if self.call.is_over or not self._is_draining:
            return
        quiet_s = self._stage.loop.time() - self._received_at
        if not self._open and quiet_s >= QUIET_S - 1e-6:
            self._finish()
        else:
            self._stage.loop.call_later(max(QUIET_S - quiet_s, 0.05), self._watch_drain)

    def _end_if_done(self) -> None:
        if self._is_half_closed and not self._open and not self._is_woken:
            self._finish()

    def _finish(self) -> None:
        if not self.call.is_over:
            self._worker.note("ends a stream")
            self._worker.streams.pop(self, None)
            self.call.end(0)
            self.call.hang_up()

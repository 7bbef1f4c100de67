"""Simulated workers whose policies do what their name says: a script, as for ``tests/worker``.

In memory there are no files to wait for and no processes to end: ``until`` is not known, and ``exit`` crashes
the worker. ``flood`` sends ``FLOOD`` verdicts.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch.unsolicited import MAX_UNSOLICITED
from tests.simulation.stream import Stream
from tests.simulation.worker import Worker, rpc_error
from tests.worker.script import GARBAGE, count, respond, script_of, unsolicited, verdict_of

if TYPE_CHECKING:
    import asyncio

    from tests.simulation.network import Connection
    from tests.simulation.server import ServerCall
    from tests.simulation.stage import Question, Stage, WorkerSpec

FLOOD: Final = 2 * MAX_UNSOLICITED


class ScriptedWorker(Worker):
    """A worker for scripts; *override* has members that replace those of each *every*th script."""

    def __init__(
        self, stage: Stage, spec: WorkerSpec, override: dict[str, Any] | None = None, every: int = 1
    ) -> None:
        super().__init__(stage, spec)
        self.seen: Counter[str] = Counter()
        """The counts of a script with ``report``."""
        self.target = f"ipv4:{spec.address}:1"
        self.override = override or {}
        self._every = every
        self._dice = random.Random(spec.address)
        self._requests: dict[Question, worker_pb2.ReviewRequest] = {}
        """Of unary calls."""

    def stream(self, connection: Connection) -> Stream:
        return ScriptedStream(self, connection)

    def question(self, payload: bytes, policy: str, timeout_s: float) -> Question:
        question = super().question(payload, policy, timeout_s)
        script = script_of(policy, self.seen, self.override, self._every)
        question.script = script
        delay_ms = script.get("delay_ms", 0)
        if isinstance(delay_ms, list):
            delay_ms = self._dice.uniform(*delay_ms)
        question.latency_s = self.slowness * delay_ms / 1000
        return question

    def start_unary(self, request: bytes, timeout_s: float) -> tuple[Question, asyncio.Future[bytes]]:
        self.seen["unary"] += 1
        read = worker_pb2.ReviewRequest.FromString(request)
        question = self.question(read.admission_request, read.policy, timeout_s)
        future: asyncio.Future[bytes] = self.stage.loop.create_future()
        self._unary[question] = future
        self._requests[question] = read
        if question.script.get("exit"):
            self.stage.loop.call_soon(lambda: self.crash(delivers_written=False))
        elif not question.script.get("hang"):
            self.stage.loop.call_later(question.latency_s, self._answer_unary, question)
        return question, future

    def drop_unary(self, question: Question) -> None:
        if self._unary.pop(question, None) is not None:
            self.seen["cancelled"] += 1

    def _resolve_unary(self, question: Question, future: asyncio.Future[bytes]) -> None:
        script, read = question.script, self._requests[question]
        if "status" in script:
            future.set_exception(rpc_error(script["status"], script.get("details", "")))
        elif script.get("garbage"):
            future.set_result(GARBAGE)
        else:
            answer = respond(script, read.admission_request, read.namespace_object, self.seen)
            future.set_result(answer.SerializeToString())


class ScriptedStream(Stream):
    """A stream on which the answers are those of scripts."""

    _worker: ScriptedWorker

    def __init__(self, worker: ScriptedWorker, connection: Connection) -> None:
        super().__init__(worker, connection)
        self._held: list[tuple[int, Question]] = []
        """Calls whose answers are due, while the worker is stopped."""

    def flush(self) -> None:
        super().flush()
        held, self._held = self._held, []
        for number, question in held:
            self._answer_by_script(number, question)

    def called(self, call: ServerCall, path: str) -> None:
        super().called(call, path)
        self._worker.seen["streams"] += self._is_serving

    def received(self, call: ServerCall, message: bytes) -> None:
        count(worker_pb2.ReviewBatch.FromString(message), self._worker.seen)
        super().received(call, message)

    def _drop(self, number: int) -> None:
        question = self._open.get(number)
        if question is None or not question.script.get("stubborn"):
            super()._drop(number)

    def _plan(self, number: int, question: Question) -> None:
        if question.script.get("exit"):
            self._stage.loop.call_soon(lambda: self._worker.crash(delivers_written=False))
        elif not question.script.get("hang"):
            self._stage.loop.call_later(question.latency_s, self._answer_by_script, number, question)

    def _answer_by_script(self, number: int, question: Question) -> None:
        if self._worker.is_stopped:
            self._held.append((number, question))
            return
        if self._open.get(number) is not question:
            return
        script, call, payload = question.script, self.call, self._payloads[number]
        if script.get("garbage"):
            call.send(GARBAGE)
            return
        if script.get("end"):
            self._worker.streams.pop(self, None)
            call.end(0)
            call.hang_up()
            return
        del self._open[number]
        request, namespace, seen = payload.admission_request, payload.namespace_object, self._worker.seen
        verdict = verdict_of(
            script,
            number,
            self._open,
            lambda: respond(script, request, namespace, seen, question.traceparent),
            is_chained=question.is_chained,
        )
        reply = worker_pb2.VerdictBatch(verdicts=[verdict], draining=bool(script.get("drain")))
        for _ in range(2 if script.get("twice") else 1):
            call.send(reply.SerializeToString())
        response = verdict.response
        self._begin_waiting(number, response.patch if response.allowed else b"")
        if script.get("flood"):
            call.send(unsolicited(FLOOD))
        self._end_if_done()

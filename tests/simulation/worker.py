"""A simulated worker: a process at an address, with its faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import orjson

from admission_gateway_worker.pb import worker_pb2
from gateway.pure.core.verdict import Failed
from tests.simulation.policies import ERRORS, response_of
from tests.simulation.stage import Question
from tests.simulation.stream import Stream

if TYPE_CHECKING:
    import asyncio

    from gateway.pure.core.verdict import Verdict
    from tests.simulation.network import Connection
    from tests.simulation.stage import Stage, WorkerSpec

LATENCIES_S: Final = (0.0, 0.001, 0.01, 0.01, 0.1, 1.0, 2.5)
ODDITY_RATE: Final = 0.15

ODDITIES: Final = (
    "hangs",
    "answers twice",
    "answers an unknown id",
    "answers another call",
    "answers nothing",
    "answers late",
)


class Worker:
    """A process at an address. It is a ``network.Host``."""

    def __init__(self, stage: Stage, spec: WorkerSpec) -> None:
        self.stage = stage
        self.spec = spec
        self.address = spec.address
        self.oddities = spec.oddities
        self.is_streaming = spec.is_streaming
        self.enforces_timeouts = stage.dice.random() < 0.5
        """Whether it ends calls at their timeout."""
        self.honours_cancellation = stage.dice.random() < 0.7
        """Whether it drops cancelled calls."""
        self.is_down = self.is_stopped = self.is_cut_off = self.refuses = self.is_mute = False
        self.is_healthy = True
        self.slowness = 1.0
        self.streams: dict[Stream, None] = {}
        self._unary: dict[Question, asyncio.Future[bytes]] = {}
        self._held: list[Question] = []
        """Unary calls whose answers are due, while it is silent."""

    def note(self, text: str, *values: object) -> None:
        self.stage.journal.note(f"worker {self.address} {text}", *values)

    @property
    def is_silent(self) -> bool:
        """Whether it sends nothing at present."""
        return self.is_stopped or self.is_cut_off

    def accept(self, connection: Connection) -> bool:
        """Accept a connection; the kernel does so for a stopped process too."""
        if self.is_down or self.refuses:
            return False
        stream = self.stream(connection)
        connection.peer = stream.call
        self.streams[stream] = None
        if self.is_stopped:
            connection.stop_reading()
        if not self.is_mute and not self.is_stopped:
            stream.begin()
        return True

    def stream(self, connection: Connection) -> Stream:
        """Return the worker's end of a new connection."""
        return Stream(self, connection)

    # -- faults ---------------------------------------------------------------------------------

    def crash(self, *, delivers_written: bool) -> None:
        """End at once. With *delivers_written* the bytes written before still arrive."""
        self.note("crashes")
        self._end(vanishes=False, delivers_written=delivers_written)

    def vanish(self) -> None:
        """Lose the machine: peers are not notified, and its address is unreachable."""
        self.note("vanishes")
        self.is_cut_off = True
        self._end(vanishes=True)

    def restart(self) -> None:
        """Start again without any state."""
        if self.is_down:
            self.note("is back")
            self.is_down = self.is_cut_off = self.is_stopped = self.refuses = self.is_mute = False
            self.is_healthy = True

    def stop(self) -> None:
        """Stop until :meth:`resume`, as after SIGSTOP."""
        self.note("stops")
        self.is_stopped = True
        for stream in self.streams:
            stream.connection.stop_reading()

    def cut_off(self) -> None:
        """Hold all traffic in both directions."""
        self.note("is cut off")
        self.is_cut_off = True
        for stream in self.streams:
            stream.connection.hold()

    def resume(self) -> None:
        """Continue after :meth:`stop` or :meth:`cut_off`, and send the answers that are due."""
        self.note("resumes")
        self.is_stopped = self.is_cut_off = False
        for stream in tuple(self.streams):
            stream.begin()
            stream.connection.resume()
            stream.flush()
            stream.report_health()
        held, self._held = self._held, []
        for question in held:
            self._answer_unary(question)

    def drain(self, *, by_goaway: bool) -> None:
        """Drain all streams, and end them as the worker contract requires."""
        self.note("drains")
        for stream in tuple(self.streams):
            stream.drain(by_goaway=by_goaway)

    def set_health(self, *, is_healthy: bool) -> None:
        """Set the health status, and report it to all watches."""
        self.note("becomes healthy" if is_healthy else "becomes unhealthy")
        self.is_healthy = is_healthy
        for stream in tuple(self.streams):
            stream.report_health()

    def unmute(self) -> None:
        """Send the settings on connections that lack them."""
        self.is_mute = False
        for stream in tuple(self.streams):
            stream.begin()

    def _end(self, *, vanishes: bool, delivers_written: bool = False) -> None:
        self.is_down = True
        self.is_stopped = False
        for stream in tuple(self.streams):
            stream.drop_all()
            if vanishes:
                stream.connection.vanish()
            elif delivers_written:
                stream.connection.hang_up()
            else:
                stream.connection.reset()
        self.streams.clear()
        unary, self._unary, self._held = self._unary, {}, []
        for future in unary.values():
            if not vanishes and not future.done():
                future.set_exception(rpc_error("UNAVAILABLE", "Connection reset by peer"))

    # -- answering --------------------------------------------------------------------------------

    def question(self, payload: bytes, policy: str, timeout_s: float) -> Question:
        """Record a call, and draw its latency."""
        request: Any = orjson.loads(payload)
        dice, now = self.stage.dice, self.stage.loop.time()
        question = Question(self.address, request["uid"], policy, request["object"], timeout_s, now)
        question.latency_s = self.slowness * dice.choice(LATENCIES_S) * dice.choice((1, 1, dice.random()))
        self.stage.questions.append(question)
        self.note("gets %s about %s", policy, question.uid)
        return question

    def oddity(self) -> str:
        """Return the fault of the next answer; mostly none."""
        dice = self.stage.dice
        return dice.choice(self.oddities) if self.oddities and dice.random() < ODDITY_RATE else ""

    def verdict(self, question: Question) -> Verdict:
        """Return the verdict of the policy."""
        return self.stage.policies.verdict(question.policy, question.shown)

    def start_unary(self, request: bytes, timeout_s: float) -> tuple[Question, asyncio.Future[bytes]]:
        """Start a unary call; the future gets its answer or its error."""
        read = worker_pb2.ReviewRequest.FromString(request)
        question = self.question(read.admission_request, read.policy, timeout_s)
        future: asyncio.Future[bytes] = self.stage.loop.create_future()
        self._unary[question] = future
        if self.oddity() == "hangs":
            question.is_odd = True
        else:
            self.stage.loop.call_later(question.latency_s, self._answer_unary, question)
        return question, future

    def drop_unary(self, question: Question) -> None:
        """Drop a unary call."""
        self._unary.pop(question, None)

    def _answer_unary(self, question: Question) -> None:
        if self.is_silent:
            self._held.append(question)
            return
        future = self._unary.pop(question, None)
        if future is None or future.done():
            return
        self._resolve_unary(question, future)

    def _resolve_unary(self, question: Question, future: asyncio.Future[bytes]) -> None:
        verdict = self.verdict(question)
        self.note("answers %s about %s by a unary call", question.policy, question.uid)
        if isinstance(verdict, Failed):
            code, details = ERRORS[verdict]
            future.set_exception(
                rpc_error(verdict.cause.partition(":")[0] if code < 17 else "UNKNOWN", details)
            )
        else:
            future.set_result(response_of(verdict).SerializeToString())


def rpc_error(code: str, details: str) -> grpc.aio.AioRpcError:
    """Return the exception that a failed unary call raises."""
    return grpc.aio.AioRpcError(grpc.StatusCode[code], grpc.aio.Metadata(), grpc.aio.Metadata(), details)

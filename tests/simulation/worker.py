"""A simulated worker: a process at an address, with its faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import orjson

from gateway.core.verdict import Failed
from gateway.pb import worker_pb2
from tests.simulation.policies import ERRORS, response_of
from tests.simulation.stage import Question
from tests.simulation.stream import Stream

if TYPE_CHECKING:
    import asyncio

    from gateway.core.verdict import Verdict
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
        self.is_punctual = stage.dice.random() < 0.5
        """Whether it watches the time that a call has."""
        self.is_obedient = stage.dice.random() < 0.7
        """Whether it stops what is cancelled."""
        self.is_down = self.is_stopped = self.is_cut_off = self.refuses = self.is_mute = False
        self.is_healthy = True
        self.slowness = 1.0
        self.streams: dict[Stream, None] = {}
        self._alone: dict[Question, asyncio.Future[bytes]] = {}
        self._held: list[Question] = []
        """Calls of their own that came while it was stopped."""

    def note(self, text: str, *values: object) -> None:
        self.stage.journal.note(f"worker {self.address} {text}", *values)

    @property
    def is_silent(self) -> bool:
        """Whether it says nothing for the time being."""
        return self.is_stopped or self.is_cut_off

    def accept(self, connection: Connection) -> bool:
        """Take a connection; the kernel does so also for a process that is stopped."""
        if self.is_down or self.refuses:
            return False
        stream = Stream(self, connection)
        connection.peer = stream.call
        self.streams[stream] = None
        if self.is_stopped:
            connection.stop_reading()
        if not self.is_mute and not self.is_stopped:
            stream.begin()
        return True

    # -- what goes wrong --------------------------------------------------------------------------

    def crash(self, *, with_a_farewell: bool) -> None:
        """End at once; what was written already still arrives *with_a_farewell*."""
        self.note("crashes")
        self._end(vanishes=False, with_a_farewell=with_a_farewell)

    def vanish(self) -> None:
        """Have the whole machine gone: nobody is told, and nobody answers at its address."""
        self.note("vanishes")
        self.is_cut_off = True
        self._end(vanishes=True)

    def restart(self) -> None:
        """Be there again, with nothing of what was."""
        if self.is_down:
            self.note("is back")
            self.is_down = self.is_cut_off = self.is_stopped = self.refuses = self.is_mute = False
            self.is_healthy = True

    def stop(self) -> None:
        """Do nothing for the time being, as after SIGSTOP."""
        self.note("stops")
        self.is_stopped = True
        for stream in self.streams:
            stream.connection.stop_reading()

    def cut_off(self) -> None:
        """Have the network hold everything from and to it."""
        self.note("is cut off")
        self.is_cut_off = True
        for stream in self.streams:
            stream.connection.hold()

    def go_on(self) -> None:
        """Go on after :meth:`stop` or :meth:`cut_off`; late answers go out now."""
        self.note("goes on")
        self.is_stopped = self.is_cut_off = False
        for stream in tuple(self.streams):
            stream.begin()
            stream.connection.go_on()
            stream.flush()
            stream.tell_health()
        held, self._held = self._held, []
        for question in held:
            self._answer_alone(question)

    def drain(self, *, by_goaway: bool) -> None:
        """Say on all streams that nothing new is wanted, and end them as the contract says."""
        self.note("drains")
        for stream in tuple(self.streams):
            stream.drain(by_goaway=by_goaway)

    def feel(self, *, is_healthy: bool) -> None:
        """Say how it is to whoever watches."""
        self.note("is well" if is_healthy else "is not well")
        self.is_healthy = is_healthy
        for stream in tuple(self.streams):
            stream.tell_health()

    def unmute(self) -> None:
        """Introduce itself on connections on which it has not yet."""
        self.is_mute = False
        for stream in tuple(self.streams):
            stream.begin()

    def _end(self, *, vanishes: bool, with_a_farewell: bool = False) -> None:
        self.is_down = True
        self.is_stopped = False
        for stream in tuple(self.streams):
            stream.forget_all()
            if vanishes:
                stream.connection.vanish()
            elif with_a_farewell:
                stream.connection.hang_up()
            else:
                stream.connection.reset()
        self.streams.clear()
        alone, self._alone, self._held = self._alone, {}, []
        for future in alone.values():
            if not vanishes and not future.done():
                future.set_exception(rpc_error("UNAVAILABLE", "Connection reset by peer"))

    # -- answering --------------------------------------------------------------------------------

    def question(self, payload: bytes, policy: str, timeout_s: float) -> Question:
        """Take note of a call, and decide how long it takes and what is odd about the answer."""
        asked: Any = orjson.loads(payload)
        dice, now = self.stage.dice, self.stage.loop.time()
        question = Question(self.address, asked["uid"], policy, asked["object"], timeout_s, now)
        question.latency_s = self.slowness * dice.choice(LATENCIES_S) * dice.choice((1, 1, dice.random()))
        self.stage.questions.append(question)
        self.note("is asked %s about %s", policy, question.uid)
        return question

    def oddity(self) -> str:
        """Return how the next answer is odd; nothing, mostly."""
        dice = self.stage.dice
        return dice.choice(self.oddities) if self.oddities and dice.random() < ODDITY_RATE else ""

    def verdict(self, question: Question) -> Verdict:
        """Return what the policy has to say."""
        return self.stage.policies.verdict(question.policy, question.shown)

    def ask_alone(self, request: bytes, timeout_s: float) -> tuple[Question, asyncio.Future[bytes]]:
        """Take a call of its own; its answer, or the error in which it ends, comes later."""
        read = worker_pb2.ReviewRequest.FromString(request)
        question = self.question(read.admission_request, read.policy, timeout_s)
        future: asyncio.Future[bytes] = self.stage.loop.create_future()
        self._alone[question] = future
        if self.oddity() == "hangs":
            question.is_odd = True
        else:
            self.stage.loop.call_later(question.latency_s, self._answer_alone, question)
        return question, future

    def forget_alone(self, question: Question) -> None:
        """Drop a call of its own that is not wanted any more."""
        self._alone.pop(question, None)

    def _answer_alone(self, question: Question) -> None:
        if self.is_silent:
            self._held.append(question)
            return
        future = self._alone.pop(question, None)
        if future is None or future.done():
            return
        verdict = self.verdict(question)
        self.note("answers %s about %s alone", question.policy, question.uid)
        if isinstance(verdict, Failed):
            code, details = ERRORS[verdict]
            future.set_exception(
                rpc_error(verdict.cause.partition(":")[0] if code < 17 else "UNKNOWN", details)
            )
        else:
            future.set_result(response_of(verdict).SerializeToString())


def rpc_error(code: str, details: str) -> grpc.aio.AioRpcError:
    """Return the exception in which a call of its own ends."""
    return grpc.aio.AioRpcError(grpc.StatusCode[code], grpc.aio.Metadata(), grpc.aio.Metadata(), details)

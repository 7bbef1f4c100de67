"""The generator of load against a scripted server, in virtual time; the parser of answers, and outcomes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import generator
from loadtest.generator import LEAD_S, RECONNECT_AFTER_S, Generator, Outcomes, ticking
from loadtest.http_client import Address, Answer, Departure, Request, parse
from loadtest.outcomes import outcome_of
from tests.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType


def http(status: int = 200, body: bytes = b"{}", *fields: bytes) -> bytes:
    head = b"\r\n".join((b"HTTP/1.1 %d X" % status, *fields, b"Content-Length: %d" % len(body)))
    return head + b"\r\n\r\n" + body


OK = http()
REFUSED = http(503, b"", b"Retry-After: 2", b"Connection: close")


@dataclass(frozen=True)
class Step:
    """What the server does with one request."""

    after_s: float = 0.01
    sends: Sequence[bytes] = (OK,)
    closes: bool = False
    """After that."""
    accepts: bool = True
    """Whether the next connection after this request is accepted."""


class Server:
    """Follows *steps*, a step a request, again and again."""

    def __init__(self, loop: VirtualLoop, steps: Sequence[Step]) -> None:
        self.received: list[bytes] = []
        self.ends: Counter[str] = Counter()
        """How clients ended their connections."""
        self._loop, self._steps, self._accepts = loop, cycle(steps), True

    async def connect(
        self, make_protocol: Callable[[], asyncio.Protocol], _host: str, _port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        if not self._accepts:
            self._accepts = True
            raise ConnectionRefusedError("refused")
        protocol = make_protocol()
        transport = Transport(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def receive(self, transport: Transport, data: bytes) -> None:
        step = next(self._steps)
        self.received.append(data)
        self._accepts = step.accepts
        for piece in step.sends:
            self._loop.call_later(step.after_s, transport.deliver, piece)
        if step.closes:
            self._loop.call_later(step.after_s, transport.end, "")

    async def look_up(self, host: str) -> list[str]:
        raise NotImplementedError


class Transport(asyncio.Transport):
    """The client's side of a connection."""

    def __init__(self, server: Server, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._server, self._protocol, self._is_open = server, protocol, True

    def write(self, data: Any) -> None:
        assert self._is_open
        self._server.receive(self, data)

    def deliver(self, data: bytes) -> None:
        if self._is_open:
            self._protocol.data_received(data)

    def end(self, name: str) -> None:
        if self._is_open:
            self._is_open = False
            self._server.ends[name] += bool(name)
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        assert (name, default) == ("socket", None)
        return SimpleNamespace(setsockopt=lambda *_: self.end("RST"))

    def close(self) -> None:
        self.end("close_notify")

    def abort(self) -> None:
        self.end("FIN")


class Record(Outcomes[Request]):
    """Everything that the generator reports."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def judge(self, request: Request, answer: Answer) -> bool:
        self.ended.append(f"{request.uid}: {answer.status}")
        return answer.status == 200

    def lost(self, request: Request | None, reason: str) -> None:
        self.ended.append(f"{request.uid if request else '-'}: {reason}")

    def left(self, request: Request) -> None:
        self.ended.append(f"{request.uid}: left")

    def retried(self, request: Request) -> None:
        self.ended.append(f"{request.uid}: again")


@dataclass
class Run:
    """A finished run."""

    ended: list[str]
    server: Server
    load: Generator[Request]
    took_s: float
    """Up to the end of the last request."""


def requests(count: int, leaves: Departure | None = None) -> Iterator[Request]:
    return (Request(str(number), b"%d" % number, leaves) for number in range(count))


@contextmanager
def virtual_time(*modules: ModuleType) -> Iterator[VirtualLoop]:
    """The generator, and *modules*, use the time of the loop."""
    loop = VirtualLoop()

    def virtual_ticking(callback: Callable[[], None], first: float, interval_s: float) -> Any:
        def tick(number: int) -> None:
            if number:
                callback()
            # As the kernel's timer: no tick is early.
            timer[:] = [loop.call_at(first + number * interval_s + 1e-9, tick, number + 1)]

        timer: list[asyncio.TimerHandle] = []
        tick(0)
        return mock.MagicMock(__exit__=lambda *_: timer[0].cancel())

    with ExitStack() as stack:
        for module in (generator, *modules):
            clock = SimpleNamespace(perf_counter=loop.time)
            stack.enter_context(mock.patch.object(module, "time", clock))
        stack.enter_context(mock.patch.object(generator, "ticking", virtual_ticking))
        yield loop
    assert loop.errors == []


def run(
    sent: Iterator[Request],
    steps: Sequence[Step],
    width: int = 1,
    *,
    unmeasured_s: float = 0.0,
    **options: Any,
) -> Run:
    """Send *sent* to a server that follows *steps*, in virtual time; measure after *unmeasured_s*."""
    record = Record()
    found: list[Run] = []

    async def main() -> None:
        address = Address("server", 1, cast("Any", None))
        load = Generator(lambda: address, sent, record, **options)
        await load.open(width)
        began = loop.time()
        load.measured_from = began + unmeasured_s
        with load.sending():
            await load.is_over.wait()
        found.append(Run(record.ended, server, load, loop.time() - began))
        await load.close()

    with virtual_time() as loop:
        loop.network = server = Server(loop, steps)
        loop.run(main())
    return found[0]


FIN = "the connection was closed"


@pytest.mark.parametrize(
    ("options", "steps", "ended", "connections"),
    [
        ({}, [Step()], ["0: 200", "1: 200", "2: 200"], 1),
        ({}, [Step(sends=(OK[:9], OK[9:30], OK[30:]))], ["0: 200", "1: 200", "2: 200"], 1),
        ({"is_fresh": True}, [Step()], ["0: 200", "1: 200", "2: 200"], 4),
        (
            {},
            [Step(sends=(http(200, b"", b"Connection: close"),)), Step(), Step()],
            ["0: 200", "1: 200", "2: 200"],
            2,
        ),
        # Closed while nothing is in flight: the next request has a new connection.
        (
            {"pause_s": 1.0},
            [Step(closes=True), Step(), Step()],
            ["0: 200", f"-: {FIN}", "1: 200", "2: 200"],
            2,
        ),
        ({}, [Step(), Step(sends=(), closes=True), Step()], ["0: 200", f"1: {FIN}", "2: 200"], 2),
        ({}, [Step(sends=(OK[:30],), closes=True), Step(), Step()], [f"0: {FIN}", "1: 200", "2: 200"], 2),
        (
            {},
            [Step(sends=(), closes=True, accepts=False), Step(), Step()],
            [f"0: {FIN}", "1: ConnectionRefusedError: refused", "2: 200"],
            2,
        ),
        ({}, [Step(sends=(REFUSED,))], ["0: 503", "1: 503", "2: 503"], 3),
        (
            {"max_retries": 2},
            [Step(sends=(REFUSED,)), Step(), *[Step(sends=(REFUSED,))] * 3, Step()],
            ["0: again", "0: 200", "1: again", "1: again", "1: 503", "2: 200"],
            5,
        ),
        (
            {},
            [
                Step(sends=(OK + OK,)),
                Step(sends=(b"HTTP/1.0 200 X\r\n\r\n",)),
                Step(sends=(b"HTTP/1.1 200 X\r\n\r\n",)),
            ],
            [
                f"0: no HTTP: more than one answer: {OK!r} follows",
                "1: no HTTP: HTTP/1.0 200 X",
                "2: no HTTP: neither Content-Length nor chunks: HTTP/1.1 200 X",
            ],
            3,
        ),
        (
            {"pause_s": 1.0},
            [Step(sends=(OK, OK)), Step(), Step()],
            ["0: 200", "-: no HTTP: an answer without a request", "1: 200", "2: 200"],
            2,
        ),
    ],
)
def test_a_request_ends_once_and_the_next_uses_a_connection_that_is_open(
    options: dict[str, Any], steps: list[Step], ended: list[str], connections: int
) -> None:
    found = run(requests(3), steps, **options)
    assert found.ended == ended
    assert found.load.connections == connections
    assert found.load.right == len(found.load.latencies_s) == sum(text.endswith("200") for text in ended)


@pytest.mark.parametrize(
    ("options", "steps", "took_s", "latencies_s"),
    [
        ({}, [Step(0.2)], 0.6, [0.2] * 3),
        ({"pause_s": 1.0}, [Step(0.2)], 4.6, [0.2] * 3),
        ({"rate": 10.0}, [Step(0.01)], LEAD_S + 0.3, [0.01] * 3),
        # A stall delays all that are due meanwhile: a closed loop has one slow answer.
        ({"rate": 10.0}, [Step(1.0), Step(0.0), Step(0.0)], LEAD_S + 1.0, [1.0, 0.9, 0.8]),
        ({"max_retries": 1}, [Step(0.1, (REFUSED,)), Step(0.2)], 6.9, [2.3] * 3),
        ({}, [Step(0.1, (), closes=True), Step(0.2), Step(0.2)], 0.5 + RECONNECT_AFTER_S, [0.2] * 2),
    ],
)
def test_latency_counts_from_the_moment_at_which_a_request_was_sent_or_due(
    options: dict[str, Any], steps: list[Step], took_s: float, latencies_s: list[float]
) -> None:
    found = run(requests(3), steps, **options)
    assert list(found.load.latencies_s) == pytest.approx(latencies_s, abs=1e-6)
    assert found.took_s == pytest.approx(took_s, abs=1e-6)


@pytest.mark.parametrize("mode", ["close_notify", "FIN", "RST"])
def test_a_client_leaves_unless_it_is_answered_before(mode: Any) -> None:
    found = run(requests(3, Departure(0.5, mode)), [Step(1.0), Step(0.1), Step(1.0)])
    assert found.ended == ["0: left", "1: 200", "2: left"]
    assert found.server.ends == {mode: 2}
    assert found.took_s == pytest.approx(1.1)


def test_answers_with_the_same_bytes_are_judged_once_if_all_requests_are_equal() -> None:
    found = run(requests(4), [Step(), Step(), Step(sends=(http(404),)), Step()], are_equal=True)
    assert found.ended == ["0: 200", "2: 404"]
    assert found.load.right == 3


def test_an_answer_without_a_request_is_not_taken_for_a_right_one() -> None:
    found = run(requests(2), [Step(sends=(OK, OK)), Step()], are_equal=True, pause_s=1.0)
    assert found.ended == ["0: 200", "-: no HTTP: an answer without a request"]
    assert found.load.right == 2


def test_each_request_has_its_own_retries() -> None:
    sent = iter([Request("same", b"") for _ in range(2)])
    found = run(sent, [Step(sends=(REFUSED,)), Step()], max_retries=1)
    assert found.ended == ["same: again", "same: 200"] * 2


@pytest.mark.parametrize("are_equal", [True, False])
@pytest.mark.parametrize(("rate", "after_s", "late"), [(None, 0.1, 0), (10.0, 0.05, 3)])
def test_what_was_sent_or_due_before_the_window_is_not_measured(
    rate: float | None, after_s: float, late: int, are_equal: bool
) -> None:
    found = run(requests(5), [Step(after_s)], unmeasured_s=0.15, are_equal=are_equal, rate=rate)
    assert (found.load.right, len(found.load.latencies_s), len(found.load.late_s)) == (5, 3, late)


def test_connections_take_turns_and_as_many_requests_are_in_flight() -> None:
    found = run(requests(8), [Step(1.0)], width=4)
    assert found.took_s == pytest.approx(2.0)
    assert (found.load.connections, len(found.ended)) == (4, 8)


@given(
    delays_ms=st.lists(st.integers(0, 50), min_size=1, max_size=40),
    width=st.integers(1, 4),
    lost=st.integers(0, 40),
)
def test_every_due_request_ends_once_and_is_timed_from_when_it_was_due(
    delays_ms: list[int], width: int, lost: int
) -> None:
    """One request a millisecond; *lost* is the number of the request whose connection breaks."""
    steps = [
        Step(delay_ms / 1000, () if number == lost else (OK,), closes=number == lost)
        for number, delay_ms in enumerate(delays_ms)
    ]
    found = run(requests(len(steps)), steps, width, rate=1000.0)
    assert sorted(int(text.partition(":")[0]) for text in found.ended) == list(range(len(steps)))
    assert found.load.right == len(steps) - (lost < len(steps))
    least_s = sorted(delay_ms / 1000 for number, delay_ms in enumerate(delays_ms) if number != lost)
    assert all(a >= b - 1e-9 for a, b in zip(sorted(found.load.latencies_s), least_s, strict=True))
    assert len(found.load.late_s) <= len(steps)


def test_no_tick_comes_before_its_time() -> None:
    async def collect() -> list[float]:
        ticks: list[float] = []
        done = asyncio.Event()

        def tick() -> None:
            ticks.append(time.perf_counter() - first)
            if len(ticks) == 5:
                done.set()

        first = time.perf_counter() + 0.01
        with ticking(tick, first, 1 / 300):
            await done.wait()
        return ticks

    assert all(tick >= number / 300 for number, tick in enumerate(asyncio.run(collect())))


# -- answers --------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=40)), st.data())
def test_an_answer_is_whole_with_its_last_byte(chunks: list[bytes], data: st.DataObject) -> None:
    body = b"".join(chunks)
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + framed
    for sent in (chunked, http(200, body)):
        found = parse(sent)
        assert found is not None
        assert (found.status, found.body) == (200, body)
        assert parse(sent[: data.draw(st.integers(0, len(sent) - 1))]) is None
        with pytest.raises(ValueError, match="more than one answer"):
            parse(sent + b"x")


def review(uid: str = "u", **response: object) -> bytes:
    members = {"uid": uid, "allowed": True, **response}
    return orjson.dumps({"kind": "AdmissionReview", "response": members})


@pytest.mark.parametrize(
    ("status", "body", "outcome", "text"),
    [
        (200, review(), "allowed", ""),
        (200, review(auditAnnotations={"x/failed-open.h": "y"}), "failed open", ""),
        (200, review(allowed=False, status={"code": 403, "message": "no"}), "denied", "403: no"),
        (200, review(allowed=False), "denied", "0: "),
        (200, review(allowed=False, status={"code": 500, "message": "h failed"}), "failed", "h failed"),
        (503, b"busy", "refused", "503: busy"),
        (404, b"nothing", "lost", "HTTP/1.1 404 X: nothing"),
        (200, review("v"), "lost", "expected the uid u, found v"),
        (200, b"[]", "lost", "not an AdmissionReview: []"),
        (200, b"{", "lost", "not an AdmissionReview: {"),
        (200, b'{"kind":"Pod","response":{"uid":"u","allowed":true}}', "lost", "not an AdmissionReview: "),
        (200, review(allowed="yes"), "lost", "not an AdmissionReview: "),
        (200, review(status=[]), "lost", "not an AdmissionReview: "),
    ],
)
def test_an_answer_has_one_outcome(status: int, body: bytes, outcome: str, text: str) -> None:
    answer = parse(http(status, body))
    assert answer is not None
    found = outcome_of(answer, "u")
    assert (found[0], found[1][: len(text)]) == (outcome, text)

"""The load generator: percentiles, the check of answers, and the accounting of an open loop."""

from __future__ import annotations

import asyncio
import os
import time
from typing import cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loadtest.load
from loadtest.http_client import Answers, Connection, Target, whole_body
from loadtest.load import OpenLoop, ticking
from loadtest.measurement import PERCENTILES, Stopwatch, cpu_clock, percentiles_ms

REVIEW = orjson.dumps({"kind": "AdmissionReview", "request": {"uid": "u-1"}})
TARGET = Target("https://127.0.0.1:1/validate?timeout=5s", REVIEW)


def answer(status: int = 200, **response: object) -> bytes:
    body = orjson.dumps({"response": {"uid": "u-1", "allowed": True, **response}})
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@given(st.lists(st.floats(0, 1e3), min_size=1))
def test_a_percentile_is_the_least_latency_that_its_share_does_not_exceed(latencies_s: list[float]) -> None:
    found = percentiles_ms(latencies_s)
    in_ms = [latency_s * 1000 for latency_s in latencies_s]
    for name, share in PERCENTILES.items():
        assert found[name] in in_ms
        assert sum(latency <= found[name] for latency in in_ms) >= share * len(in_ms)
        assert sum(latency < found[name] for latency in in_ms) < share * len(in_ms)


def test_without_latencies_there_are_no_percentiles() -> None:
    assert percentiles_ms([]) == {}


@pytest.mark.parametrize(("cpu_s", "warnings"), [(0.94, 0), (0.96, 1)])
def test_a_saturated_generator_is_reported(cpu_s: float, warnings: int) -> None:
    stopwatch = Stopwatch([])
    stopwatch.seconds, stopwatch.cpu_s = 1.0, {"load": cpu_s}
    assert len(stopwatch.warnings()) == warnings


def test_the_cpu_clock_is_that_of_the_process() -> None:
    before = time.process_time()
    assert before <= time.clock_gettime(cpu_clock(os.getpid())) <= time.process_time()
    with pytest.raises(ProcessLookupError):
        cpu_clock(2**22 + 1)  # above the largest process id of the kernel


@pytest.mark.parametrize(
    ("received", "error"),
    [
        (answer(404), "404 X: "),
        (answer(uid="u-2"), "expected the uid u-1, found u-2"),
        (answer(allowed=False), "expected allowed: True, found "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "not an AdmissionReview: []"),
    ],
)
def test_a_wrong_answer_is_an_error(received: bytes, error: str) -> None:
    answers = Answers(TARGET)
    assert answers.check(received) is False
    [found] = answers.errors
    assert error in found


@given(st.integers(0, len(answer()) - 1))
def test_an_incomplete_answer_is_neither_right_nor_wrong(end: int) -> None:
    answers = Answers(TARGET)
    assert answers.check(answer()[:end]) is None
    assert answers.check(answer()) is True
    assert answers.check(answer(warnings=["another"])) is False
    assert answers.errors == {"the body differs from that of the first answer": 1}


@given(st.lists(st.binary(min_size=1, max_size=40)), st.data())
def test_the_chunks_of_an_answer_are_joined(chunks: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    head = b"http/1.1 200 ok\r\ntransfer-encoding: chunked"
    assert whole_body(head, sent) == b"".join(chunks)
    assert whole_body(head, sent[: data.draw(st.integers(0, len(sent) - 1))]) is None


def test_an_inexact_answer_has_the_size_of_the_first() -> None:
    answers = Answers(Target(TARGET.url, REVIEW, is_exact=False))
    assert [answers.check(answer(patch=text)) for text in ("ab", "ba", "abc")] == [True, True, False]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class FakeConnection:
    """A connection whose answers the test releases."""

    def __init__(self) -> None:
        self.is_busy = False
        self.since = 0.0

    def send(self, since: float) -> None:
        assert not self.is_busy
        self.is_busy, self.since = True, since

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loadtest.load, "time", clock)
    return clock


@given(
    delays_ms=st.lists(st.integers(0, 50), min_size=1, max_size=40),
    width=st.integers(1, 4),
    lost=st.integers(0, 40),
)
def test_every_due_review_is_answered_or_an_error_and_is_timed_from_when_it_was_due(
    delays_ms: list[int], width: int, lost: int
) -> None:
    """One review a millisecond; *lost* is the number of the review whose connection breaks."""

    async def run(clock: Clock) -> None:
        loop = OpenLoop(TARGET, 1000.0, 0.0, len(delays_ms) / 1000)
        connections = [FakeConnection() for _ in range(width)]
        loop.begin([cast("Connection", connection) for connection in connections], 0.0)
        answered: list[float] = []
        ends: dict[FakeConnection, int] = {}
        sent = 0
        for ms in range(5000):
            clock.now = ms / 1000 + 1e-7
            loop.tick()
            for connection in connections:
                if connection.is_busy and connection not in ends:
                    ends[connection] = ms + delays_ms[sent]
                    sent += 1
                if ends.get(connection) != ms:
                    continue
                del ends[connection]
                due = connection.since
                if len(answered) == lost:
                    loop.on_lost(cast("Connection", connection), "connection lost")
                    connections.remove(connection)
                    break
                connection.is_busy = False
                answered.append(clock.now - due)
                loop.on_answer(cast("Connection", connection), clock.now, is_right=True)
            if loop.is_over.is_set():
                break
        loop.close()
        assert list(loop.latencies_s) == answered
        assert loop.reviews == len(answered)
        missing = sum(number for text, number in loop.answers.errors.items() if text.startswith("no answer"))
        assert len(answered) + missing == len(delays_ms)
        assert len(loop.late_s) <= len(delays_ms)

    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loadtest.load, "time", clock)
        asyncio.run(run(clock))


def test_a_stall_delays_all_reviews_that_were_due_meanwhile(clock: Clock) -> None:
    """One connection, a review every 10 ms, and no answer for a second: a closed loop has one slow answer."""

    async def run() -> list[float]:
        loop = OpenLoop(TARGET, 100.0, 0.0, 1.0)
        connection = FakeConnection()
        loop.begin([cast("Connection", connection)], 0.0)
        loop.tick()
        clock.now = 1.0
        while connection.is_busy:
            connection.is_busy = False
            loop.on_answer(cast("Connection", connection), clock.now, is_right=True)
        return list(loop.latencies_s)

    assert asyncio.run(run()) == pytest.approx([1.0 - number / 100 for number in range(100)])


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


def test_an_open_loop_and_new_connections_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        loadtest.load.main(["https://127.0.0.1:1/validate", "review.json", "--rate", "5", "--fresh"])
    assert "--rate is an open loop and --fresh a closed loop" in capsys.readouterr().err

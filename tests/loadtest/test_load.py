"""The measurement of a load: percentiles, CPU clocks, and the check of answers."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loadtest.load
from loadtest.http_client import Answer
from loadtest.load import Target, measure_closed, measure_open
from loadtest.measurement import PERCENTILES, Stopwatch, cpu_clock, percentiles_ms
from tests.loadtest.test_generator import Server, Step, virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.measurement import Measurement

REVIEW = orjson.dumps({"kind": "AdmissionReview", "request": {"uid": "u-1"}})
URL = "https://127.0.0.1:1/validate?timeout=5s"


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


def answer(status: int = 200, **response: object) -> Answer:
    members = {"uid": "u-1", "allowed": True, **response}
    return Answer(b"HTTP/1.1 %d X" % status, orjson.dumps({"kind": "AdmissionReview", "response": members}))


@pytest.mark.parametrize(
    ("is_exact", "received", "errors"),
    [
        (True, [answer(), answer()], []),
        (True, [answer(404)], ["HTTP/1.1 404 X: {"]),
        (True, [answer(), answer(404)], ["HTTP/1.1 404 X: {"]),
        (True, [answer(uid="u-2")], ["expected the uid u-1, found u-2"]),
        (True, [answer(allowed=False)], ["denied, 0: "]),
        (True, [answer(patch="ab"), answer(patch="ba")], ["the body differs from that of the first answer"]),
        (False, [answer(patch="ab"), answer(patch="ba")], []),
        (
            False,
            [answer(patch="ab"), answer(patch="abc")],
            ["the body differs from that of the first answer"],
        ),
    ],
)
def test_a_wrong_answer_is_an_error(is_exact: bool, received: list[Answer], errors: list[str]) -> None:
    target = Target(URL, REVIEW, is_exact=is_exact)
    answers = target.answers()
    right = [answers.judge(target.requests()[0], one) for one in received]
    assert right.count(False) == len(errors)
    assert [text[: len(error)] for text, error in zip(answers.errors, errors, strict=True)] == errors


def test_requests_have_the_traceparent_and_uids_of_the_same_length() -> None:
    first, second = Target(URL, REVIEW, uids=2, traceparent="00-1").requests()
    assert first.data.startswith(b"POST /validate?timeout=5s HTTP/1.1\r\nHost: 127.0.0.1:1\r\n")
    for request in (first, second):
        head, _, body = request.data.partition(b"\r\n\r\n")
        assert b"\r\ntraceparent: 00-1\r\n" in head
        assert head.endswith(b"\r\nContent-Length: %d" % len(body))
        assert orjson.loads(body)["request"]["uid"] == request.uid
    assert second.uid != first.uid == "u-1"


def measured(steps: Sequence[Step], *, rate: float | None = None, is_fresh: bool = False) -> Measurement:
    """Measure a server that follows *steps* over two connections, for 0.5 s after 0.2 s, in virtual time."""
    found = []
    target = Target(URL, REVIEW)

    async def main() -> None:
        if rate is None:
            found.append(await measure_closed(target, 2, 0.2, 0.5, is_fresh=is_fresh))
        else:
            found.append(await measure_open(target, rate, 2, 0.2, 0.5))

    with (
        virtual_time(loadtest.load) as loop,
        mock.patch.object(loadtest.load, "client_tls", return_value=None),
    ):
        loop.network = Server(loop, steps)
        loop.run(main())
    return found[0]


RIGHT = b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%b" % (len(answer().body), answer().body)
NONE = "no answer 10 s after the last review was due"


@pytest.mark.parametrize(
    ("options", "steps", "reviews", "answered", "errors"),
    [
        # At 0.04, 0.08, …, 0.68 s; those at 0.72 s end after the window.
        ({}, [Step(0.04, (RIGHT,))], 24, 36, {}),
        ({"is_fresh": True}, [Step(0.04, (RIGHT,))], 24, 36, {}),
        ({"rate": 20.0}, [Step(0.01, (RIGHT,))], 10, 14, {}),
        # One of two connections is silent, and its review is missed.
        (
            {"rate": 20.0},
            [*[Step(0.01, (RIGHT,))] * 5, Step(sends=()), *[Step(0.01, (RIGHT,))] * 9],
            9,
            13,
            {NONE: 1},
        ),
        # Both are: of the reviews that were due none is forgotten.
        ({"rate": 20.0}, [*[Step(0.01, (RIGHT,))] * 5, *[Step(sends=())] * 9], 1, 5, {NONE: 9}),
        (
            {"rate": 20.0},
            [*[Step(0.01, (RIGHT,))] * 5, Step(sends=(), closes=True), *[Step(0.01, (RIGHT,))] * 9],
            *(9, 13, {"connection lost: the connection was closed": 1}),
        ),
    ],
)
def test_every_review_of_a_window_is_answered_or_an_error(
    options: dict[str, Any], steps: list[Step], reviews: int, answered: int, errors: dict[str, int]
) -> None:
    found = measured(steps, **options)
    assert (found.reviews, found.answered, found.errors) == (reviews, answered, errors)
    assert found.latencies_ms["p50"] == pytest.approx(steps[0].after_s * 1000)


def test_an_open_loop_and_new_connections_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        loadtest.load.main(["https://127.0.0.1:1/validate", "review.json", "--rate", "5", "--fresh"])
    assert "--rate is an open loop and --fresh a closed loop" in capsys.readouterr().err

"""What the load generator is asked for, and what becomes of what it prints."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from loadtest.cases import Load
from loadtest.servers import BenchError
from loadtest.windows import Timing, arguments, window
from tests.loadtest.build import a_window


def printed(reviews: int = 2000, **members: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "reviews": reviews,
        "seconds": 2.0,
        "latencies_ms": {"p50": 1.0, "p90": 2.0, "p99": 3.0, "max": 4.0},
        "cpu_s": {"11": 0.5, "12": 0.1, "13": 0.02, "load": 0.4},
        "errors": {},
    }
    return found | members


def test_cpu_is_divided_by_the_reviews_and_the_generator_is_nobodys() -> None:
    found = window("stream-4", ["11"], printed())
    assert (found.reviews_per_s, found.busy, found.p50_ms, found.p99_ms) == (1000.0, 0.25, 1.0, 3.0)
    assert found.front_us == pytest.approx(250.0)
    assert found.worker_us == pytest.approx(60.0)
    assert found.total_us == pytest.approx(310.0)


def test_the_processes_of_a_gateway_count_together() -> None:
    found = window("two-processes", ["11", "12"], printed())
    assert found.front_us == pytest.approx(300.0)
    assert found.worker_us == pytest.approx(10.0)
    assert found.busy == pytest.approx(0.3)


def test_what_the_generator_says_beyond_that_is_passed_over() -> None:
    assert window("floor", ["11"], printed(handshakes=3, weather="fine")) == window(
        "floor", ["11"], printed()
    )


def test_reviews_that_an_open_loop_owes_are_a_share_of_those_that_were_due() -> None:
    assert window("rate-50", ["11"], printed(intended=400, answered=390, unanswered=10)).lost == 0.025
    assert window("rate-50", ["11"], printed(intended=0, unanswered=0)).lost == 0.0


@pytest.mark.parametrize(("lost", "tail"), [(0.0, 4.0), (0.0099, 4.0), (0.01, inf), (0.5, inf)])
def test_a_percentile_that_fell_among_the_lost_is_not_known(lost: float, tail: float) -> None:
    assert a_window("rate-50", p50_ms=2.0, p99_ms=8.0, lost=lost).tail == tail


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (printed(errors={"HTTP/1.1 503 Service Unavailable: ": 3}), "stream-4: 3 times HTTP/1.1 503"),
        (printed(reviews=0, latencies_ms={}), "stream-4: no review was answered"),
    ],
)
def test_wrong_answers_end_the_benchmark(found: dict[str, Any], text: str) -> None:
    with pytest.raises(BenchError, match=text):
        window("stream-4", ["11"], found)


REVIEWS = {"pod": Path("small.json"), "large": Path("large.json")}


@pytest.mark.parametrize(
    ("load", "wanted", "unwanted"),
    [
        (Load(), "small.json --connections 64", ["--rate", "--fresh", "--resume"]),
        (Load(share=0.25), "--rate 250.0", ["--fresh"]),
        (Load(rate=5.0, review="large", connections=2), "large.json --connections 2", ["250"]),
        (Load(rate=5.0), "--rate 5.0", ["250"]),
        (Load(handshake="full"), "--fresh", ["--resume", "--rate"]),
        (Load(handshake="resumed"), "--fresh --resume", ["--rate"]),
    ],
)
def test_a_load_becomes_arguments_of_the_generator(load: Load, wanted: str, unwanted: list[str]) -> None:
    line = " ".join(arguments("https://127.0.0.1:1/x", load, 1000.0, Timing(0.5, 1.5), REVIEWS))
    assert line.startswith("https://127.0.0.1:1/x ")
    assert wanted in line
    assert "--warmup 0.5 --window 1.5" in line
    assert not [option for option in unwanted if option in line]

"""What the load generator is asked for, what becomes of what it prints, and the arithmetic of rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.cases import Load
from loadtest.launch import BenchError
from loadtest.windows import (
    Generator,
    Overrun,
    Timing,
    arguments,
    checked,
    in_flight,
    middle,
    must_resume,
    ratio,
    window,
)
from tests.loadtest.build import a_round, a_window


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


def test_what_was_sent_beside_is_in_flight_as_long_as_its_answers_take() -> None:
    def beside(p50_ms: float) -> dict[str, Any]:
        return printed(10, latencies_ms={"p50": p50_ms})

    assert in_flight(beside(40.0)) == pytest.approx(0.2)  # five a second
    assert in_flight(beside(400.0)) == 1.0


def test_a_case_of_resumed_sessions_has_to_resume_nine_of_ten() -> None:
    must_resume("floor-resumed", printed(handshakes=100, resumed=90))
    with pytest.raises(BenchError, match="floor-resumed: 89 of 100 handshakes resumed a session"):
        must_resume("floor-resumed", printed(handshakes=100, resumed=89))


@pytest.mark.slow
def test_a_generator_that_takes_longer_than_it_may_is_told_apart() -> None:
    unused = ["https://127.0.0.1:1/x", "nothing.json"]
    with pytest.raises(Overrun, match="stream-4: "), Generator("stream-4", unused) as generator:
        generator.result(0.0)
    with pytest.raises(BenchError, match="failed") as failed, Generator("stream-4", unused) as generator:
        generator.result(60.0)
    assert not isinstance(failed.value, Overrun)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (printed(errors={"HTTP/1.1 503 Service Unavailable: ": 3}), "stream-4: 3 times HTTP/1.1 503"),
        (printed(reviews=0, latencies_ms={}), "stream-4: no review was answered"),
    ],
)
def test_wrong_answers_end_the_benchmark(found: dict[str, Any], text: str) -> None:
    with pytest.raises(BenchError, match=text):
        checked("stream-4", found)


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


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = [
        a_round(floor=[10, 30], stream_4=60),  # 3
        a_round(floor=[40], stream_4=80),  # 2: a slower machine, and a better ratio
        a_round(floor=[10], stream_4=90),  # 9
    ]
    assert ratio("stream-4", "floor", rounds) == 3.0


def test_a_round_without_one_of_the_two_counts_for_nothing() -> None:
    rounds = [a_round(floor=10, stream_4=60), a_round(floor=10), a_round(stream_4=60)]
    assert ratio("stream-4", "floor", rounds) == 6.0
    with pytest.raises(ValueError, match="never measured in one round"):
        ratio("unary-4", "floor", rounds)


def test_the_two_sides_may_be_different_figures() -> None:
    rounds = [(a_window("stream-4", 30.0, worker_us=20.0), a_window("agnhost", 100.0, worker_us=1.0))]
    assert ratio("stream-4", "agnhost", rounds, "total_us", "front_us") == 0.5
    assert ratio("stream-4", "agnhost", rounds, "worker_us") == 20.0


@given(st.floats(0.01, 100.0), st.lists(st.floats(1.0, 1e4), min_size=1, max_size=5))
def test_a_machine_that_is_slower_by_a_factor_changes_no_ratio(factor: float, costs: list[float]) -> None:
    rounds = [a_round(floor=cost, stream_4=3 * cost + number) for number, cost in enumerate(costs)]
    slower = [
        a_round(floor=cost * factor, stream_4=(3 * cost + number) * factor)
        for number, cost in enumerate(costs)
    ]
    assert ratio("stream-4", "floor", slower) == pytest.approx(ratio("stream-4", "floor", rounds))


@given(st.lists(st.floats(1.0, 1e4), min_size=1, max_size=9))
def test_the_middle_has_as_many_windows_above_as_below(costs: list[float]) -> None:
    found = middle("stream-4", [a_round(stream_4=cost, floor=1) for cost in costs], "front_us")
    assert sum(cost < found for cost in costs) == sum(cost > found for cost in costs) or found in costs
    assert min(costs) <= found <= max(costs)


def test_what_was_never_measured_has_no_middle() -> None:
    with pytest.raises(ValueError, match="stream-4 was never measured"):
        middle("stream-4", [a_round(floor=1)], "front_us")

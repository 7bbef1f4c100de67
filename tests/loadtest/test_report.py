"""The arithmetic of the benchmark: rounds of windows to ratios, verdicts and a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.bench import parse, window
from loadtest.cases import CASES, FLOOR
from loadtest.load import Measurement, percentile
from loadtest.report import Window, criteria, drift, markdown, ratio, rows, table
from loadtest.servers import BenchError


def a_window(case: str, front_us: float, reviews_per_s: float = 1000.0) -> Window:
    return Window(case, reviews_per_s, front_us, worker_us=7.0, busy=0.5, p50_ms=1.25, p99_ms=9.875)


def a_round(floors: list[float], **others: float) -> tuple[Window, ...]:
    windows = [a_window("floor", front_us) for front_us in floors]
    return (*windows, *(a_window(name.replace("_", "-"), front_us) for name, front_us in others.items()))


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = [
        a_round([10, 30], stream_4=60),  # 3
        a_round([40], stream_4=80),  # 2: a slower machine, and a better ratio
        a_round([10], stream_4=90),  # 9
    ]
    assert ratio("stream-4", "floor", rounds) == 3.0


def test_a_round_without_one_of_the_two_counts_for_nothing() -> None:
    rounds = [a_round([10], stream_4=60), a_round([10]), a_round([], stream_4=60)]
    assert ratio("stream-4", "floor", rounds) == 6.0
    with pytest.raises(ValueError, match="never measured in one round"):
        ratio("unary-4", "floor", rounds)


@given(st.floats(0.01, 100.0), st.lists(st.floats(1.0, 1e4), min_size=1, max_size=5))
def test_a_machine_that_is_slower_by_a_factor_changes_no_ratio(factor: float, costs: list[float]) -> None:
    rounds = [a_round([cost], stream_4=3 * cost) for cost in costs]
    slower = [a_round([cost * factor], stream_4=3 * cost * factor) for cost in costs]
    assert ratio("stream-4", "floor", slower) == pytest.approx(ratio("stream-4", "floor", rounds))


@pytest.mark.parametrize(
    ("floor_us", "stream_us", "unary_us", "passed"),
    [
        (10.0, 35.0, 175.0, [True, True]),
        (10.0, 35.1, 175.5, [False, True]),
        (10.0, 35.0, 174.9, [True, False]),
        (10.0, 36.0, 36.0, [False, False]),
    ],
)
def test_the_acceptance_lines_pass_up_to_their_limits(
    floor_us: float, stream_us: float, unary_us: float, passed: list[bool]
) -> None:
    lines = criteria([a_round([floor_us], stream_4=stream_us, unary_4=unary_us)])
    assert [line.passed for line in lines] == passed
    assert [str(line)[:5] for line in lines] == ["pass:" if ok else "FAIL:" for ok in passed]


def test_the_acceptance_lines_say_what_was_found_and_what_is_asked_for() -> None:
    lines = criteria([a_round([10], stream_4=31, unary_4=217)])
    assert [line.text for line in lines] == [
        "4 policies on one worker by stream: 3.10 times the floor (at most 3.5)",
        "stream instead of unary: 7.00 times less (at least 5)",
    ]


def test_a_line_of_which_one_side_was_not_measured_is_left_out() -> None:
    assert criteria([a_round([10], stream_1=31, unary_4=217)]) == []
    assert len(criteria([a_round([10], stream_4=31)])) == 1


def test_rows_are_in_the_order_of_the_cases_with_medians() -> None:
    rounds = [a_round([10, 12], unary_4=500, stream_4=30), a_round([11], stream_4=44, unary_4=500)]
    found = rows(rounds)
    assert [row.case.name for row in found] == ["floor", "stream-4", "unary-4"]
    assert [row.front_us for row in found] == [11, 37, 500]
    assert found[0].times_floor == 1.0


def test_the_table_is_markdown_with_columns_of_equal_width() -> None:
    lines = table(rows([a_round([10.04], stream_4=31.25)])).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == [
        *("case", "reviews/s", "gateway CPU, us", "times the floor", "worker CPU, us"),
        *("gateway busy", "median ms", "p99 ms"),
    ]
    assert set(lines[1]) == set("|-: ")
    assert [cell.strip() for cell in lines[3].strip("|").split("|")] == [
        *(
            "4 validating policies on one worker, stream",
            "1,000",
            "31.2",
            "3.11",
            "7.0",
            "50%",
            "1.25",
            "9.88",
        ),
    ]


def test_drift_tells_first_last_and_the_range_of_the_floor() -> None:
    rounds = [a_round([10, 14], stream_4=1), a_round([9, 11], stream_4=1)]
    assert drift(rounds) == "floor, 4 times: 10.0 us first, 11.0 us last, 9.0 to 14.0 us in all"


def test_the_file_holds_how_where_table_and_verdicts() -> None:
    rounds = [a_round([10], stream_4=31, unary_4=217)]
    text = markdown(rounds, "so it was done", ["a machine", "some versions"])
    assert text.startswith("# Benchmark\n\n- so it was done\n- a machine\n- some versions\n\n| case ")
    assert "- pass: 4 policies on one worker by stream: 3.10 times the floor (at most 3.5)\n" in text
    assert text.endswith("us in all\n")


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_the_least_value_that_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < max(share * len(values), 1)


def measurement(reviews: int = 2000, errors: dict[str, int] | None = None) -> Measurement:
    latencies_ms = {"p50": 1.0, "p90": 2.0, "p99": 3.0, "max": 4.0}
    cpu_s = {"11": 0.5, "12": 0.1, "13": 0.02, "load": 0.4}
    return Measurement(reviews, 2.0, latencies_ms, cpu_s, errors or {})


def test_cpu_is_divided_by_the_reviews_and_the_generator_is_nobodys() -> None:
    found = window("stream-4", "11", measurement())
    assert (found.reviews_per_s, found.busy, found.p50_ms, found.p99_ms) == (1000.0, 0.25, 1.0, 3.0)
    assert found.front_us == pytest.approx(250.0)
    assert found.worker_us == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (measurement(errors={"HTTP/1.1 503 Service Unavailable: ": 3}), "stream-4: 3 times HTTP/1.1 503"),
        (measurement(reviews=0), "stream-4: no review was answered"),
    ],
)
def test_wrong_answers_end_the_benchmark(found: Measurement, text: str) -> None:
    with pytest.raises(BenchError, match=text):
        window("stream-4", "11", found)


def test_a_round_measures_every_case_and_the_floor_before_between_and_after() -> None:
    plan, _ = parse([])
    for number in (0, 1):
        order = plan.order(number)
        assert {case.name for case in order} == {case.name for case in CASES}
        assert [place for place, case in enumerate(order) if case is FLOOR] == [0, 5, 9]
    assert plan.order(1) != plan.order(0)


def test_only_the_named_cases_and_the_floor_are_measured() -> None:
    plan, output = parse(["--cases", "stream-4", "--quick", "--output", "x.md"])
    assert [case.name for case in plan.order(0)] == ["floor", "stream-4", "floor"]
    assert str(output) == "x.md"

"""The acceptance lines: where their limits are, and what becomes of those that cannot be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadtest.cases import CASES
from loadtest.lines import CORES_FOR_TWO, DIFFERENCES, LINES, SDK, Found, Result, judge
from tests.loadtest.build import a_round, a_window

if TYPE_CHECKING:
    from loadtest.windows import Round, Window


def only(results: list[Result], words: str) -> Result:
    """Return the one result whose text has *words*."""
    (result,) = [result for result in results if words in result.line.text]
    return result


def rates(**cases: float) -> Round:
    return tuple(
        a_window(name.replace("_", "-"), reviews_per_s=rate, busy=1.0) for name, rate in cases.items()
    )


def latencies(**cases: tuple[float, float]) -> Round:
    return tuple(
        a_window(name.replace("_", "-"), p50_ms=p50_ms, p99_ms=p99_ms)
        for name, (p50_ms, p99_ms) in cases.items()
    )


def both(case: Window, other: Window) -> Round:
    return case, other


@pytest.mark.parametrize(
    ("words", "within", "beyond"),
    [
        ("1 policy: CPU, times", a_round(floor=100, stream_1=200), a_round(floor=100, stream_1=200.1)),
        ("4 policies on one", a_round(floor=100, stream_4=250), a_round(floor=100, stream_4=250.1)),
        ("16 policies on four", a_round(floor=100, stream_16=600), a_round(floor=100, stream_16=600.1)),
        (
            "one Go policy",  # the worker costs 7
            a_round(stream_4=92.9, agnhost=100),
            a_round(stream_4=93, agnhost=100),
        ),
        (
            "times the plain grpc.aio",
            rates(stream_4=8000, baseline_4=1000),
            rates(stream_4=7999, baseline_4=1000),
        ),
        ("of the floor's", rates(stream_4=10_000, floor=30_000), rates(stream_4=9_999, floor=30_000)),
        (
            "median, times that of 1",
            latencies(alone_1=(1.0, 9.0), alone_4=(1.3, 4.0)),
            latencies(alone_1=(1.0, 9.0), alone_4=(1.31, 4.0)),
        ),
        (
            "one connection, 4 policies: p99",
            latencies(alone_4=(2.0, 8.0)),
            latencies(alone_4=(2.0, 8.1)),
        ),
        (
            "8 mutating policies of 5 ms",
            latencies(sleeps_1=(6.0, 9.0), sleeps_8=(9.0, 99.0)),
            latencies(sleeps_1=(6.0, 9.0), sleeps_8=(9.1, 9.2)),
        ),
        (
            "the third changes",
            latencies(sleeps_1=(6.0, 9.0), third_changes=(18.0, 99.0)),
            latencies(sleeps_1=(6.0, 9.0), third_changes=(18.1, 18.2)),
        ),
        ("open loop at half", latencies(rate_50=(2.0, 10.0)), latencies(rate_50=(2.0, 10.1))),
        (
            "a full handshake",
            a_round(floor_fresh=100, stream_4_fresh=120),
            a_round(floor_fresh=100, stream_4_fresh=120.1),
        ),
        (
            "1 MiB, 4 policies",
            a_round(floor_large=100, stream_4_large=250),
            a_round(floor_large=100, stream_4_large=251),
        ),
        (
            "6 KB beside 1 MiB",
            latencies(pods=(1.0, 2.0), pods_beside_large=(1.0, 6.0)),
            latencies(pods=(1.0, 2.0), pods_beside_large=(1.0, 6.1)),
        ),
        (
            "two processes",
            rates(two_processes=1700, one_process=1000),
            rates(two_processes=1699, one_process=1000),
        ),
        ("4 of 1,000", a_round(match_4=100, match_by_rules=115), a_round(match_4=100, match_by_rules=115.1)),
    ],
)
def test_a_line_passes_up_to_its_limit_and_fails_beyond(words: str, within: Round, beyond: Round) -> None:
    assert only(judge(LINES, Found([within], cores=64)), words).verdict == "pass"
    assert only(judge(LINES, Found([beyond], cores=64)), words).verdict == "FAIL"


@pytest.mark.parametrize(("name", "within", "beyond"), [(DIFFERENCES, 0.0, 1.0), (SDK, 2.0, 2.01)])
def test_numbers_are_judged_like_windows(name: str, within: float, beyond: float) -> None:
    assert [result.verdict for result in judge(LINES, Found([], {name: within}))] == ["pass"]
    assert [result.verdict for result in judge(LINES, Found([], {name: beyond}))] == ["FAIL"]


@pytest.mark.parametrize(("busy", "verdict"), [(0.94, "not judged"), (0.95, "FAIL"), (1.0, "FAIL")])
def test_the_rate_of_a_floor_that_was_idle_judges_nothing(busy: float, verdict: str) -> None:
    round_ = both(a_window("stream-4", reviews_per_s=1.0), a_window("floor", reviews_per_s=1000.0, busy=busy))
    result = only(judge(LINES, Found([round_])), "of the floor's")
    assert (result.verdict, result.found) == (verdict, 0.001)
    assert result.remark == (
        "the floor used 94% of a core, so something else limited it" if verdict == "not judged" else ""
    )


def test_the_line_of_large_reviews_says_how_long_they_were_there() -> None:
    round_ = both(a_window("pods-beside-large", beside=0.234), a_window("pods"))
    result = only(judge(LINES, Found([round_])), "6 KB beside 1 MiB")
    assert (result.verdict, result.remark) == ("pass", "1 MiB in flight 23% of the time")


def test_a_line_of_which_one_side_was_not_measured_is_left_out() -> None:
    assert judge(LINES, Found([a_round(floor=10, mutate_4=31)])) == []
    assert [result.line.needs for result in judge(LINES, Found([a_round(floor=10, stream_1=20)]))] == [
        ("stream-1", "floor")
    ]


def test_what_this_machine_cannot_start_is_not_judged_and_says_why() -> None:
    found = Found([a_round(floor=10, stream_4=20)], missing={"agnhost": "not built"})
    result = only(judge(LINES, found), "one Go policy")
    assert (result.verdict, result.found, result.remark) == ("not judged", None, "agnhost: not built")


@pytest.mark.parametrize(
    ("cores", "verdict"), [(CORES_FOR_TWO - 1, "not judged"), (CORES_FOR_TWO, "FAIL"), (64, "FAIL")]
)
def test_two_processes_are_judged_where_there_are_cores_for_them(cores: int, verdict: str) -> None:
    rounds = [rates(two_processes=1100, one_process=1000)]
    (result,) = judge(LINES, Found(rounds, cores=cores))
    assert (result.verdict, result.found) == (verdict, 1.1)
    assert bool(result.remark) == (verdict == "not judged")


def test_lines_need_only_what_there_is_and_every_target_but_memory_has_one() -> None:
    assert {name for line in LINES for name in line.needs} <= {*CASES, DIFFERENCES, SDK}
    assert {line.target for line in LINES} == {*"123456789", "SDK"}

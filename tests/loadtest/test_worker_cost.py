"""The cost of workers: the arithmetic, and short runs against real workers."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from loadtest.servers import BenchError
from loadtest.worker_cost import (
    LANGUAGE_CASES,
    LanguageCosts,
    PythonCost,
    Timing,
    measure_languages,
    measure_python,
    summary,
)
from tests.languages.toolchains import PYTHON, Tool, named

TINY = Timing(rounds=2, window_s=0.02, warmup_s=0.01)
OTHER = replace(PYTHON, name="go", title="Go")


def cells(table: object) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in str(table).splitlines()]


def test_a_parse_is_compared_within_each_round_and_medians_count() -> None:
    rounds = [
        (10.0, (300.0, 100.0, 15.0, 30.0)),
        (20.0, (310.0, 90.0, 40.0, 40.0)),
        (40.0, (290.0, 95.0, 44.0, 50.0)),
    ]
    cost = summary(rounds)
    assert cost == PythonCost(20.0, (300.0, 95.0, 40.0, 40.0), times_parse=1.5)
    assert cells(cost)[2][1:] == ["20.0", "1.00", "20.0", "1.00"]
    assert cells(cost)[-1][1:] == ["40.0", "2.00", "160.0", "8.00"]


def test_languages_are_compared_within_each_round_and_medians_count() -> None:
    found = [(100.0, 50.0), (200.0, 40.0), (400.0, 240.0)]
    costs = LanguageCosts([{case: {"python": p, "go": g} for case in LANGUAGE_CASES} for p, g in found])
    assert [costs.times_python(LANGUAGE_CASES[0], name) for name in costs.names] == [1.0, 0.5]
    assert cells(costs)[0][1:] == ["Python", "Go"]
    assert cells(costs)[2][1:] == ["200.0", "50.0 (0.50)"]


def test_a_language_that_cannot_start_is_left_out_and_python_alone_is_not_measured() -> None:
    lacking = replace(named("java"), tools=(Tool("no-such-program", (1,)),))
    expected = LanguageCosts((), {"java": "no-such-program is not installed"})
    assert measure_languages(TINY, [PYTHON, lacking]) == expected


@pytest.mark.slow
def test_the_python_worker_is_measured() -> None:
    cost = measure_python(0.4)
    # Each of these reviews parses its request and does more.
    assert 0 < cost.parse_us < cost.review_us[0]


@pytest.mark.slow
def test_workers_are_measured_beside_each_other() -> None:
    costs = measure_languages(TINY, [PYTHON, OTHER])
    assert (len(costs.rounds), costs.names, costs.missing) == (2, ["python", "go"], {})
    assert all(us > 0 for round_ in costs.rounds for found in round_.values() for us in found.values())


DIFFERENT = """
from admission_gateway_worker.samples import server

def always_pull_images(review):
    if review.object:
        review.object["spec"]["containers"][0]["imagePullPolicy"] = "Never"

del server._policies["always-pull-images"]
server.policy("always-pull-images", mutating=True)(always_pull_images)
server.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (DIFFERENT, r"^go: wrong answer: (?s:.*)Never"),
        ("raise SystemExit('no')", "the worker in go did not start"),
    ],
)
def test_a_worker_that_fails_or_differs_from_python_ends_the_measurement(program: str, problem: str) -> None:
    with pytest.raises(BenchError, match=problem):
        measure_languages(TINY, [PYTHON, replace(OTHER, run=(sys.executable, "-c", program))])

"""What the worker SDK costs: the arithmetic, and one short run against a real worker."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import uvloop

from loadtest import sdk_cost
from loadtest.sdk_cost import CASES, REVIEW, SdkCost, main, run, summary, worker
from loadtest.sdk_worker import POLICIES, labels_name, make_server
from loadtest.servers import BenchError
from workers import Denied, Review

REQUEST = orjson.dumps(orjson.loads(REVIEW.read_bytes())["request"])


def test_ratios_are_formed_within_a_round_and_medians_counted() -> None:
    rounds = [
        (10.0, 300.0, 100.0, 30.0, 15.0),
        (20.0, 310.0, 90.0, 40.0, 40.0),
        (40.0, 290.0, 95.0, 50.0, 44.0),
    ]
    assert summary(rounds) == SdkCost(20.0, 300.0, 95.0, 40.0, 40.0, times_parse=1.5)


@pytest.mark.parametrize(("times", "is_met"), [(0.9, True), (2.0, True), (2.01, False)])
def test_the_target_is_twice_the_parse_at_full_load(times: float, is_met: bool) -> None:
    cost = SdkCost(20.0, 300.0, 95.0, 40.0, 20.0 * times, times)
    assert cost.is_met is is_met
    assert str(cost).splitlines()[-1].startswith("pass: " if is_met else "FAIL: ")
    assert f"{times:.2f} times parsing its request (at most 2)" in str(cost)


def test_the_table_has_a_row_for_each_case_by_review_and_by_request() -> None:
    lines = str(SdkCost(20.0, 300.0, 95.0, 40.0, 30.0, 1.5)).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:7]]
    assert [row[0] for row in cells] == ["orjson.loads", *(case.title for case in CASES)]
    assert cells[-1][1:] == ["30.0", "1.50", "120.0"]
    assert len({len(line) for line in lines[:7]}) == 1


def test_the_policies_read_labels() -> None:
    policies = make_server().policies
    assert len(policies) == POLICIES + 1
    policies[labels_name(0)].function(Review(REQUEST))
    with pytest.raises(Denied):
        policies[labels_name(0)].function(Review(b'{"object": {"metadata": {"labels": {}}}}'))


@pytest.mark.slow
def test_a_worker_is_measured_and_stopped(tmp_path: Path) -> None:
    with worker(tmp_path) as (address, pid):
        cost = uvloop.run(run(address, pid, REQUEST, 0.4))
    assert min(cost.parse_us, cost.low_1_us, cost.low_4_us, cost.full_1_us, cost.full_4_us) > 0
    # Each of these reviews parses its request, and has more to do.
    assert cost.low_1_us > cost.parse_us
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_a_review_that_is_not_allowed_ends_the_measurement(tmp_path: Path) -> None:
    request = b'{"object": {"metadata": {"labels": {}}}}'
    with (
        worker(tmp_path) as (address, pid),
        pytest.raises(BenchError, match="there are no labels"),
    ):
        uvloop.run(run(address, pid, request, 0.4))


@pytest.mark.slow
def test_a_worker_that_logged_something_was_not_doing_what_is_measured(tmp_path: Path) -> None:
    request = b'{"object": {"metadata": {}}}'
    with (
        pytest.raises(BenchError, match=r"logged .*(?s:.*)KeyError: 'labels'"),
        worker(tmp_path) as (address, pid),
        pytest.raises(BenchError, match="not allowed"),
    ):
        uvloop.run(run(address, pid, request, 0.4))


@pytest.mark.parametrize(("times", "status"), [(1.0, 0), (3.0, 1)])
def test_the_exit_status_says_whether_the_target_is_met(
    times: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = SdkCost(20.0, 300.0, 95.0, 40.0, 20.0 * times, times)
    monkeypatch.setattr(sdk_cost, "measure", lambda seconds: cost)
    assert main([]) == status
    assert capsys.readouterr().out == f"{cost}\n"


def test_what_went_wrong_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seconds: float) -> SdkCost:
        raise BenchError("the worker ended")

    monkeypatch.setattr(sdk_cost, "measure", broken)
    assert main([]) == 1
    assert capsys.readouterr().err == "loadtest.sdk_cost: the worker ended\n"

"""What the worker SDK costs: the arithmetic, and one short run against a real worker."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import orjson
import pytest
import uvloop

from loadtest import sdk_client, sdk_cost
from loadtest.launch import BenchError, launched
from loadtest.reviews import POD
from loadtest.sdk_cost import CASES, SdkCost, SeemedSlow, heard, main, run, summary, worker
from loadtest.sdk_worker import POLICIES, labels_name, make_server
from workers import Denied, Review

REQUEST = orjson.dumps(orjson.loads(POD.read_bytes())["request"])


def test_ratios_are_formed_within_a_round_and_medians_counted() -> None:
    rounds = [
        (10.0, 300.0, 100.0, 15.0, 30.0),
        (20.0, 310.0, 90.0, 40.0, 40.0),
        (40.0, 290.0, 95.0, 44.0, 50.0),
    ]
    assert summary(rounds) == SdkCost(20.0, 300.0, 95.0, 40.0, 40.0, times_parse=1.5)


@pytest.mark.parametrize(("times", "is_met"), [(0.9, True), (2.0, True), (2.01, False)])
def test_the_target_is_twice_the_parse_at_full_load(times: float, is_met: bool) -> None:
    cost = SdkCost(20.0, 300.0, 95.0, 20.0 * times, 30.0, times)
    assert cost.is_met is is_met
    assert cost.verdict.startswith("pass: " if is_met else "FAIL: ")
    assert cost.verdict.endswith(f"{times:.2f} times parsing its request (at most 2)")
    assert cost.verdict not in str(cost)


def test_the_table_has_a_row_for_each_case_by_review_and_by_request() -> None:
    lines = str(SdkCost(20.0, 300.0, 95.0, 40.0, 30.0, 1.5)).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:7]]
    assert [row[0] for row in cells] == ["orjson.loads", *(case.title for case in CASES)]
    assert cells[-2][1:] == ["40.0", "2.00", "40.0", "2.00"]
    assert cells[-1][1:] == ["30.0", "1.50", "120.0", "6.00"]
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
        pytest.raises(BenchError, match="not answered as it should be"),
    ):
        uvloop.run(run(address, pid, request, 0.4))


@pytest.mark.slow
def test_a_worker_that_hangs_ends_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_client, "ANSWER_WITHIN_S", 0.2)
    with worker(tmp_path) as (address, pid):
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(BenchError, match=r"neither read nor answered for 0\.2 s"):
                uvloop.run(run(address, pid, REQUEST, 0.4))
        finally:
            os.kill(pid, signal.SIGCONT)


SLOW_LINE = (
    'worker: policy "labels-0" held up the event loop for more than 5 ms; it runs in a thread from now on'
)


@pytest.mark.parametrize(
    ("said", "seemed_slow"),
    [
        ([SLOW_LINE], True),
        ([SLOW_LINE, SLOW_LINE.replace("-0", "-1")], True),
        (["worker: the stream broke"], False),
        ([SLOW_LINE, "Traceback (most recent call last):"], False),
        ([], None),
    ],
)
def test_only_a_worker_that_logged_slowness_and_nothing_else_seemed_slow(
    said: list[str], seemed_slow: bool | None
) -> None:
    log = "\n".join(["worker: 5 policies on 127.0.0.1:1", *said]) + "\n"
    if seemed_slow is None:
        heard(log)
        return
    with pytest.raises(BenchError) as raised:
        heard(log)
    assert isinstance(raised.value, SeemedSlow) is seemed_slow


ONCE_SLOW = """\
import time
from loadtest import sdk_worker

def has_labels(review, waits=[0.1]):
    time.sleep(waits.pop() if waits else 0)

sdk_worker.has_labels = has_labels
sdk_worker.make_server().main()
"""


@pytest.mark.slow
def test_a_policy_that_holds_up_the_worker_makes_it_seem_slow(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", ONCE_SLOW, "--listen=127.0.0.1:0", "--grace=0"]
    with launched("the worker", command, log) as child:
        uvloop.run(run(child.says(r"policies on (\S+:\d+)"), child.pid, REQUEST, 0.4))
        with pytest.raises(SeemedSlow, match='policy "labels-0" held up'):
            heard(log.read_text())


@pytest.mark.parametrize(("times", "status"), [(1.0, 0), (3.0, 1)])
def test_the_exit_status_says_whether_the_target_is_met(
    times: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = SdkCost(20.0, 300.0, 95.0, 20.0 * times, 30.0, times)
    monkeypatch.setattr(sdk_cost, "measure", lambda seconds: cost)
    assert main([]) == status
    assert capsys.readouterr().out == f"{cost}\n\n{cost.verdict}\n"


def test_what_went_wrong_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seconds: float) -> SdkCost:
        raise BenchError("the worker ended")

    monkeypatch.setattr(sdk_cost, "measure", broken)
    assert main([]) == 1
    assert capsys.readouterr().err == "loadtest.sdk_cost: the worker ended\n"

"""The benchmark as a command, with real front ends and very short windows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from loadtest import agnhost, bench, sdk_cost
from loadtest.bench import main
from loadtest.launch import BenchError
from loadtest.lines import Line
from loadtest.plan import parse
from loadtest.sdk_cost import SdkCost, SeemedSlow

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TINY = ("--rounds", "1", "--window", "0.2", "--warmup", "0.1", "--connections", "4")


@pytest.mark.parametrize(("limit", "status"), [(0.0, 0), (1e9, 1)])
def test_the_status_says_whether_a_line_failed(
    limit: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line("0", "any figure", ("floor",), lambda _: 1.0, "at least", limit)
    monkeypatch.setattr(bench, "LINES", [line])
    assert main(["--only", "floor", *TINY, "--output", str(tmp_path / "found.md")]) == status
    assert f"| {'FAIL' if status else 'pass'}" in (tmp_path / "found.md").read_text()


def test_open_loops_and_churn_go_through_the_generator_and_rates_into_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.md"
    warm = ("--warmup", "0.4")  # for the first handshakes, which resume nothing
    cases = ("rate-50", "pods", "pods-beside-large", "floor-resumed")
    main(["--only", *cases, *TINY, *warm, "--output", str(output)])
    captured = capsys.readouterr()
    assert "loadtest.bench:" not in captured.err  # nothing was answered wrongly
    assert "open loop at half of the highest rate" in captured.out
    text = output.read_text()
    assert "4 connections where 64 are named" in text
    assert re.search(r": 1 MiB in flight [1-9]\d*% of the time", text)
    assert all(
        title in text for title in ("| 50 % of it, open loop ", "| floor that gives tickets, resumed ")
    )
    assert "(found-latency-by-rate.svg)" in text
    ET.parse(tmp_path / "found-latency-by-rate.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found-latency-by-rate.svg", "found.md"]


def test_without_agnhost_its_line_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agnhost, "obtain", lambda: None)
    output = tmp_path / "found.md"
    main(["--only", "stream-4", "agnhost", *TINY, "--output", str(output)])
    assert "not judged: agnhost: not built, see loadtest.agnhost" in output.read_text()


@pytest.mark.parametrize(
    ("error", "status"),
    [(SeemedSlow("it seemed slow"), 0), (BenchError("the worker ended with status 1"), 1)],
)
def test_the_python_worker_is_not_judged_where_it_seemed_slow_and_nothing_else_is_forgiven(
    error: BenchError,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(seconds: float) -> SdkCost:
        raise error

    monkeypatch.setattr(sdk_cost, "measure", broken)
    output = tmp_path / "found.md"
    assert main(["--only", "sdk", "--output", str(output)]) == status
    captured = capsys.readouterr()
    assert ("not judged: sdk: it seemed slow" in captured.out) is (status == 0)
    assert ("loadtest.bench: the worker ended with status 1" in captured.err) is (status == 1)
    assert output.exists() is (status == 0)


def test_the_cost_of_the_python_worker_is_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = SdkCost(20.0, 300.0, 95.0, 41.0, 25.0, 2.05)
    monkeypatch.setattr(sdk_cost, "measure", lambda seconds: cost)
    assert main(["--only", "sdk", "--output", str(tmp_path / "found.md")]) == 1
    printed = capsys.readouterr().out
    assert str(cost) in printed
    assert printed.count("FAIL") == 1


def test_a_wrong_answer_ends_it_without_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, output = parse(["--only", "floor", *TINY, "--output", str(tmp_path / "found.md")])
    (group,) = plan.groups
    lost = replace(group, reference=replace(group.reference, path="/nowhere"))
    monkeypatch.setattr(bench, "parse", lambda _: (replace(plan, groups=(lost,)), output))
    assert main() == 1
    assert "times HTTP/1.1 404 Not Found" in capsys.readouterr().err
    assert not output.exists()

"""Memory over many reviews: what growth is, and a short run."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import soak
from loadtest.lines import Found, judge
from loadtest.soak import main, missing
from loadtest.soak_memory import Sample, growth, lines, numbers, peak_mib, resident_mib

if TYPE_CHECKING:
    from pathlib import Path


def samples(*gateway_mib: float) -> list[Sample]:
    """Return samples a thousand reviews apart."""
    return [Sample(1000 * number, mib, 40.0) for number, mib in enumerate(gateway_mib)]


def test_growth_is_that_of_the_last_half() -> None:
    assert growth(samples(60, 90, 100, 101, 103)) == pytest.approx(0.03)
    assert growth(samples(60, 90, 100, 120, 99)) == pytest.approx(-0.01)


def test_one_sample_decides_nothing_and_a_steady_rise_shows() -> None:
    flat = [100.0] * 10
    assert growth(samples(*flat, *flat[1:], 104.0)) == 0.0
    assert growth(samples(*(100 + number for number in range(21)))) == pytest.approx(10 / 110)


@given(st.lists(st.floats(1, 1e3), min_size=2, max_size=20))
def test_what_came_before_the_last_half_does_not_count(before: list[float]) -> None:
    last = [100.0] * (len(before) + 2)
    assert growth(samples(*before, *last)) == 0.0


def test_too_few_samples_say_nothing() -> None:
    assert numbers(samples(60, 61, 62)) == {}
    with pytest.raises(ValueError, match="3 samples"):
        growth(samples(60, 61, 62))


@pytest.mark.parametrize(
    ("mib", "verdicts"),
    [
        ((60, 100, 100, 101, 101.9), ["pass", "pass"]),
        ((60, 100, 100, 101, 102.1), ["pass", "FAIL"]),
        ((60, 121, 110, 110, 110), ["FAIL", "pass"]),  # the most that there was counts
        ((60, 90, 120, 120, 120), ["pass", "pass"]),
    ],
)
def test_memory_is_judged_by_its_height_and_by_its_growth(
    mib: tuple[float, ...], verdicts: list[str]
) -> None:
    found = Found((), numbers(samples(*mib)))
    assert [result.verdict for result in judge(lines(), found)] == verdicts


def test_the_resident_memory_of_this_process_is_what_its_pages_say() -> None:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - procfs
        pages = int(file.read().split()[1])
    assert resident_mib(os.getpid()) == pytest.approx(pages * os.sysconf("SC_PAGESIZE") / 2**20, rel=0.1)
    assert peak_mib(os.getpid()) >= resident_mib(os.getpid())
    with pytest.raises(OSError, match="No such"):
        resident_mib(2**22 + 1)


@pytest.mark.slow
def test_a_short_run_samples_after_each_part_and_writes_report_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "PARTS", 4)
    output = tmp_path / "found-soak.md"
    main(["--count", "20", "--output", str(output)])  # its status says whether targets are met
    text = output.read_text()
    assert text.startswith("# Memory\n\n- 20 reviews of ")
    assert [f"| {done:>7} |" in text for done in (0, 5, 10, 15, 20)] == [True] * 5
    assert "its growth over the last half" in capsys.readouterr().out
    ET.parse(tmp_path / "found-soak-memory.svg")


@pytest.mark.slow
def test_a_run_that_its_limit_ends_in_the_middle_of_a_part_is_reported_and_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found-soak.md"
    assert main(["--count", "2000000000", "--limit", "2", "--output", str(output)]) == 1
    text = output.read_text()
    assert text.startswith("# Memory\n\n- 0 reviews of ")
    assert text.count("not judged: ") == 2
    assert "0 of 2,000,000,000 reviews within 2 s" in text
    assert "pass" not in capsys.readouterr().out
    ET.parse(tmp_path / "found-soak-memory.svg")


def test_reviews_that_are_missing_are_the_reason_not_to_judge() -> None:
    options = Namespace(count=1000, limit=5.0)
    assert missing(1000, options) == {}
    found = Found((), numbers(samples(60, 100, 100, 101)), missing(999, options))
    assert [(result.verdict, result.remark) for result in judge(lines(), found)] == [
        ("not judged", "mib: 999 of 1,000 reviews within 5 s"),
        ("not judged", "growth: 999 of 1,000 reviews within 5 s"),
    ]

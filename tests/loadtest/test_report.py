"""From rounds to tables, remarks and pictures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from loadtest.cases import GROUPS
from loadtest.lines import LINES, Found, judge
from loadtest.report import (
    HEADINGS,
    cost_picture,
    drift,
    figures,
    group_table,
    latency_picture,
    lines_table,
    markdown,
    remarks,
)
from tests.loadtest.build import a_round, a_window

SVG = "{http://www.w3.org/2000/svg}"
(COST,) = [group for group in GROUPS if group.name == "cost"]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_of_a_group_has_its_measured_cases_in_order_with_medians() -> None:
    rounds = [a_round(floor=[10, 12], unary_4=500, stream_4=30), a_round(floor=11, stream_4=44, unary_4=500)]
    lines = group_table(COST, rounds).splitlines()
    assert cells(lines[0]) == list(HEADINGS)
    assert set(lines[1]) == set("|-: ")
    assert len({len(line) for line in lines}) == 1
    assert [cells(line)[0].partition(":")[0] for line in lines[2:]] == [
        "floor",
        "4 validating policies on one worker, stream",
        "4 validating policies on one worker, unary",
    ]
    assert [cells(line)[2] for line in lines[2:]] == ["11.0", "37.0", "500.0"]
    assert [cells(line)[3] for line in lines[2:]] == ["1.00", "3.36", "45.45"]


def test_a_row_shows_every_figure() -> None:
    rounds = [(a_window("floor", 10.04), a_window("stream-4", 31.25, reviews_per_s=12345.6, busy=0.625))]
    row = cells(group_table(COST, rounds).splitlines()[3])
    assert row[1:] == ["12,346", "31.2", "3.11", "7.0", "62%", "1.25", "9.88"]


def test_groups_that_were_not_measured_have_no_table() -> None:
    found = figures(Found([a_round(match_4=10, match_by_rules=11)], notes=["a note"]))
    assert [text.splitlines()[0] for text in found] == [
        "### Many configured webhooks, of which four match",
        "a note",
    ]


def test_the_table_of_lines_says_what_was_wanted_found_and_why_not_judged() -> None:
    found = Found([a_round(floor=10, stream_1=21, stream_4=20)], missing={"agnhost": "not built"}, cores=2)
    lines = lines_table(judge(LINES, found)).splitlines()
    assert cells(lines[2]) == ["1", "1 policy: CPU, times the floor", "at most 2", "2.10", "FAIL"]
    assert cells(lines[3])[2:] == ["at most 2.5", "2.00", "pass"]
    assert cells(lines[4])[2:] == ["below 1", "", "not judged: agnhost: not built"]


def test_drift_tells_first_last_and_the_range_of_the_floor() -> None:
    rounds = [a_round(floor=[10, 14], stream_4=1), a_round(floor=[9, 11], stream_4=1)]
    assert drift(rounds) == "floor, 4 times: 10.0 us first, 11.0 us last, 9.0 to 14.0 us in all"
    assert drift([a_round(stream_4=1)]) == ""


def test_remarks_name_what_is_missing_and_in_doubt() -> None:
    windows = (a_window("rate-90", doubts=("the generator was full",)), a_window("rate-90"))
    assert remarks(Found([windows], missing={"agnhost": "not built"})) == [
        "agnhost was not measured: not built",
        "rate-90, 1 of 2 windows: the generator was full",
    ]
    assert remarks(Found([(a_window("rate-90"),)])) == []


def test_the_file_holds_how_where_verdicts_figures_and_pictures() -> None:
    found = Found([a_round(floor=10, stream_1=31)])
    text = markdown(found, judge(LINES, found), "so it was done", ["a machine"], ["a-cpu-per-review.svg"])
    assert text.startswith("# Benchmark\n\n- so it was done\n- a machine\n- floor, 1 times: ")
    assert text.index("## Acceptance lines") < text.index("| FAIL") < text.index("## Figures")
    assert "### CPU and throughput" in text
    assert text.endswith("![a cpu per review](a-cpu-per-review.svg)\n")


def names(svg: str | None) -> set[str]:
    assert svg is not None
    return {element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")}


def points(svg: str | None) -> int:
    assert svg is not None
    return len(list(ET.fromstring(svg).iter(f"{SVG}circle")))


def test_the_picture_of_cost_has_a_line_for_each_way_that_was_measured() -> None:
    rounds = [a_round(floor=10, stream_1=20, stream_4=25, stream_16=60, unary_4=90)]
    assert {"stream", "unary calls", "floor"} <= names(cost_picture(rounds))
    assert "plain grpc.aio" not in names(cost_picture(rounds))
    assert points(cost_picture(rounds)) == 3 + 1 + 2
    assert cost_picture([a_round(floor=10)]) is None
    assert cost_picture([a_round(stream_1=10)]) is None


def test_the_picture_of_latency_has_median_and_p99_at_each_rate() -> None:
    rounds = [(a_window("rate-50", reviews_per_s=500.0), a_window("rate-90", reviews_per_s=900.0))]
    assert {"median", "p99"} <= names(latency_picture(rounds))
    assert points(latency_picture(rounds)) == 4
    assert latency_picture([a_round(floor=10)]) is None

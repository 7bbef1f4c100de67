"""Pictures: valid XML whose points are where they belong."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadtest.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Series, axis, line_chart, log_axis

SVG = "{http://www.w3.org/2000/svg}"
AMOUNTS = st.floats(0, 1e9, allow_nan=False)


def circles(svg: str) -> list[tuple[float, float]]:
    found = ET.fromstring(svg).iter(f"{SVG}circle")
    return [(float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in found]


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))
)
def test_any_text_gives_valid_xml_and_can_be_read_from_it(text: str) -> None:
    root = ET.fromstring(line_chart(text, text, text, [Series(text, ((1.0, 2.0),))]))
    assert root.attrib["aria-label"] == text
    said = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert said.count(text) >= 4


@example([(0.0, 5e-324)])
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=20))
def test_every_point_is_drawn_inside_the_axes(points: list[tuple[float, float]]) -> None:
    found = circles(line_chart("t", "x", "y", [Series("s", tuple(points))]))
    assert len(found) == len(points)
    assert all(LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM for x, y in found)


def test_more_is_further_right_and_further_up() -> None:
    found = circles(line_chart("t", "x", "y", [Series("s", ((0, 0), (5, 2), (10, 4)))]))
    assert found[0] == pytest.approx((LEFT, HEIGHT - BOTTOM))
    assert found[1][0] * 2 == pytest.approx(found[0][0] + found[2][0], abs=0.2)
    assert found[0][1] > found[1][1] > found[2][1]


def test_points_are_joined_in_their_order_and_series_are_told_apart() -> None:
    root = ET.fromstring(line_chart("t", "x", "y", [Series("a", ((1, 1), (2, 2))), Series("b", ((1, 2),))]))
    first, second = root.iter(f"{SVG}polyline")
    assert [tuple(map(float, place.split(","))) for place in first.attrib["points"].split()] == circles(
        line_chart("t", "x", "y", [Series("a", ((1, 1), (2, 2)))])
    )
    assert first.attrib["stroke"] != second.attrib["stroke"]
    assert first.attrib["stroke-dasharray"] != second.attrib["stroke-dasharray"]


@given(st.floats(1e-6, 1e12))
def test_an_axis_reaches_the_greatest_value_by_few_round_steps(greatest: float) -> None:
    ticks = axis("x", greatest).ticks
    assert ticks[0] == 0
    assert ticks[-2] < greatest <= ticks[-1] * (1 + 1e-6)
    assert 2 <= len(ticks) <= 8
    assert f"{ticks[1]:.0e}"[0] in "125"


@given(st.floats(1e-6, 1e12), st.floats(1, 1e6))
def test_a_logarithmic_axis_holds_its_values_and_little_more(least: float, times: float) -> None:
    found = log_axis("x", least, least * times)
    assert found.ticks[0] <= least * (1 + 1e-6) < found.ticks[1] * (1 + 1e-3)
    assert found.ticks[-1] >= least * times * (1 - 1e-6)
    assert all(f"{tick:.0e}"[0] in "125" for tick in found.ticks)
    assert found.share(least) + 1e-6 >= 0
    assert found.share(least * times) <= 1 + 1e-6


def test_on_a_logarithmic_axis_equal_ratios_are_equal_distances() -> None:
    found = circles(line_chart("t", "x", "y", [Series("s", ((1, 1), (2, 10), (3, 100)))], log_y=True))
    heights = [y for _, y in found]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert (heights[0], heights[2]) == pytest.approx((HEIGHT - BOTTOM, TOP))


def test_a_chart_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        line_chart("t", "x", "y", [Series("s", ())])


def test_dark_and_light_ground_are_both_provided_for() -> None:
    assert "prefers-color-scheme: dark" in line_chart("t", "x", "y", [Series("s", ((1, 1),))])

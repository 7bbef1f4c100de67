"""The chart: well-formed, to scale, and readable without seeing it."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from loadtest.chart import Bar, Panel, chart

NAMESPACE = "{http://www.w3.org/2000/svg}"
WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["C"]), max_size=12)
BARS = st.lists(
    st.builds(
        Bar,
        label=WORDS,
        value=st.floats(-10, 1e6),
        text=WORDS,
        colour=st.sampled_from(("none", "webhook", "gateway", "other")),
    ),
    min_size=1,
    max_size=4,
)
PANELS = st.lists(st.builds(Panel, title=WORDS, bars=BARS), min_size=1, max_size=2)


@given(WORDS, PANELS)
def test_a_chart_has_all_values_to_scale_and_in_words(title: str, panels: list[Panel]) -> None:
    root = ElementTree.fromstring(chart(title, panels))
    children = [(element.tag.removeprefix(NAMESPACE), element) for element in root]
    assert {tag for tag, _ in children} == {"title", "desc", "style", "rect", "text"}
    texts = {tag: element.text or "" for tag, element in children[:2]}
    assert texts["title"] == title
    bars = [bar for panel in panels for bar in panel.bars]
    assert all(f"{bar.label} {bar.text}" in texts["desc"] for bar in bars)
    _, card, *drawn = (dict(element.attrib) for tag, element in children if tag in ("style", "rect"))
    assert [each["class"] for each in drawn] == [bar.colour for bar in bars]
    lengths = iter(float(each["width"]) for each in drawn)
    for panel in panels:
        longest = max(bar.value for bar in panel.bars)
        for bar in panel.bars:
            share = max(0.0, bar.value) / longest if longest > 0 else 0.0
            assert abs(next(lengths) - 330 * share) <= 0.05 + 1e-9
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    assert all(float(each["x"]) + float(each["width"]) < width for each in (card, *drawn))
    places = [
        (float(element.attrib["x"]), float(element.attrib["y"])) for tag, element in children if tag == "text"
    ]
    assert len(places) == len(panels) + 2 * len(bars)
    assert all(0 < x < width and 0 < y < height for x, y in places)
    assert all(7 * len(panel.title) < width for panel in panels)


def test_a_chart_is_one_picture_with_a_name_for_light_and_dark_pages() -> None:
    text = chart("creates & more", [Panel("a <b>", [Bar("none", 1.0, "1 ms", "none")])])
    root = ElementTree.fromstring(text)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"].split() == [element.attrib["id"] for element in list(root)[:2]]
    assert "prefers-color-scheme: dark" in text
    assert not any(word in text for word in ("<script", "href", "url(", "@import", "foreignObject"))

"""The picture of the rooms in docs/architecture.md: what it shows, and that it is up to date."""

from __future__ import annotations

import pytest

from deploy.rooms import PAGE, imports, in_order, outputs, picture


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == outputs()[PAGE], "run `make rooms`"


def test_the_engine_imports_what_is_below_it() -> None:
    found = imports()
    assert "dispatch" not in found
    assert {"base", "pure", "config"} <= found["engine"]
    assert not found["engine"] & {"engine", "server", "tools"}


def test_rooms_are_drawn_above_those_that_they_import() -> None:
    rooms = in_order({"d": set(), "b": {"c", "d"}, "a": {"c"}, "c": set()})
    assert picture(rooms).splitlines() == [
        "```text",
        "┌───┐",
        "│ a │ ●",
        "├───┤ │",
        "│ b │ │ ●",
        "├───┤ │ │",
        "│ c │ ▼ ▼ ○",
        "├───┤   │",
        "│ d │   ▼   ○",
        "└───┘",
        "```",
    ]


def test_a_circle_of_rooms_is_an_error() -> None:
    with pytest.raises(ValueError, match="the rooms a, b import each other in a circle"):
        in_order({"a": {"b"}, "b": {"a"}, "c": {"a"}})

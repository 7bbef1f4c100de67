from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.pure.core.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("1m30s", 90),
        ("1.5h", 5400),
        ("100ms", 0.1),
        ("1us", 1e-6),
        ("1\N{MICRO SIGN}s", 1e-6),
        ("1\N{GREEK SMALL LETTER MU}s", 1e-6),
        ("5ns", 5e-9),
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0s", 0),
        ("-1.5s", -1.5),
        ("+5s", 5),
        ("5.s", 5),
        (".5s", 0.5),
        ("1h15m30.918273645s", 4530.918273645),
        ("0.100000000000000000000h", 360),
        ("30s1m", 90),
        ("9223372036.854775807s", 9223372036.854775807),
    ],
)
def test_go_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "1 s",
            " 1s",
            "1s ",
            "1s\n",
            "--1s",
            "1e3s",
            "1S",
            "1,5s",
        ),
        *("\uff11s", "1mss", "NaN", "inf", "3000000h", "9223372036.854775808s", "9" * 5000 + "s", "1s" * 600),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((2, "2s"), (9.9, "9.9s"), (0.1, "100ms"), (90, "1m30s"), (0, "0s"), (-0.0, "0s"), (3600, "1h")),
        *(
            (0.0015, "1.5ms"),
            (5e-9, "5ns"),
            (1e-6, "1us"),
            (1e-10, "0s"),
            (3601.25, "1h1.25s"),
            (-90, "-1m30s"),
        ),
        *((60, "1m"), (0.9999999996, "1s"), (30, "30s"), (5400, "1h30m")),
    ],
)
def test_seconds_are_written_in_the_shortest_form(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 1e300, 9.3e9])
def test_invalid_durations_are_not_formatted(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        format_duration(seconds)


@given(st.integers(-(2**52), 2**52))
@example(999_999_999)
@example(1)
def test_writing_and_reading_gives_the_same_nanoseconds(total_ns: int) -> None:
    seconds = total_ns / 1_000_000_000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text(alphabet="0123456789.+-nuµmsh", max_size=12))
def test_reading_gives_a_number_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert math.isfinite(seconds)

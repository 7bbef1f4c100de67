"""The picture of the last fifteen minutes."""

from __future__ import annotations

import re

from gateway.observe.telemetry.timeline import BUCKETS
from gateway.server.pages.sparkline import HEIGHT, sparkline


def timeline(**at: dict[int, int]) -> dict[str, list[int]]:
    """Return a timeline with these numbers, each row by the age of its half minutes."""
    rows = {name: [0] * BUCKETS for name in ("calls", "denied", "failedClosed", "failedOpen")}
    for name, numbers in at.items():
        for age, number in numbers.items():
            rows[name][-1 - age] = number
    return rows


def test_the_title_has_the_numbers_as_text() -> None:
    found = sparkline(timeline(calls={0: 5, 3: 1500}, denied={3: 700}), "Calls")
    title = (
        "<title>Calls of the last 15 minutes: 1,505, at most 1,500 in 30 s. "
        "Denied: 700, the last 1.5 min ago. Failed closed: none. Failed open: none.</title>"
    )
    assert title in found
    assert 'role="img"' in found
    assert sparkline(None, "Calls") == '<span class="zero">none in 15 min</span>'


def test_bars_are_within_the_picture_and_each_kind_has_its_own_row() -> None:
    numbers = timeline(calls={0: 1, 29: 1000}, denied={0: 1}, failedClosed={29: 1}, failedOpen={0: 1})
    found = sparkline(numbers, "Calls")
    rows: dict[str, list[tuple[float, float]]] = {}
    for name, path in re.findall(r'class="s-(\w+)" d="([^"]*)"', found):
        for x, base, size in re.findall(r"M(\d+) (\d+)v-([\d.]+)h3v[\d.]+z", path):
            assert 0 <= int(x) <= 4 * BUCKETS - 3
            rows.setdefault(name, []).append((float(base) - float(size), float(base)))
    assert rows["calls"] == [(0.0, 18.0), (16.5, 18.0)]
    assert rows["denied"] == [(20.0, 27.0)]
    assert rows["failed"] == [(HEIGHT - 1.5, HEIGHT), (HEIGHT - 7, HEIGHT)]
    assert rows["open"] == [(HEIGHT - 7, HEIGHT)]


def test_denials_without_calls_in_their_half_minute_are_full_bars() -> None:
    assert "v-7h3v7z" in sparkline(timeline(denied={4: 3}), "Reviews")

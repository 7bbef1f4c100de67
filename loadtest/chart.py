"""Line charts as SVG: a few series, readable on light and dark ground.

Source: SVG 1.1; Paul Heckbert, "Nice numbers for graph labels" (Graphics Gems, 1990).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 720
HEIGHT: Final = 400
LEFT: Final = 72
RIGHT: Final = 190
TOP: Final = 48
BOTTOM: Final = 56
TICKS: Final = 6
"""About as many on each axis."""
COLOURS: Final = ("#2f7fd1", "#d9622b", "#2c9a5b", "#a45bc2", "#b8860b")
"""Dark enough for white ground and light enough for black."""
DASHES: Final = ("none", "7 4", "2 3", "10 3 2 3", "4 4")
"""Series differ without colour, too."""

_LEAST: Final = 1e-300
"""Smaller values are drawn as 0: a sixth of them may not be a normal number, which has no exact logarithm."""

_STYLE: Final = """\
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: 600; }
.ground { fill: #ffffff; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.line { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.ground { fill: #0d1117; }
.grid { stroke: #30363d; }
}"""


@dataclass(frozen=True, slots=True)
class Series:
    """A named line through points ``(x, y)``, none of them negative."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis says, and the values that are marked, from one end to the other."""

    label: str
    ticks: tuple[float, ...]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return how far along the axis *value* is, from 0 to 1."""
        low, high = self.ticks[0], self.ticks[-1]
        if self.is_log:
            return log10(value / low) / log10(high / low)
        return (value - low) / (high - low)


def axis(label: str, greatest: float) -> Axis:
    """Return an axis from 0 that reaches *greatest* by steps of 1, 2 or 5 times a power of ten."""
    if greatest < _LEAST:
        greatest = 1.0
    rough = greatest / TICKS
    power = 10.0 ** floor(log10(rough))
    step = power * next(nice for nice in (1, 2, 5, 10) if nice * power >= rough * (1 - 1e-9))
    count = ceil(greatest / step * (1 - 1e-9))
    return Axis(label, tuple(number * step for number in range(count + 1)))


def log_axis(label: str, least: float, greatest: float) -> Axis:
    """Return an axis from below *least*, more than 0, to beyond *greatest*, marked at 1, 2 and 5."""
    decades = range(floor(log10(least)), floor(log10(greatest)) + 2)
    nice = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    low = max(mark for mark in nice if mark <= least * (1 + 1e-9))
    high = min(mark for mark in nice if mark >= greatest * (1 - 1e-9) and mark > low)
    return Axis(label, tuple(mark for mark in nice if low <= mark <= high), is_log=True)


def line_chart(
    title: str, x_label: str, y_label: str, series: Sequence[Series], *, log_y: bool = False
) -> str:
    """Return an SVG document with *series*, their names beside it; axes that are not logarithmic begin at 0.

    Raises:
        ValueError: there is no point.
    """
    points = [point for line in series for point in line.points]
    if not points:
        raise ValueError(f"{title}: nothing to draw")
    heights = [y for _, y in points]
    x_axis = axis(x_label, max(x for x, _ in points))
    y_axis = log_axis(y_label, min(heights), max(heights)) if log_y else axis(y_label, max(heights))
    named = f'role="img" aria-label={quoteattr(title)}'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {named}>',
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
        *_grid(x_axis, y_axis),
    ]
    for number, line in enumerate(series):
        parts += _line(number, line, x_axis, y_axis)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(value: float, scale: Axis) -> float:
    return LEFT + scale.share(value) * (WIDTH - LEFT - RIGHT)


def _y(value: float, scale: Axis) -> float:
    return HEIGHT - BOTTOM - scale.share(value) * (HEIGHT - TOP - BOTTOM)


def _grid(x_axis: Axis, y_axis: Axis) -> list[str]:
    low, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in x_axis.ticks:
        x = _x(tick, x_axis)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{low}"/>')
        parts.append(f'<text x="{x:.1f}" y="{low + 18}" text-anchor="middle">{tick:,.6g}</text>')
    for tick in y_axis.ticks:
        y = _y(tick, y_axis)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
    middle_x, middle_y = (LEFT + right) / 2, (TOP + low) / 2
    parts.append(f'<text x="{middle_x}" y="{low + 42}" text-anchor="middle">{escape(x_axis.label)}</text>')
    turned = f'transform="rotate(-90 14 {middle_y})" text-anchor="middle"'
    parts.append(f'<text x="14" y="{middle_y}" {turned}>{escape(y_axis.label)}</text>')
    return parts


def _line(number: int, line: Series, x_axis: Axis, y_axis: Axis) -> list[str]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    places = [(_x(x, x_axis), _y(y, y_axis)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = f'class="line" stroke="{colour}" stroke-dasharray="{dash}"'
    left, y = WIDTH - RIGHT + 16, TOP + 12 + 22 * number
    return [
        f'<polyline {drawn} points="{path}"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places),
        f'<line {drawn} x1="{left}" y1="{y}" x2="{left + 30}" y2="{y}"/>',
        f'<text x="{left + 38}" y="{y + 4}">{escape(line.name)}</text>',
    ]

"""Horizontal bars as SVG, readable on light and dark pages, and by screen readers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Colour = Literal["none", "webhook", "gateway", "other"]

_CHARACTER: Final = 7.3
"""Width of a character of 13 pixels, with room for wide fonts."""
_BARS: Final = 330
_ROW: Final = 26
_HEAD: Final = 40
_EDGE: Final = 16
_STYLE: Final = """\
svg { color-scheme: light dark; }
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.head { font-weight: 600; }
.card { fill: #ffffff; stroke: #d1d9e0; }
.none { fill: #818b98; } .webhook { fill: #bc4c00; } .gateway { fill: #0969da; } .other { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.card { fill: #0d1117; stroke: #3d444d; }
.none { fill: #9198a1; } .webhook { fill: #db6d28; } .gateway { fill: #4493f8; } .other { fill: #3fb950; }
}"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One value."""

    label: str
    value: float
    text: str
    """The value with its unit."""
    colour: Colour


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars on one scale."""

    title: str
    bars: Sequence[Bar]


def chart(title: str, panels: Sequence[Panel]) -> str:
    """Return *panels*, one below the other, as the text of an SVG file. Its description has all values."""
    bars = [bar for panel in panels for bar in panel.bars]
    left = _EDGE + _width(bar.label for bar in bars) + 8
    width = left + _BARS + 8 + _width(bar.text for bar in bars) + _EDGE
    width = max(width, 2 * _EDGE + _width(panel.title for panel in panels))
    height = 2 * _EDGE + sum(_HEAD + _ROW * len(panel.bars) for panel in panels)
    described = [
        f"{panel.title}: {', '.join(f'{bar.label} {bar.text}' for bar in panel.bars)}." for panel in panels
    ]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(" ".join(described))}</desc>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
    ]
    top = _EDGE
    for panel in panels:
        lines.append(f'<text class="head" x="{_EDGE}" y="{top + 22}">{escape(panel.title)}</text>')
        top += _HEAD
        most = max((bar.value for bar in panel.bars), default=0.0)
        for bar in panel.bars:
            length = _BARS * max(0.0, bar.value) / most if most > 0 else 0.0
            place = f'x="{left}" y="{top}" width="{length:.1f}" height="18"'
            lines += [
                f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{escape(bar.label)}</text>',
                f'<rect class="{bar.colour}" {place} rx="2"/>',
                f'<text x="{left + length + 8:.1f}" y="{top + 13}">{escape(bar.text)}</text>',
            ]
            top += _ROW
    return "\n".join([*lines, "</svg>"]) + "\n"


def _width(texts: Iterable[str]) -> int:
    """Return the width of the longest of *texts*, estimated: an SVG does not know its fonts."""
    return math.ceil(max(map(len, texts)) * _CHARACTER)

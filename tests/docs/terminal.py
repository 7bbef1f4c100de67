"""A terminal session as SVG, readable on light and dark pages, and the text behind a picture."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COLUMNS: Final = 100
_PIECE: Final = re.compile(rf".{{1,{COLUMNS}}}(?:$|(?<= ))|.{{{COLUMNS}}}")
"""What fits into a row: up to a space, or a part of a word that is longer."""
_CHARACTER: Final = 7.83
"""Width of a character of 13 pixels in the fonts below, which are as wide as each other but for a percent."""
_LINE: Final = 18
_EDGE: Final = 16
_STYLE: Final = """\
svg { color-scheme: light dark; }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
text { fill: #1f2328; white-space: pre; }
.card { fill: #f6f8fa; stroke: #d1d9e0; }
.command { font-weight: 600; }
.added { fill: #116329; } .denied { fill: #a40e26; } .warning { fill: #7d4e00; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.card { fill: #0d1117; stroke: #3d444d; }
.added { fill: #3fb950; } .denied { fill: #ff7b72; } .warning { fill: #d29922; }
}"""
_KINDS: Final = {
    "command": r"\$ ",
    "added": r"\+",
    "warning": r" *warning: ",
    "denied": r"(Error from server|denied )|.*\bDenied by ",
}
"""The class of a line, by how it begins."""
_PNG_HEAD: Final = 33
"""Bytes of the signature and of the first chunk, IHDR. Source: PNG (Third Edition), 5."""


def terminal(title: str, lines: Sequence[str]) -> str:
    """Return the text of an SVG file that shows *lines* as a terminal of ``COLUMNS`` columns does."""
    drawn: list[str] = []
    row = 0
    for line in lines:
        pieces = _PIECE.findall(line) or [""]
        places = [_EDGE + _LINE * (row + number) + 13 for number in range(len(pieces))]
        spans = "".join(
            f'<tspan x="{_EDGE}" y="{y}">{escape(piece)}</tspan>'
            for piece, y in zip(pieces, places, strict=True)
        )
        drawn.append(f'<text class="{_kind(line)}">{spans}</text>')
        row += len(pieces)
    width, height = round(2 * _EDGE + COLUMNS * _CHARACTER), 2 * _EDGE + _LINE * row
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
    ]
    return "\n".join([*head, *drawn, "</svg>"]) + "\n"


def shown_lines(svg: str) -> list[str]:
    """Return the lines that :func:`terminal` was given, from its result."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()) for text in texts]


def with_text(png: bytes, text: str) -> bytes:
    """Return *png* with *text* as its description, in a chunk of the type ``zTXt``."""
    data = b"zTXtDescription\0\0" + zlib.compress(text.encode())
    chunk = (len(data) - 4).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    return png[:_PNG_HEAD] + chunk + png[_PNG_HEAD:]


def text_of(png: bytes) -> str:
    """Return what :func:`with_text` put into *png*."""
    for kind, data in _chunks(png):
        if kind == b"zTXt":
            return zlib.decompress(data.partition(b"\0")[2][1:]).decode()
    raise LookupError("the picture has no description")


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _kind(line: str) -> str:
    kinds = (name for name, begins in _KINDS.items() if re.match(begins, line, re.IGNORECASE))
    return next(kinds, "output")

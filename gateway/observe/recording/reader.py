"""Reads recordings line by line, in constant memory; what is damaged is counted and left out.

Reads compressed files, several of them joined, and the same lines without compression.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.errors import GatewayError
from gateway.base.text import shown
from gateway.observe.recording.lines import API_VERSION, VERSION

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from gateway.pure.core.review import Json

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""A line has a request of 64 KiB at most, and the changes of its webhooks. A longer one is damaged."""
_CHUNK_BYTES: Final = 256 * 1024
_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = zlib.MAX_WBITS | 16


class UnreadableRecordingError(GatewayError):
    """A file is not a recording, or has another version."""


@dataclass
class Reading:
    """What was found in a file besides its reviews."""

    reviews: int = 0
    dropped: int = 0
    """Reviews that the gateway could not record at the time."""
    damaged_lines: int = 0
    unknown_lines: int = 0
    """Lines of a type that this version does not know."""
    end: str = ""
    """Why reading ended before the end of the file. Empty if it did not."""
    read_bytes: int = 0
    """Bytes of the file that were read so far."""
    keys: set[str] = field(default_factory=set)
    """Ids of the keys of the marks that replace values, see ``redaction.Marks``."""


def read_recording(path: Path, reading: Reading) -> Iterator[Json]:
    """Yield the reviews in the file at *path* as they are written; the rest is noted in *reading*.

    Raises:
        UnreadableRecordingError: the file does not begin like a recording, or has another version.
        OSError: it cannot be read.
    """
    is_first = True
    with path.open("rb") as file:
        for line in _lines(file, reading):
            reading.read_bytes = file.tell()
            document = _parsed(line)
            if is_first:
                _check_header(path, document)
                is_first = False
            kind = None if document is None else document.get("type")
            if document is None:
                reading.damaged_lines += 1
            elif kind == "review" and isinstance(document.get("request"), dict):
                reading.reviews += 1
                yield document
            elif kind == "header":
                _check_header(path, document)
                reading.keys.add(str(document.get("key")))
            elif kind == "dropped" and type(document.get("number")) is int:
                reading.dropped += document["number"]
            elif kind == "review":
                reading.damaged_lines += 1
            else:
                reading.unknown_lines += 1
    if is_first and not reading.end:
        # A gateway makes a file just before it writes to it.
        reading.end = "truncated"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(line) if line else None
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _check_header(path: Path, document: dict[str, Any] | None) -> None:
    if document is None or document.get("apiVersion") != API_VERSION or document.get("kind") != "Recording":
        raise UnreadableRecordingError(f"{path}: not a recording: its first line is not a header")
    if document.get("version") != VERSION:
        found = shown(str(document.get("version")))
        raise UnreadableRecordingError(f"{path}: found version {found} of recordings, expected {VERSION}")


def _lines(file: BinaryIO, reading: Reading) -> Generator[bytes, None, None]:
    """Yield the lines of *file*; an empty one stands for one that is too long, or that lacks its end."""
    rest, is_too_long = b"", False
    for chunk in _content(file, reading):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield b"" if is_too_long else line
            is_too_long = False
        if len(rest) > MAX_LINE_BYTES:
            rest, is_too_long = b"", True
    if rest or is_too_long:
        reading.end = reading.end or "truncated"
        yield b""


def _content(file: BinaryIO, reading: Reading) -> Generator[bytes, None, None]:
    chunk = file.read(_CHUNK_BYTES)
    if not chunk.startswith(_MAGIC):
        while chunk:
            yield chunk
            chunk = file.read(_CHUNK_BYTES)
        return
    stream = zlib.decompressobj(_GZIP)
    while chunk:
        try:
            content = stream.decompress(chunk, _CHUNK_BYTES)
        except zlib.error as error:
            reading.end = f"damaged ({error})"
            return
        if content:
            yield content
        chunk = stream.unconsumed_tail
        if stream.eof:
            chunk = stream.unused_data.lstrip(b"\0")
            stream = zlib.decompressobj(_GZIP)
            chunk = chunk or file.read(_CHUNK_BYTES).lstrip(b"\0")
            if not chunk:
                return
        elif not chunk:
            chunk = file.read(_CHUNK_BYTES)
    reading.end = "truncated"

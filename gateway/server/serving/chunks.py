"""The chunked transfer coding of request bodies, within bounds.

Reading a chunk takes as long as reading hundreds of bytes. After ``FREE_CHUNKS``, chunks must have
``MIN_CHUNK_BYTES`` on average, so that the cost of a body is in proportion to its size.

Source: RFC 9112 section 7.1. The bound on framing: Go net/http/internal/chunked.go.
"""

from __future__ import annotations

import re
from typing import Final

FREE_CHUNKS: Final = 1024
MIN_CHUNK_BYTES: Final = 128
MAX_FRAMING_BYTES: Final = 32
"""Bytes of a chunk besides its data, on average: size, extensions and line ends."""

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_QUOTED: Final = rb'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*+"'
_EXTENSION: Final = rb";%b(?:=(?:%b|%b))?" % (_TOKEN, _TOKEN, _QUOTED)
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:%b)*+\r\n" % _EXTENSION)
_FIELD: Final = re.compile(rb"(%b):[\t\x20-\x7e\x80-\xff]*+\r\n" % _TOKEN)
_FRAMING_FIELDS: Final = {b"content-length", b"transfer-encoding"}


class BadChunks(Exception):
    """The body is malformed; ``status`` is that of the answer."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(f"bad HTTP: {reason}" if status == 400 else reason)
        self.status = status


class Chunks:
    """The position in one body: in a line of its framing, or in the data of a chunk."""

    def __init__(self, max_bytes: int, trailer: tuple[int, int]) -> None:
        """*max_bytes* bounds a line; *trailer* how many bytes and fields may follow the last chunk."""
        self.body_bytes = 0
        """Announced by the chunks so far."""
        self.is_complete = False
        self._max_bytes = max_bytes
        self._trailer_bytes, self._trailer_fields = trailer
        self._line = bytearray()
        """The line so far, if it did not come in one read."""
        self._left_bytes = 0
        """What is left of the data of the present chunk."""
        self._chunks = self._framing_bytes = 0
        self._is_after_data = self._is_in_trailer = False

    def read(self, read: memoryview, offset: int) -> tuple[int, list[memoryview]]:
        """Parse *read* from *offset* on; return the offset after the parsed bytes, and their data.

        Raises:
            BadChunks: the coding is malformed, or exceeds a bound.
        """
        data: list[memoryview] = []
        while offset < len(read) and not self.is_complete:
            if self._left_bytes:
                end = min(offset + self._left_bytes, len(read))
                data.append(read[offset:end])
                self._left_bytes -= end - offset
                self._is_after_data = not self._left_bytes
                offset = end
                continue
            found = None if self._line or self._is_after_data else _SIZE_LINE.match(read, offset)
            if found is not None and not self._is_in_trailer:
                self._begin(found)
                offset = found.end()
            else:
                offset = self._read_line(read, offset)
        return offset, data

    def _read_line(self, read: memoryview, offset: int) -> int:
        """Read an unusual, malformed or incomplete line; return the offset after it."""
        end = len(read)
        room = min(end, offset + self._max_bytes)
        found = bytes(read[offset:room]).find(b"\n")
        if found >= 0:
            end = offset + found + 1
        self._line += read[offset : min(end, room)]
        if self._is_after_data and not b"\r\n".startswith(self._line):
            raise BadChunks("the data of a chunk is longer than its size")
        if len(self._line) >= self._max_bytes:
            self._refuse_long()
        if found < 0:
            return end
        line, self._line = bytes(self._line), bytearray()
        if self._is_after_data:
            self._is_after_data = False
        elif self._is_in_trailer:
            self._end(line)
        else:
            size = _SIZE_LINE.fullmatch(line)
            if size is None:
                raise BadChunks("expected the size line of a chunk")
            self._begin(size)
        return end

    def _begin(self, found: re.Match[bytes]) -> None:
        """Begin the chunk with the size line *found*."""
        size = int(found[1], 16)
        self._framing_bytes += found.end() - found.start()
        self._chunks += 1
        if self._framing_bytes > self._max_bytes + MAX_FRAMING_BYTES * self._chunks:
            self._refuse_long()
        # The last chunk is empty, and the one before it may be short.
        if self._chunks > FREE_CHUNKS and self.body_bytes < MIN_CHUNK_BYTES * (self._chunks - 2):
            raise BadChunks(
                f"more than {FREE_CHUNKS} chunks, of less than {MIN_CHUNK_BYTES} bytes on average"
            )
        self.body_bytes += size
        self._left_bytes = size
        self._is_in_trailer = not size

    def _end(self, line: bytes) -> None:
        """Read a *line* after the last chunk."""
        if line == b"\r\n":
            self.is_complete = True
            return
        field = _FIELD.fullmatch(line)
        if field is None or field[1].lower() in _FRAMING_FIELDS:
            raise BadChunks("the trailer has a malformed line, or a field that is not allowed there")
        self._trailer_bytes -= len(line)
        self._trailer_fields -= 1
        if self._trailer_bytes < 0 or self._trailer_fields < 0:
            self._refuse_long()

    def _refuse_long(self) -> None:
        what = "header block and trailer" if self._is_in_trailer else "chunk extensions"
        raise BadChunks(f"{what} over {self._max_bytes} bytes, or too many fields", 431)

"""HTTP through a forwarded port: frames of WebSockets, however they come, and answers that are none."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.port_forward import fetch, frame, messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.server.kubernetes.api_client import ApiClient

MAX_BYTES = 100_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage"
PORTS = ((2, b"\x00\x82#"), (2, b"\x01\x82#"))


class Stream:
    """A connection on which *content* comes in pieces of the *sizes*, and then the end."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self._content, self._sizes = content, sizes
        self.written = b""

    async def read(self, max_bytes: int) -> bytes:
        size = min(max_bytes, self._sizes.pop() if self._sizes else len(self._content))
        piece, self._content = self._content[:size], self._content[size:]
        return piece

    async def write(self, buffer: bytes) -> None:
        self.written += buffer


def served(*found: tuple[int, bytes], fin: int = 0x80) -> bytes:
    """Return messages as a server writes them, without a mask."""
    parts = []
    for opcode, payload in found:
        length = len(payload)
        if length < 126:
            head = bytes([length])
        else:
            head = struct.pack("!BH", 126, length) if length < 1 << 16 else struct.pack("!BQ", 127, length)
        parts.append(bytes([fin | opcode]) + head + payload)
    return b"".join(parts)


def unmasked(written: bytes) -> tuple[int, bytes]:
    """Return opcode and payload of the frame of a client."""
    assert written[0] & 0x80
    assert written[1] & 0x80
    length, start = written[1] & 0x7F, 2
    if length >= 126:
        start = 4 if length == 126 else 10
        length = int.from_bytes(written[2:start])
    mask, payload = written[start : start + 4], written[start + 4 :]
    assert len(payload) == length
    return written[0] & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


async def all_of(stream: Stream) -> list[tuple[int, bytes]]:
    return [found async for found in messages(stream, MAX_BYTES)]


def answer(content: bytes, target: str = "/") -> tuple[int, bytes]:
    """Return what is fetched if the API server answers with *content*."""

    class Api:
        @asynccontextmanager
        async def upgraded(self, *_: Any) -> AsyncIterator[Stream]:
            yield Stream(content, [])

    return asyncio.run(fetch(cast("ApiClient", Api()), "/pod", 9090, target, MAX_BYTES))


lengths = st.sampled_from([0, 1, 3, 125, 126, 127, 4096, 65535, 65536])


@given(lengths)
def test_a_client_masks_each_frame(length: int) -> None:
    payload = bytes(range(256)) * (length // 256 + 1)
    assert unmasked(frame(2, payload[:length])) == (2, payload[:length])


@given(
    st.lists(st.tuples(st.sampled_from([2, 9]), lengths), max_size=4),
    st.lists(st.integers(1, 70_000), max_size=20),
)
def test_messages_are_read_however_their_bytes_are_split(
    made: list[tuple[int, int]], sizes: list[int]
) -> None:
    found = [(opcode, bytes(length)) for opcode, length in made]
    assert asyncio.run(all_of(Stream(served(*found), sizes))) == found


def test_a_message_may_have_several_frames_with_control_frames_between_them() -> None:
    content = served((2, b"a"), fin=0) + served((9, b"ping")) + served((0, b"b"), fin=0) + served((0, b"c"))
    assert asyncio.run(all_of(Stream(content, []))) == [(9, b"ping"), (2, b"abc")]


def test_an_answer_is_that_of_the_data_channel() -> None:
    assert answer(served(*PORTS, (2, b"\x00" + OK[:9]), (9, b"p"), (2, b"\x00" + OK[9:]), (8, b""))) == (
        200,
        b"page",
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not complete, or not HTTP"),
        (served(*PORTS), "not complete, or not HTTP"),
        (served(*PORTS, (2, b"\x00" + OK[:-1])), "not complete, or not HTTP"),
        (served(*PORTS, (2, b"\x00\x00\x01\x02")), "not complete, or not HTTP"),
        (served(*PORTS, (2, b"\x01connection \x1b[2Jrefused")), "connection \\x1b[2Jrefused"),
        (served(*PORTS, *([(2, b"\x00" + bytes(60_000))] * 2)), "more than 100000 bytes"),
        (b"\x82\x7f" + b"\xff" * 8, "more than 100000 bytes"),
        (frame(2, b"\x00"), "masks its WebSocket frames"),
    ],
    ids=("empty", "ports only", "cut", "not HTTP", "refused", "too long", "too long a frame", "masked"),
)
def test_another_answer_is_an_error_in_one_line(content: bytes, reason: str) -> None:
    with pytest.raises(ClusterError) as caught:
        answer(content)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()

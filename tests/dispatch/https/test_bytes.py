"""Any bytes of a server, in any pieces, are an answer or an ExchangeError."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.engine.dispatch.https.connection import ClientConnection, ExchangeError, HttpResponse
from gateway.engine.dispatch.https.large_answers import LargeAnswerSlot, LargeAnswerSlots

LINES = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 500 No\r\n",
    b"Content-Length: 4\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"X: y\r\n",
    b"\r\n",
    b"body",
    b"4\r\nbody\r\n",
    b"0\r\n\r\n",
    b"\x00\xff",
]
conversations = st.lists(st.sampled_from(LINES) | st.binary(max_size=4), max_size=12).map(b"".join)


class Transport(asyncio.Transport):
    """A transport that stores the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False
        self.written = 0

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: Any) -> None:
        self.written += len(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.is_aborted = True


async def outcome_of(pieces: list[bytes]) -> tuple[int, bytes, bool] | str:
    connection, transport = ClientConnection(lambda _: None), Transport()
    connection.connection_made(transport)
    exchange = asyncio.ensure_future(connection.exchange(LargeAnswerSlot(LargeAnswerSlots()), b"request"))
    await asyncio.sleep(0)
    for piece in pieces:
        if not transport.is_aborted:
            connection.data_received(piece)
    connection.connection_lost(None)
    try:
        response = await exchange
    except ExchangeError as error:
        return str(error)
    assert isinstance(response, HttpResponse)
    return response.status, response.body, transport.is_aborted


@given(conversations, st.data())
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\n\r\n", None)
@example(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", None)
def test_any_bytes_in_any_pieces(conversation: bytes, data: st.DataObject | None) -> None:
    cuts = [0] if data is None else data.draw(st.lists(st.integers(0, len(conversation)), max_size=5))
    places = sorted({0, *cuts, len(conversation)})
    pieces = [conversation[begin:end] for begin, end in itertools.pairwise(places)]
    whole = asyncio.run(outcome_of([conversation] if conversation else []))
    assert asyncio.run(outcome_of(pieces)) == whole
    assert asyncio.run(outcome_of([bytes([byte]) for byte in conversation])) == whole


async def test_an_unread_request_fills_only_the_write_buffer() -> None:
    """The rest is not copied: many calls share the review's bytes."""
    request = bytes(5_000_000)

    class NeverRead(Transport):
        def write(self, data: Any) -> None:
            super().write(data)
            connection.pause_writing()

    connection, transport = ClientConnection(lambda _: None), NeverRead()
    connection.connection_made(transport)
    exchange = asyncio.ensure_future(
        connection.exchange(LargeAnswerSlot(LargeAnswerSlots()), b"head", request)
    )
    for _ in range(100):
        await asyncio.sleep(0)
    assert transport.written == len(b"head")
    connection.resume_writing()
    for _ in range(100):
        await asyncio.sleep(0)
    assert transport.written == len(b"head") + 65_536
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert (await exchange).status == 200
    assert not connection.is_reusable

"""The bound on bytes of bodies: refusals, evictions, and that all bytes are freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.server.serving.bounds import Bounds
from gateway.server.serving.bytes_in_flight import limit_when_failing_open
from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.http_connection import HttpConnection
from gateway.server.serving.routes import Router
from tests.serving.kit import CLOSE, PATHS, Application, Clock, RecordingTransport, chunked, ok, post, refused

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY = b"Retry-After: 1\r\n"
BOUNDS = Bounds(body_bytes=100, bytes_in_flight=160)
FAILING_OPEN = b"/validate"
"""A path that fails open, which may use 140 of the 160 bytes."""


def full(limit: int = 160) -> bytes:
    text = f"too many bytes of requests are in flight, limits.maxBytesInFlight allows {limit}"
    return refused(b"503 Service Unavailable", text, RETRY + CLOSE)


class Front:
    """A listener's connections without sockets."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self.app = Application(holds=True)
        self.router = Router(self.app, PATHS, fails_open=lambda selection: selection == "v")
        self.clock = Clock()
        self.connections = ConnectionTable(self.router, bounds, clock=self.clock)
        self.bytes = self.connections.bytes

    def client(self) -> Client:
        return Client(self)


class Client:
    def __init__(self, front: Front) -> None:
        self.connection = HttpConnection(front.connections)
        self.transport = RecordingTransport()
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def feed(self, *pieces: bytes) -> bytes:
        for piece in pieces:
            self.connection.get_buffer(-1)[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))
        return self.transport.written


def head_of(body: bytes, target: bytes = b"/mutate") -> bytes:
    return post(body, target).removesuffix(body)


def test_a_body_that_does_not_fit_beside_the_reviews_in_flight_is_refused_at_its_head() -> None:
    front = Front()
    front.client().feed(post(b"x" * 100))
    assert front.bytes.total_bytes == 100
    late = front.client()
    assert late.feed(head_of(b"x" * 61)) == full()
    assert late.transport.closed
    assert front.client().feed(head_of(b"x" * 60)) == b""
    assert front.connections.refused == {503: 1}
    front.app.seen[0].respond(200, b"")
    assert front.bytes.total_bytes == 0
    assert front.client().feed(head_of(b"x" * 100)) == b""


def test_announced_bytes_do_not_count() -> None:
    front = Front()
    for _ in range(50):
        assert front.client().feed(head_of(b"x" * 100)) == b""
    assert front.bytes.total_bytes == 0
    front.client().feed(post(b"x" * 100))
    assert len(front.app.seen) == 1


def test_the_oldest_arriving_body_makes_room() -> None:
    front = Front()
    slow, slower, honest = front.client(), front.client(), front.client()
    for client in (slow, slower):
        client.feed(head_of(b"x" * 100), b"x" * 70)
    slow.feed(b"x")
    assert front.bytes.arriving_bytes == 141
    assert honest.feed(post(b"x" * 20)) == b""
    assert (slow.transport.written, slower.transport.written) == (full(), b"")
    assert slow.transport.closed
    assert slow.feed(b"x" * 29 + post(b"1")) == full()
    assert front.bytes.total_bytes == 90
    slower.feed(b"x" * 30)
    assert [len(exchange.request.body) for exchange in front.app.seen] == [20, 100]


def test_a_single_body_that_is_too_large_is_refused() -> None:
    front = Front()
    front.client().feed(post(b"x" * 100))
    client = front.client()
    head, _, body = chunked(b"x" * 50, b"x" * 20).partition(b"\r\n\r\n")
    assert client.feed(head + b"\r\n\r\n" + body[:54]) == b""
    assert front.bytes.total_bytes == 150
    assert client.feed(body[54:-6]) == full()
    assert front.bytes.total_bytes == 100


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_chunked_body_that_does_not_fit_is_refused_when_it_grows_too_large(pieces: int) -> None:
    front = Front()
    front.client().feed(post(b"x" * 100))
    stream = chunked(b"x" * 61)
    cut = len(stream) if pieces == 1 else len(stream) - 10
    client = front.client()
    assert client.feed(*filter(None, (stream[:cut], stream[cut:]))) == full()
    assert front.bytes.total_bytes == 100
    assert len(front.app.seen) == 1


def test_the_last_eighth_is_reserved_from_paths_that_fail_open() -> None:
    front = Front()
    front.client().feed(post(b"x" * 100))
    assert front.client().feed(head_of(b"x" * 41, FAILING_OPEN)) == full()
    assert front.client().feed(chunked(b"x" * 41, target=FAILING_OPEN)) == full()
    assert front.client().feed(post(b"x" * 40, FAILING_OPEN)) == b""
    assert front.client().feed(post(b"x", FAILING_OPEN)) == full()
    assert front.client().feed(post(b"x" * 20)) == b""
    assert front.bytes.total_bytes == 160


def test_a_single_body_of_the_allowed_size_always_fits() -> None:
    front = Front(Bounds(body_bytes=100, bytes_in_flight=100))
    assert limit_when_failing_open(100) == 88
    assert front.client().feed(post(b"x" * 100, FAILING_OPEN)) == b""
    assert len(front.app.seen) == 1


def test_new_bounds_apply_from_the_next_request_on() -> None:
    front = Front()
    front.client().feed(post(b"x" * 100))
    front.connections.use(Bounds(body_bytes=50, bytes_in_flight=50))
    assert front.client().feed(post(b"x")) == full(50)
    front.app.seen[0].respond(200, b"")
    front.client().feed(post(b"x" * 50))
    assert front.bytes.total_bytes == 50


@pytest.mark.parametrize("piece_bytes", [1, 3])
def test_a_body_in_tiny_chunks_is_kept_in_one_piece(piece_bytes: int) -> None:
    front = Front(Bounds())
    client = front.client()
    client.feed(chunked(*[b"x" * piece_bytes] * 1000).removesuffix(b"0\r\n\r\n"))
    assert front.bytes.arriving_bytes == len(client.connection._reader._kept) == 1000 * piece_bytes


ENDS = ("answer", "lose", "lose while reading", "sweep", "close", "refuse")


@pytest.mark.parametrize("end", ENDS)
def test_every_byte_is_counted_down_once_however_the_request_ends(end: str) -> None:
    front = Front()
    client = front.client()
    whole, more = post(b"x" * 30), post(b"y" * 40)
    match end:
        case "answer":
            client.feed(whole + more)
            assert front.bytes.total_bytes == 70
            for number in range(2):
                front.app.seen[number].respond(200, b"")
                front.app.seen[number].respond(200, b"")
                front.app.seen[number].release()
            assert client.transport.written == ok(b"") * 2
        case "lose":
            client.feed(whole + more)
            client.connection.connection_lost(None)
            front.app.seen[0].respond(200, b"")
        case "lose while reading":
            client.feed(whole + more[:-5])
            assert front.bytes.total_bytes == 65
            client.connection.connection_lost(None)
        case "sweep":
            client.feed(more[:-5])
            assert front.bytes.total_bytes == 35
            front.clock.now += 31
            front.connections.sweep()
            assert b" 408 " in client.transport.written
        case "close":
            client.feed(whole.replace(b"Accept:", b"Connection: close\r\nAccept:"))
            front.app.seen[0].respond(200, b"")
            assert client.transport.closed
        case "refuse":
            client.feed(more[:-5], b"z" * 5 + b"\0" + whole)
            front.app.seen[0].respond(200, b"")
            assert b" 400 " in client.transport.written
    assert front.bytes.total_bytes == front.bytes.arriving_bytes == 0
    assert front.router.in_flight == 0
    assert not front.bytes._arriving


FED: dict[str, Callable[[int], bytes]] = {
    "whole": lambda size: post(b"x" * size),
    "chunked": lambda size: chunked(b"x" * size),
    "ignored": lambda size: post(b"x" * size, FAILING_OPEN),
    "begin": lambda size: head_of(b"x" * 100),
    "more": lambda size: b"x" * size,
}
steps = st.tuples(st.integers(0, 4), st.sampled_from([*FED, "lose", "answer", "later"]), st.integers(1, 100))


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_the_bound_holds_for_any_clients_and_no_byte_stays_counted(steps: list[tuple[int, str, int]]) -> None:
    front = Front()
    clients = [front.client() for _ in range(5)]
    for number, action, size in steps:
        if action == "lose" or clients[number].transport.closed:
            clients[number].connection.connection_lost(None)
            clients[number] = front.client()
        if action in FED:
            clients[number].feed(FED[action](size))
        elif action == "later":
            front.clock.now += size
            front.connections.sweep()
        in_flight = [exchange for exchange in front.app.seen if exchange.is_open]
        if action == "answer" and in_flight:
            in_flight.pop(0).respond(200, b"")
        assert front.bytes.arriving_bytes >= 0
        assert front.bytes.total_bytes <= BOUNDS.bytes_in_flight
        assert front.bytes.complete_bytes >= sum(len(exchange.request.body) for exchange in in_flight)
    for client in clients:
        client.connection.connection_lost(None)
    assert (front.bytes.arriving_bytes, front.bytes.complete_bytes, front.router.in_flight) == (0, 0, 0)
    assert not front.bytes._arriving

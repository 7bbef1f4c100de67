"""The time limits of connections, with a manual clock."""

from __future__ import annotations

import pytest

from gateway.server.serving.bounds import Bounds
from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.http_connection import HttpConnection
from gateway.server.serving.message import CLOSING_IDLE
from gateway.server.serving.routes import Router
from tests.serving.kit import CLOSE, Application, RecordingTransport, Wire, ok, post, refused

LATE = refused(b"408 Request Timeout", "request not complete 30 seconds after its first byte", CLOSE)


def test_idle_connection_lives_longer_than_the_90_s_of_the_api_server() -> None:
    wire = Wire()
    wire.feed(post(b"1"))
    wire.later(120)
    assert not wire.is_closed()
    wire.later(0.1)
    assert wire.is_closed()
    assert wire.transport.written == ok(b"m:1")


def test_idle_time_begins_with_the_last_answer() -> None:
    wire = Wire()
    wire.later(119)
    wire.feed(post(b"1"))
    wire.later(119)
    assert not wire.is_closed()


def test_unused_connection_ends_after_the_idle_time() -> None:
    wire = Wire()
    wire.later(121)
    assert wire.is_closed()
    assert wire.transport.written == b""


@pytest.mark.parametrize("received", [1, 60, len(post(b"12345")) - 6])
def test_incomplete_head_is_408_after_30_s(received: int) -> None:
    wire = Wire()
    wire.later(100)
    wire.feed(post(b"12345")[:received])
    wire.later(30)
    assert wire.transport.written == b""
    wire.later(0.1)
    assert wire.transport.written == LATE
    assert wire.is_closed()


@pytest.mark.parametrize(
    ("target", "budget_s"), [(b"/mutate", 29.9), (b"/mutate?timeout=10s", 9.9), (b"/other", 30)]
)
def test_incomplete_body_is_408_after_the_budget(target: bytes, budget_s: float) -> None:
    """A refused request has no budget."""
    wire = Wire()
    wire.feed(post(b"12345", target)[:-1])
    wire.later(budget_s - 0.1)
    assert wire.transport.written == b""
    wire.later(0.2)
    text = f"request not complete {budget_s:g} seconds after its first byte"
    assert wire.transport.written == refused(b"408 Request Timeout", text, CLOSE)
    assert wire.is_closed()
    assert wire.connections.bytes.total_bytes == 0


def test_review_that_was_sent_so_slowly_that_no_time_is_left_is_503_and_not_begun() -> None:
    """Between two sweeps. It may be sent again, since no worker was called."""
    wire = Wire()
    stream = post(b"12345", b"/mutate?timeout=10s")
    wire.feed(stream[:-1])
    wire.clock.now += 9.9
    assert wire.feed(stream[-1:]) == late("9.9")
    assert wire.is_closed()
    assert wire.app.seen == []
    assert wire.connections.bytes.total_bytes == 0


def late(budget_s: str) -> bytes:
    text = f"the {budget_s} seconds for the review were over before it began"
    return refused(b"503 Service Unavailable", text, b"Retry-After: 1\r\n" + CLOSE)


def test_pipelined_review_whose_time_passes_behind_another_is_503_and_not_begun() -> None:
    wire = Wire(Application(holds=True))
    wire.feed(
        post(b"1") + post(b"2", b"/mutate?timeout=30s") + post(b"3", b"/mutate?timeout=3s") + post(b"4")
    )
    wire.clock.now += 2
    wire.app.seen[0].respond(200, b"1")
    assert [exchange.request.body for exchange in wire.app.seen] == [b"1", b"2"]
    wire.clock.now += 2
    wire.app.seen[1].respond(200, b"2")
    assert wire.transport.written == ok(b"1") + ok(b"2") + late("1.9")  # may have been rounded up
    assert len(wire.app.seen) == 2
    assert wire.is_closed()
    assert isinstance(wire.service, Router)
    assert wire.service.in_flight == wire.connections.bytes.total_bytes == 0


def test_trickle_does_not_extend_the_30_s() -> None:
    wire = Wire()
    for byte in post(b"12345")[:31]:
        wire.feed(bytes([byte]))
        wire.later(1)
    assert wire.transport.written == LATE


def test_waiting_behind_another_request_does_not_count_as_reading() -> None:
    """The limit for reading does not apply to the second request; the budget of its review does."""
    wire = Wire(Application(holds=True))
    wire.feed(post(b"1") + post(b"2")[:60])
    wire.later(29)
    wire.app.seen[0].respond(200, b"")
    wire.later(29)
    assert wire.feed(post(b"2")[60:]) == ok(b"") + late("29.9")


def test_request_in_flight_is_left_alone() -> None:
    wire = Wire(Application(holds=True))
    wire.feed(post(b"1"))
    wire.later(500)
    wire.app.seen[0].respond(200, b"1")
    assert wire.transport.written == ok(b"1")


def test_client_that_does_not_read_its_answer_for_30_s_is_dropped() -> None:
    wire = Wire()
    wire.transport.unsent = 70_000
    wire.feed(post(b"1"))
    wire.connection.pause_writing()
    wire.later(29)
    wire.transport.unsent = 69_000  # slow, but reading
    wire.later(2)
    wire.later(30)
    assert not wire.transport.aborted
    wire.later(1)
    assert wire.transport.aborted


def test_closing_connection_that_does_not_end_is_aborted() -> None:
    wire = Wire()
    wire.feed(post(b"1", extra=CLOSE))
    wire.later(30)
    assert not wire.transport.aborted
    wire.later(1)
    assert wire.transport.aborted


def test_old_connection_ends_with_its_next_answer_and_not_before() -> None:
    wire = Wire()
    for _ in range(6):
        wire.later(99.9)
        wire.feed(post(b"1"))
    assert wire.transport.written == ok(b"m:1") * 6
    wire.later(100)
    assert not wire.is_closed()
    assert wire.feed(post(b"2")).endswith(ok(b"m:2", CLOSE))
    assert wire.is_closed()


@pytest.mark.parametrize(("drawn", "lifetime_s"), [(0.0, 540.0), (0.5, 600.0), (1.0, 660.0)])
def test_lifetimes_differ_by_a_tenth_either_way(drawn: float, lifetime_s: float) -> None:
    connections = ConnectionTable(Router(Application(), {}), Bounds(), jitter=lambda: drawn)
    assert connections.lifetime_s() == pytest.approx(lifetime_s)


def test_deadline_counts_from_the_first_byte() -> None:
    wire = Wire(Application(holds=True))
    stream = post(b"1", b"/mutate?timeout=10s")
    wire.feed(stream[:5])
    wire.clock.now += 3
    wire.feed(stream[5:])
    assert [deadline.at for deadline in wire.app.deadlines] == [pytest.approx(1000 + 10 - 0.1)]


def test_while_there_is_no_room_idle_connections_end_soon() -> None:
    """With an answer to a request that may be on its way, so that no request is lost."""
    wire = Wire(bounds=Bounds(connections=2))
    wire.feed(post(b"1"))
    wire.later(2)
    assert not wire.is_closed()
    other = HttpConnection(wire.connections)
    other.connection_made(RecordingTransport())  # type: ignore[arg-type]
    other.get_buffer(-1)[:4] = b"POST"
    other.buffer_updated(4)
    wire.connections.handshaking = 0  # there were none
    wire.feed(post(b"1"))
    wire.later(1)
    assert not wire.is_closed()
    wire.later(0.1)
    assert wire.is_closed()
    assert wire.transport.written == ok(b"m:1") * 2 + CLOSING_IDLE
    wire.later(1.1)
    assert wire.transport.aborted


def test_a_sweep_ends_only_a_part_of_the_idle_connections() -> None:
    """Ending thousands in one sweep would delay all reviews, and cost API servers their connections."""
    wire = Wire(bounds=Bounds(connections=64))
    for _ in range(63):
        HttpConnection(wire.connections).connection_made(RecordingTransport())  # type: ignore[arg-type]
    wire.connections.handshaking = 0  # there were none
    crowd = [wire.connection, *wire.connections.open - {wire.connection}]
    for sweeps in (1, 2):
        wire.later(1.1)
        assert sum(each.state == "closing" for each in crowd) == 3 * sweeps  # type: ignore[attr-defined]


def test_while_draining_idle_connections_end_soon_and_others_with_their_answer() -> None:
    wire, busy = Wire(), Wire(Application(holds=True))
    busy.feed(post(b"1"))
    for each in (wire, busy):
        each.service.draining = True
        each.later(0.5)
        assert not each.is_closed()
        each.later(1)
    assert wire.is_closed()
    assert wire.transport.written == CLOSING_IDLE  # for a request that is on its way
    assert not busy.is_closed()
    busy.app.seen[0].respond(200, b"1")
    assert busy.transport.written == ok(b"1", CLOSE)
    assert busy.is_closed()

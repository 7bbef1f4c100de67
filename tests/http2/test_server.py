"""The server side of a connection, against h2 as the client, and against clients that violate HTTP/2."""

from __future__ import annotations

import gc
import struct
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission_gateway_worker.http2 import frames
from admission_gateway_worker.http2.fields import encode
from admission_gateway_worker.http2.frames import (
    MAX_HEADERS_BYTES,
    MAX_UNPRODUCTIVE_FRAMES,
    PREFACE,
    WINDOW_BYTES,
)
from admission_gateway_worker.http2.server import MAX_STREAMS, OUTPUT_BYTES, Http2Server, ServerStream
from tests import frames as raw
from tests.kit import without_collector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), (":authority", "worker.test")]
RESPONSE = encode((b":status", b"200"))
TRAILERS = encode((b"grpc-status", b"0"))
START = PREFACE + raw.frame(raw.SETTINGS)
OPEN = raw.headers(*((name.encode(), value.encode()) for name, value in REQUEST))
MAX_INPUT_BYTES = 9 + frames.MAX_FRAME_BYTES


class Echo:
    """Answers each request with its body."""

    def __init__(self, stream: ServerStream, fields: Mapping[str, str], *, is_reading: bool = True) -> None:
        self.stream, self.fields, self.is_reading = stream, dict(fields), is_reading
        self.body = b""
        self.has_ended = self.is_reset = False
        self.drained = 0

    def data(self, body: bytes, *, ends: bool) -> bool:
        assert not self.is_reset
        assert not self.has_ended
        self.body += body
        self.has_ended = ends
        if self.is_reading:
            self.stream.consumed(len(body))
        if ends:
            self.stream.send_headers(RESPONSE)
            self.stream.send(self.body)
            self.stream.end(TRAILERS)
        return bool(body)

    def reset(self) -> None:
        assert not self.is_reset
        self.is_reset = True

    def writable(self) -> None:
        assert not self.is_reset
        self.drained += 1


class Server:
    """A server whose requests are stored."""

    def __init__(self, *, is_reading: bool = True) -> None:
        self.requests: list[Echo] = []
        self.is_reading = is_reading
        self.http2 = Http2Server(self.accept)
        self.written = b""

    def accept(self, stream: ServerStream, fields: Mapping[str, str]) -> Echo:
        self.requests.append(Echo(stream, fields, is_reading=self.is_reading))
        return self.requests[-1]

    def receive(self, read: bytes) -> bytes:
        """Process *read* and return the output."""
        self.http2.receive(read)
        output = b""
        while True:
            while self.http2.has_more:
                self.http2.advance()
            if not self.http2.output:
                self.written += output
                return output
            output += self.http2.output
            self.http2.output.clear()
            self.http2.pump()

    def error(self) -> int | None:
        """Return the error code of the GOAWAY, if there is one."""
        return next(
            (struct.unpack(">L", p[4:8])[0] for kind, _, p in cut(self.written) if kind == raw.GOAWAY), None
        )

    def resets(self) -> dict[int, int]:
        """Return the error codes of the streams that were reset."""
        return {s: struct.unpack(">L", p)[0] for kind, s, p in cut(self.written) if kind == raw.RST_STREAM}


def cut(output: bytes) -> Sequence[tuple[int, int, bytes]]:
    """Return type, stream and payload of each frame."""
    found = []
    while output:
        high, low, kind, _, stream = frames.FRAME_HEAD.unpack_from(output)
        size = high << 8 | low
        found.append((kind, stream, output[9 : 9 + size]))
        output = output[9 + size :]
    return found


def started(*, is_reading: bool = True) -> Server:
    server = Server(is_reading=is_reading)
    server.receive(START)
    return server


@settings(max_examples=60, deadline=None)
@given(
    bodies=st.lists(st.binary(max_size=200) | st.integers(1, 300_000).map(bytes), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=5),
)
def test_requests_are_answered_whole_however_the_bytes_are_split(
    bodies: list[bytes], sizes: list[int]
) -> None:
    server = Server()
    client = h2.connection.H2Connection(h2.config.H2Configuration())
    client.initiate_connection()
    answers: dict[int, bytes] = {}
    rest: dict[int, bytes] = {}
    for body in bodies:
        number = client.get_next_available_stream_id()
        client.send_headers(number, REQUEST)
        answers[number], rest[number] = b"", body
    ended: set[int] = set()
    turns = 0
    while len(ended) < len(bodies):
        for number, body in list(rest.items()):
            room = min(client.local_flow_control_window(number), client.max_outbound_frame_size)
            client.send_data(number, body[:room], end_stream=room >= len(body))
            rest[number] = body[room:]
            if room >= len(body):
                del rest[number]
        sent = client.data_to_send()
        output = b""
        while sent:
            size = sizes[turns % len(sizes)]
            turns += 1
            output += server.receive(sent[:size])
            sent = sent[size:]
        for event in client.receive_data(output):
            if isinstance(event, h2.events.DataReceived):
                answers[event.stream_id] += event.data
                client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                ended.add(event.stream_id)
    assert list(answers.values()) == bodies
    assert [request.fields[":path"] for request in server.requests] == ["/a.B/C"] * len(bodies)
    assert not server.http2.streams


HEADERS_OF_ZERO = raw.headers(stream=0)
CONNECTION_ERRORS = [
    ("no preface", lambda: b"GET / HTTP/1.1\r\n", frames.PROTOCOL_ERROR),
    ("no preface before a frame", lambda: bytes(24) + raw.frame(raw.SETTINGS), frames.PROTOCOL_ERROR),
    (
        "a first frame other than SETTINGS",
        lambda: PREFACE + raw.frame(raw.PING, bytes(8)),
        frames.PROTOCOL_ERROR,
    ),
    (
        "a frame above the limit",
        lambda: START + raw.frame(raw.DATA, bytes(16_385), 0, 1),
        frames.FRAME_SIZE_ERROR,
    ),
    ("DATA before HEADERS", lambda: START + raw.frame(raw.DATA, b"", 0, 1), frames.PROTOCOL_ERROR),
    ("HEADERS on stream 0", lambda: START + HEADERS_OF_ZERO, frames.PROTOCOL_ERROR),
    ("a stream of the server", lambda: START + raw.frame(raw.HEADERS, b"", 4, 2), frames.PROTOCOL_ERROR),
    ("a smaller stream", lambda: START + raw.frame(raw.HEADERS, b"", 5, 5) + OPEN, frames.STREAM_CLOSED),
    ("HEADERS after the end", lambda: START + open_and_end() + OPEN, frames.STREAM_CLOSED),
    (
        "RST_STREAM before HEADERS",
        lambda: START + raw.frame(raw.RST_STREAM, bytes(4), 0, 1),
        frames.PROTOCOL_ERROR,
    ),
    ("a window of 0", lambda: START + raw.frame(raw.WINDOW_UPDATE, bytes(4)), frames.PROTOCOL_ERROR),
    ("a window too large", lambda: START + window(0, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
    ("PUSH_PROMISE", lambda: START + raw.frame(raw.PUSH_PROMISE, bytes(4), 4, 1), frames.PROTOCOL_ERROR),
    (
        "a header block that is not continued",
        lambda: START + raw.headers(flags=0) + OPEN,
        frames.PROTOCOL_ERROR,
    ),
    (
        "an invalid header block",
        lambda: START + raw.frame(raw.HEADERS, b"\xff" * 9, 4, 1),
        frames.COMPRESSION_ERROR,
    ),
    (
        "many CONTINUATION frames",
        lambda: START + raw.headers(flags=0) + raw.frame(raw.CONTINUATION, bytes(8192), 0, 1) * 3,
        frames.ENHANCE_YOUR_CALM,
    ),
    (
        "CONTINUATION frames without content",
        lambda: (
            START + raw.headers(flags=0) + raw.frame(raw.CONTINUATION, b"", 0, 1) * MAX_UNPRODUCTIVE_FRAMES
        ),
        frames.ENHANCE_YOUR_CALM,
    ),
    (
        "many PINGs",
        lambda: START + raw.frame(raw.PING, bytes(8)) * MAX_UNPRODUCTIVE_FRAMES,
        frames.ENHANCE_YOUR_CALM,
    ),
    (
        "many SETTINGS",
        lambda: START + raw.frame(raw.SETTINGS) * MAX_UNPRODUCTIVE_FRAMES,
        frames.ENHANCE_YOUR_CALM,
    ),
    (
        "many requests that are cancelled",
        lambda: (
            START
            + b"".join(opened(n) + raw.frame(raw.RST_STREAM, bytes(4), 0, n) for n in range(1, 10_100, 2))
        ),
        frames.ENHANCE_YOUR_CALM,
    ),
]


def opened(number: int) -> bytes:
    return raw.frame(raw.HEADERS, OPEN[9:], raw.END_HEADERS, number)


def open_and_end() -> bytes:
    return raw.frame(raw.HEADERS, OPEN[9:], raw.END_HEADERS | raw.END_STREAM, 1)


def window(stream: int, size: int) -> bytes:
    return raw.frame(raw.WINDOW_UPDATE, struct.pack(">L", size), 0, stream)


@pytest.mark.parametrize(
    ("read", "code"), [case[1:] for case in CONNECTION_ERRORS], ids=[case[0] for case in CONNECTION_ERRORS]
)
def test_a_violation_ends_the_connection(read: object, code: int) -> None:
    server = Server()
    assert callable(read)
    server.receive(read())
    assert server.error() == code
    assert server.http2.is_over
    assert not server.http2.streams
    assert all(request.is_reset or not request.stream.is_open for request in server.requests)
    written = server.written
    server.receive(OPEN)
    assert server.written == written


STREAM_ERRORS = [
    ("a malformed request", raw.headers((b":method", b"POST")), frames.PROTOCOL_ERROR),
    (
        "a name in upper case",
        raw.frame(raw.HEADERS, OPEN[9:] + encode((b"A", b"b")), 4, 1),
        frames.PROTOCOL_ERROR,
    ),
    ("trailers that end nothing", OPEN + raw.headers((b"a", b"b")), frames.PROTOCOL_ERROR),
    (
        "DATA after the end",
        OPEN + raw.frame(raw.DATA, b"", 1, 1) + raw.frame(raw.DATA, b"x", 0, 1),
        frames.STREAM_CLOSED,
    ),
    ("a window of 0", OPEN + raw.frame(raw.WINDOW_UPDATE, bytes(4), 0, 1), frames.PROTOCOL_ERROR),
    ("a window too large", OPEN + window(1, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
]


@pytest.mark.parametrize(
    ("read", "code"), [case[1:] for case in STREAM_ERRORS], ids=[case[0] for case in STREAM_ERRORS]
)
def test_a_violation_on_a_stream_ends_only_that(read: bytes, code: int) -> None:
    server = started()
    server.receive(read)
    assert server.resets()[1] == code
    assert server.error() is None
    server.receive(raw.frame(raw.HEADERS, OPEN[9:], raw.END_HEADERS | raw.END_STREAM, 3))
    assert server.requests[-1].has_ended


def test_streams_above_the_limit_are_refused() -> None:
    server = started()
    for number in range(1, 2 * MAX_STREAMS + 3, 2):
        server.receive(opened(number))
    assert len(server.http2.streams) == MAX_STREAMS
    assert server.resets() == {2 * MAX_STREAMS + 1: frames.REFUSED_STREAM}


def test_a_body_that_is_not_read_is_bounded_by_the_window() -> None:
    server = started(is_reading=False)
    server.receive(OPEN + raw.data(bytes(WINDOW_BYTES)))
    assert server.resets() == {}
    assert not [frame for frame in cut(server.written) if frame[:2] == (raw.WINDOW_UPDATE, 1)]
    # The connection's window is that of the other streams too.
    assert [frame for frame in cut(server.written) if frame[:2] == (raw.WINDOW_UPDATE, 0)]
    server.receive(raw.frame(raw.DATA, b"x", 0, 1))
    assert server.resets() == {1: frames.FLOW_CONTROL_ERROR}


def test_output_waits_for_the_caller_and_for_the_clients_windows() -> None:
    server = started()
    server.receive(window(0, 2**31 - 1 - 65_535))
    settings = ((frames.INITIAL_WINDOW_SIZE, 2**30), (frames.MAX_FRAME_SIZE, 2**24 - 1))
    first_window = raw.frame(raw.SETTINGS, b"".join(struct.pack(">HL", *setting) for setting in settings))
    server.receive(first_window + OPEN)
    server.http2.is_paused = True
    server.requests[0].stream.send_headers(RESPONSE)
    for _ in range(4):
        server.requests[0].stream.send(bytes(1_000_000))
    assert len(server.http2.output) < 100
    server.http2.is_paused = False
    server.http2.pump()
    assert OUTPUT_BYTES <= len(server.http2.output) < OUTPUT_BYTES + 66_000
    assert server.requests[0].drained == 0
    output = server.receive(b"")
    assert sum(len(payload) for kind, _, payload in cut(output) if kind == raw.DATA) == 4_000_000
    assert server.requests[0].drained == 1


def test_streams_share_the_connections_window_frame_by_frame() -> None:
    server = started()
    bodies = b"".join(opened(number) for number in (1, 3, 5))
    server.receive(bodies)
    for request in server.requests:
        request.stream.send_headers(RESPONSE)
    output = bytes(server.http2.output)
    server.http2.is_paused = True
    for request in server.requests:
        request.stream.send(bytes(60_000))
    server.http2.is_paused = False
    server.http2.pump()
    order = [stream for kind, stream, _ in cut(bytes(server.http2.output)[len(output) :]) if kind == raw.DATA]
    assert order == [1, 3, 5, 1]


def test_streams_that_are_cancelled_while_the_connections_window_is_closed_are_forgotten() -> None:
    with without_collector() as count:
        server = started()
        server.receive(opened(1) + raw.data(bytes(65_535)) + raw.frame(raw.DATA, b"", raw.END_STREAM, 1))
        for number in range(3, 8 * MAX_STREAMS, 2):
            body = raw.frame(raw.DATA, b"x", raw.END_STREAM, number)
            reset = raw.frame(raw.RST_STREAM, struct.pack(">L", frames.CANCEL), 0, number)
            server.receive(opened(number) + body + reset)
            server.http2.begin_period()
        server.requests.clear()
        assert server.error() is None
        gc.collect()
        assert 1 <= count(ServerStream) <= 2 * MAX_STREAMS


def test_a_shutdown_is_announced_and_later_requests_are_served_until_the_end() -> None:
    server = started()
    server.http2.announce_shutdown()
    server.receive(OPEN)
    assert len(server.requests) == 1
    server.http2.close()
    server.receive(raw.frame(raw.HEADERS, OPEN[9:], raw.END_HEADERS, 3))
    goaways = [
        struct.unpack(">LL", payload) for kind, _, payload in cut(server.written) if kind == raw.GOAWAY
    ]
    assert goaways == [(2**31 - 1, 0), (1, 0)]
    assert len(server.requests) == 1


FRAMES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        raw.frame,
        st.integers(0, 10),
        st.binary(max_size=12)
        | st.sampled_from([OPEN[9:], bytes(4), bytes(8), b"\x00\x00\x00\x05", bytes(300)]),
        st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D]),
        st.sampled_from([0, 1, 1, 3, 5, 2]),
    ),
    st.sampled_from([OPEN, open_and_end(), opened(3), window(0, 9), window(1, 70_000), raw.data(b"body")]),
)


@settings(max_examples=400, deadline=None)
@given(pieces=st.lists(FRAMES, max_size=12), has_start=st.booleans(), size=st.integers(1, 64))
def test_any_input_gives_bounded_output_whatever_its_split(
    pieces: list[bytes], has_start: bool, size: int
) -> None:
    received = (START if has_start else b"") + b"".join(pieces)
    whole, split = Server(), Server()
    whole.receive(received)
    split.receive(b"")
    for begin in range(0, len(received), size):
        split.receive(received[begin : begin + size])
    assert whole.written == split.written
    assert len(whole.written) <= 100 + 4 * len(received)
    assert whole.http2.unread_bytes <= MAX_INPUT_BYTES
    assert len(whole.http2._block or b"") <= MAX_HEADERS_BYTES
    for request in whole.requests:
        assert request.stream.is_open or not request.stream.unsent
        assert (request.stream.number in whole.http2.streams) == request.stream.is_open

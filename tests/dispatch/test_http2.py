"""A call on its HTTP/2 stream, against h2 as the server, and against servers that violate the protocol."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from admission_gateway_worker.http2.client import MAX_HEADER_BLOCKS
from admission_gateway_worker.http2.frames import MAX_UNPRODUCTIVE_FRAMES, STEP_FRAMES, WINDOW_BYTES
from admission_gateway_worker.http2.messages import MAX_MESSAGE_BYTES
from gateway.engine.dispatch.rpc import CallStatus, StreamingCall
from tests import frames as raw
from tests.frames import take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESPONSE = [(":status", "200"), ("content-type", "application/grpc")]
PATH = "/a.B/C"


class Server:
    """The server's side, by h2: it stores requests and sends answers."""

    def __init__(self, settings: dict[h2.settings.SettingCodes | int, int] | None = None) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.h2.initiate_connection()
        self.h2.update_settings(settings or {})
        self.request: dict[bytes, bytes] = {}
        self.body = b""
        self.has_ended = False
        self.is_reset = False

    def take(self, sent: bytes) -> None:
        for event in self.h2.receive_data(sent):
            if isinstance(event, h2.events.RequestReceived):
                self.request = dict(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self.body += event.data
                if event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, 1)
            elif isinstance(event, h2.events.StreamEnded):
                self.has_ended = True
            elif isinstance(event, h2.events.StreamReset):
                self.is_reset = True

    def messages(self) -> list[bytes]:
        found, rest = [], self.body
        while rest:
            compressed, length = struct.unpack(">BI", rest[:5])
            assert not compressed
            found.append(rest[5 : 5 + length])
            rest = rest[5 + length :]
        return found


def made() -> StreamingCall:
    return StreamingCall(PATH, "worker.test", "https")


def exchange(call: StreamingCall, server: Server, pieces: Callable[[bytes], Sequence[bytes]]) -> list[bytes]:
    """Pass bytes to and fro until both sides are quiet; return the messages that the call received."""
    received: list[bytes] = []
    while True:
        sent = bytes(call.http2.output)
        call.http2.output.clear()
        if sent:
            server.take(sent)
        answer = server.h2.data_to_send()
        for piece in pieces(answer):
            received += take(call, piece)
        if not sent and not answer:
            return received


def whole(data: bytes) -> list[bytes]:
    return [data] if data else []


def framed(*messages: bytes) -> bytes:
    return b"".join(struct.pack(">BI", 0, len(message)) + message for message in messages)


@given(
    request_bytes=st.lists(st.integers(0, 300) | st.integers(0, 100_000), max_size=6),
    answer_bytes=st.lists(st.integers(0, 300) | st.integers(0, 50_000), max_size=6),
    window=st.sampled_from([0, 1000, 65_535, 1_000_000]),
    max_frame=st.sampled_from([16_384, 20_000, 100_000]),
    cut=st.integers(1, 50) | st.integers(1000, 20_000),
    ends_first=st.booleans(),
)
@settings(deadline=None, max_examples=50)
def test_messages_arrive_complete_and_in_order_for_any_reads_and_windows(
    request_bytes: list[int], answer_bytes: list[int], window: int, max_frame: int, cut: int, ends_first: bool
) -> None:
    requests = [bytes([size % 251]) * size for size in request_bytes]
    answered = [bytes([size % 251]) * size for size in answer_bytes]
    codes = h2.settings.SettingCodes
    call, server = made(), Server({codes.INITIAL_WINDOW_SIZE: window, codes.MAX_FRAME_SIZE: max_frame})

    def pieces(data: bytes) -> list[bytes]:
        return [data[start : start + cut] for start in range(0, len(data), cut)]

    exchange(call, server, pieces)
    for message in requests:
        call.send(message)
    if ends_first:
        call.http2.finish_writing()
    exchange(call, server, pieces)
    if call.http2.is_blocked:
        assert not server.has_ended
        assert len(server.body) < len(framed(*requests))
        server.h2.increment_flow_control_window(2**21, 1)
        server.h2.increment_flow_control_window(2**21)
        exchange(call, server, pieces)
    assert server.messages() == requests
    assert not call.http2.is_blocked

    server.h2.send_headers(1, RESPONSE)
    body = framed(*answered)
    for start in range(0, len(body), 16_000):
        server.h2.send_data(1, body[start : start + 16_000], pad_length=cut % 7 or None)
    assert exchange(call, server, pieces) == answered
    assert server.has_ended is ends_first
    call.http2.finish_writing()
    exchange(call, server, pieces)
    assert server.has_ended
    server.h2.send_headers(1, [("grpc-status", "0")], end_stream=True)
    exchange(call, server, pieces)
    assert call.status == CallStatus("OK", "")


def test_the_request_is_a_grpc_call() -> None:
    call, server = made(), Server()
    exchange(call, server, whole)
    assert server.request == {
        b":method": b"POST",
        b":scheme": b"https",
        b":path": PATH.encode(),
        b":authority": b"worker.test",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
        b"user-agent": b"admission-gateway",
    }
    assert call.http2.is_settled


def test_more_data_than_the_window_arrives_because_the_window_is_updated() -> None:
    call, server = made(), Server()
    exchange(call, server, whole)
    server.h2.send_headers(1, RESPONSE)
    message = bytes(1_000_000)
    count = 3 * WINDOW_BYTES // len(message)
    for _ in range(count):
        body = framed(message)
        for start in range(0, len(body), 16_384):
            server.h2.send_data(1, body[start : start + 16_384])
        assert exchange(call, server, whole) == [message]


def test_a_stream_continues_after_a_goaway() -> None:
    call = settled()
    assert take(call, response() + GoAwayFrame(0, last_stream_id=1).serialize()) == []
    assert call.http2.is_leaving
    assert take(call, data(framed(b"late"))) == [b"late"]
    assert call.status is None


def test_a_goaway_that_excludes_the_stream_ends_it() -> None:
    call = settled()
    take(call, GoAwayFrame(0, last_stream_id=0).serialize())
    assert call.status == CallStatus("UNAVAILABLE", "the worker accepts no calls on this connection")


def test_a_ping_is_acknowledged_and_can_be_sent() -> None:
    call = settled()
    take(call, PingFrame(opaque_data=b"12345678").serialize())
    assert bytes(call.http2.output) == PingFrame(opaque_data=b"12345678", flags=["ACK"]).serialize()
    call.http2.output.clear()
    call.http2.ping()
    (ping,) = frames(bytes(call.http2.output))
    assert isinstance(ping, PingFrame)
    assert "ACK" not in ping.flags


def test_a_cancelled_call_is_reset_and_ignores_further_input() -> None:
    call, server = made(), Server()
    exchange(call, server, whole)
    call.cancel()
    server.take(bytes(call.http2.output))
    assert server.is_reset
    assert take(call, response() + data(framed(b"late"))) == []
    assert call.status == CallStatus("CANCELLED", "the stream was closed")


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        ("0", "", CallStatus("OK", "")),
        ("12", "Method%20not found%21", CallStatus("UNIMPLEMENTED", "Method not found!")),
        ("14", "%E2%82%AC", CallStatus("UNAVAILABLE", "\u20ac")),
        ("99", "", CallStatus("UNKNOWN", "")),
        ("", "", CallStatus("UNKNOWN", "")),
        ("9" * 5000, "", CallStatus("UNKNOWN", "")),
        ("-1", "", CallStatus("UNKNOWN", "")),
    ],
)
@pytest.mark.parametrize("has_response", [True, False])
def test_the_status_of_a_call(status: str, message: str, expected: CallStatus, has_response: bool) -> None:
    call = settled()
    trailers = [("grpc-status", status), ("grpc-message", message)]
    if has_response:
        take(call, response())
    else:
        trailers = [*RESPONSE, *trailers]
    take(call, headers(trailers, "END_STREAM"))
    assert call.status == expected


def test_an_informational_response_is_not_the_response() -> None:
    call = settled()
    take(call, headers([(":status", "103")]) + response() + data(framed(b"m")))
    assert call.status is None


def test_headers_may_be_continued_and_unknown_frames_come_between_messages() -> None:
    call = settled()
    block = hpack.Encoder().encode(RESPONSE)
    unknown = b"\x00\x00\x02\xee\x00\x00\x00\x00\x01hi"
    read = (
        HeadersFrame(1, block[:3]).serialize()
        + ContinuationFrame(1, block[3:], flags=["END_HEADERS"]).serialize()
    )
    assert take(call, read + unknown + data(framed(b"a", b""))) == [b"a", b""]


VIOLATIONS: list[tuple[str, Callable[[], bytes], str, str]] = [
    ("a frame of nonsense", lambda: b"HTTP/1.1 400 Bad Request\r\n\r\n", "INTERNAL", "invalid HTTP/2"),
    ("a long frame", lambda: b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", "INTERNAL", "16385 bytes"),
    ("data first", lambda: data(framed(b"m")), "INTERNAL", "DATA frame out of place"),
    ("data of an unknown stream", lambda: response() + data(b"", stream=3), "INTERNAL", "on another stream"),
    ("headers of an unknown stream", lambda: headers(RESPONSE, stream=3), "INTERNAL", "out of place"),
    (
        "a continuation of nothing",
        lambda: ContinuationFrame(1, b"").serialize(),
        "INTERNAL",
        "out of place",
    ),
    (
        "headers that do not end",
        lambda: HeadersFrame(1, b"").serialize() + data(b""),
        "INTERNAL",
        "not continued",
    ),
    (
        "headers without end",
        lambda: HeadersFrame(1, b"").serialize() + 5 * endless(),
        "INTERNAL",
        "16384 bytes",
    ),
    (
        "garbled headers",
        lambda: HeadersFrame(1, b"\xff" * 9, flags=["END_HEADERS"]).serialize(),
        "INTERNAL",
        "invalid header block",
    ),
    ("headers twice", lambda: response() + response(), "INTERNAL", "out of place"),
    ("an error page", lambda: headers([(":status", "503")]), "UNAVAILABLE", "found 503"),
    ("a page that is not there", lambda: headers([(":status", "404")]), "UNIMPLEMENTED", "found 404"),
    ("no status", lambda: headers([("a", "b")]), "INTERNAL", "no :status"),
    (
        "a web page",
        lambda: headers([(":status", "200"), ("content-type", "text/html")]),
        "UNKNOWN",
        "text/html",
    ),
    ("compression", lambda: response() + data(b"\x01\x00\x00\x00\x01m"), "INTERNAL", "compressed"),
    (
        "too long a message",
        lambda: response() + data(struct.pack(">BI", 0, MAX_MESSAGE_BYTES + 1)),
        "RESOURCE_EXHAUSTED",
        "larger than max",
    ),
    ("an end without status", lambda: response() + data(b"", "END_STREAM"), "INTERNAL", "without a status"),
    ("a push", lambda: PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]).serialize(), "INTERNAL", "push"),
    ("a huge window", lambda: WindowUpdateFrame(1, 2**31 - 1).serialize() * 2, "INTERNAL", "window"),
    ("a wrong frame size", lambda: SettingsFrame(settings={5: 1}).serialize(), "INTERNAL", "SETTINGS"),
    ("a wrong window", lambda: SettingsFrame(settings={4: 2**31}).serialize(), "INTERNAL", "SETTINGS"),
    ("a reset", lambda: RstStreamFrame(1, 2).serialize(), "INTERNAL", "error 2"),
    ("a refusal", lambda: RstStreamFrame(1, 7).serialize(), "UNAVAILABLE", "error 7"),
    ("a cancellation", lambda: RstStreamFrame(1, 8).serialize(), "CANCELLED", "error 8"),
]


@pytest.mark.parametrize(
    ("read", "code", "text"), [case[1:] for case in VIOLATIONS], ids=[c[0] for c in VIOLATIONS]
)
def test_a_violation_ends_the_call(read: Callable[[], bytes], code: str, text: str) -> None:
    call = settled()
    assert take(call, read()) == []
    assert call.status is not None
    assert (call.status.code, text in call.status.details) == (code, True), call.status
    # Later frames are ignored.
    assert take(call, response() + data(framed(b"m"))) == []


def test_more_data_than_the_window_is_a_violation() -> None:
    call = settled()
    take(call, response())
    call.http2._unacknowledged_bytes = WINDOW_BYTES
    take(call, data(b"x"))
    assert call.status == CallStatus("INTERNAL", "flow control window exceeded")


@pytest.mark.parametrize(
    "frame",
    [PingFrame(opaque_data=b"12345678"), SettingsFrame(), WindowUpdateFrame(0, 1), DataFrame(1)],
    ids=lambda frame: type(frame).__name__,
)
def test_a_flood_of_frames_ends_the_call(frame: Frame) -> None:
    call = settled()
    take(call, response())
    one = frame.serialize()
    for _ in range(20):
        take(call, one * (MAX_UNPRODUCTIVE_FRAMES // 10))
        assert call.status is None
        # Frames between answers are no flood.
        call.http2.begin_period()
    take(call, one * (MAX_UNPRODUCTIVE_FRAMES + 1))
    assert call.status == CallStatus("INTERNAL", "too many frames without data")


@pytest.mark.parametrize("first", [PingFrame(opaque_data=b"12345678"), WindowUpdateFrame(0, 1)], ids=repr)
def test_a_connection_must_begin_with_settings(first: Frame) -> None:
    call = made()
    take(call, first.serialize())
    assert not call.http2.is_settled
    assert call.status is not None


OK = (b":status", b"200")
GRPC = (b"content-type", b"application/grpc")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([OK, OK, GRPC], ":status after another field"),
        ([GRPC, OK], ":status after another field"),
        ([GRPC], "no :status"),
        ([(b":status", b"2\x1b0"), GRPC], ":status is not a status code"),
        ([(b":status", b"0200"), GRPC], ":status is not a status code"),
        ([OK, GRPC, GRPC], "more than one content-type"),
        ([OK, (b":path", b"/"), GRPC], "a pseudo-header field that is not allowed"),
        (
            [OK, (b"Content-Type", b"application/grpc")],
            "name of a field that is not allowed",
        ),
        ([OK, GRPC, (b"", b"")], "name of a field that is not allowed"),
        ([OK, GRPC, (b"a b", b"")], "name of a field that is not allowed"),
        *(
            ([OK, GRPC, (name, b"x")], f"the connection-specific field {name.decode()}")
            for name in (b"connection", b"upgrade")
        ),
        *(
            ([OK, (name, b"application/grpc" + bad)], f"a control character in the value of {name.decode()}")
            for name in (b"content-type", b"grpc-message", b"x")
            for bad in (b"\r\nlevel=error", b"\n", b"\x1b[31m", b"\x00", b"\x7f")
        ),
    ],
)
def test_malformed_headers_end_the_call_and_are_not_repeated(
    fields: list[tuple[bytes, bytes]], text: str
) -> None:
    call = settled()
    assert take(call, raw.headers(*fields) + raw.data(framed(b"m"))) == []
    assert call.status is not None
    assert (call.status.code, call.status.is_misconduct) == ("INTERNAL", True)
    assert text in call.status.details
    assert call.status.details.isprintable()


@pytest.mark.parametrize("field", [OK, (b"grpc-message", b"a\x1bb"), (b"transfer-encoding", b"x")], ids=repr)
def test_malformed_trailers_end_the_call(field: tuple[bytes, bytes]) -> None:
    call = settled()
    trailers = raw.headers((b"grpc-status", b"0"), field, flags=raw.END_HEADERS | raw.END_STREAM)
    take(call, raw.RESPONSE + trailers)
    assert call.status is not None
    assert call.status.details.startswith("malformed headers: ")


def test_a_percent_encoded_grpc_message_becomes_one_line() -> None:
    call = settled()
    trailers = [(b"grpc-status", b"14"), (b"grpc-message", b"a%0D%0Ab%1B[31mc")]
    take(call, raw.RESPONSE + raw.headers(*trailers, flags=raw.END_HEADERS | raw.END_STREAM))
    assert call.status == CallStatus("UNAVAILABLE", "a  b [31mc")


@pytest.mark.parametrize(
    ("one", "text"),
    [
        pytest.param(raw.data(b"x"), "too many frames", id="a byte of data"),
        pytest.param(
            raw.frame(raw.PING, bytes(8)) + raw.data(b"x"), "too many frames", id="a ping and a byte"
        ),
        pytest.param(raw.frame(raw.SETTINGS) + raw.data(b"x"), "too many frames", id="settings and a byte"),
        pytest.param(raw.frame(raw.WINDOW_UPDATE, b"\0\0\0\1", 0, 1), "too many frames", id="small windows"),
        pytest.param(raw.frame(0xEE), "too many frames", id="unknown frames"),
        pytest.param(
            raw.frame(raw.DATA, b"\xff" + bytes(255), raw.PADDED, 1), "too many frames", id="padding"
        ),
        pytest.param(raw.headers((b":status", b"103")), "header blocks", id="informational responses"),
        pytest.param(raw.frame(raw.SETTINGS, bytes(6 * 100)), "more than 32 settings", id="many settings"),
        pytest.param(
            raw.frame(raw.HEADERS, raw.literal(*OK[:1], b"100") + b"\x90" * 1500, raw.END_HEADERS, 1),
            "invalid header block: OversizedHeaderListError",
            id="many fields",
        ),
        pytest.param(
            raw.frame(raw.HEADERS, b"\x20" * 1500, raw.END_HEADERS, 1), "two size updates", id="size updates"
        ),
    ],
)
def test_every_flood_is_ended_soon(one: bytes, text: str) -> None:
    call = settled()
    begun = struct.pack(">BL", 0, MAX_MESSAGE_BYTES)
    call.send(bytes(1_000_000))
    if one[3] != raw.HEADERS:
        take(call, raw.RESPONSE + raw.data(begun))
    for _ in range(MAX_UNPRODUCTIVE_FRAMES // 50 + 1):
        take(call, one * 50)
    assert call.status is not None
    assert text in call.status.details
    assert call.status.is_misconduct


def test_a_long_message_in_full_frames_is_no_flood() -> None:
    call = settled()
    message = bytes(MAX_MESSAGE_BYTES)
    take(call, raw.RESPONSE)
    for _ in range(2):
        assert take(call, raw.data(framed(message), 1000)) == [message]
    assert call.status is None


def test_a_step_processes_few_frames_or_one_header_block() -> None:
    call = settled()
    one = raw.frame(raw.PING, bytes(8))
    call.http2.receive(one * (2 * STEP_FRAMES))
    assert call.next_message() is None
    assert call.http2.unread_bytes == len(one) * STEP_FRAMES
    take(call, b"")
    hint = raw.headers((b":status", b"103"))
    call.http2.receive(hint * MAX_HEADER_BLOCKS)
    assert call.next_message() is None
    assert call.http2.unread_bytes == len(hint) * (MAX_HEADER_BLOCKS - 1)


@given(st.binary(max_size=200))
def test_no_input_raises(read: bytes) -> None:
    for call in (made(), settled()):
        take(call, read)
        call.send(b"m")
        call.cancel()
        assert call.status is not None


def settled() -> StreamingCall:
    call = made()
    take(call, SettingsFrame().serialize())
    call.http2.output.clear()
    return call


def headers(fields: list[tuple[str, str]], *flags: str, stream: int = 1) -> bytes:
    block = hpack.Encoder().encode(fields)
    return HeadersFrame(stream, block, flags=["END_HEADERS", *flags]).serialize()


def response() -> bytes:
    # Without the table of the connection: each of these stands for itself.
    encoder = hpack.Encoder()
    return HeadersFrame(1, encoder.encode(RESPONSE), flags=["END_HEADERS"]).serialize()


def data(body: bytes, *flags: str, stream: int = 1) -> bytes:
    return DataFrame(stream, body, flags=flags).serialize()


def endless() -> bytes:
    return ContinuationFrame(1, bytes(16_384)).serialize()


def frames(read: bytes) -> list[Any]:
    found, view = [], memoryview(read)
    while view:
        frame, length = Frame.parse_frame_header(view[:9])
        frame.parse_body(view[9 : 9 + length])
        found.append(frame)
        view = view[9 + length :]
    return found

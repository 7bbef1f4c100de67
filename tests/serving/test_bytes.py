"""Requests and answers as bytes, without a socket, for any splitting of the bytes."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.server.serving.bounds import Bounds
from gateway.server.serving.http_connection import HttpConnection
from gateway.server.serving.message import CONTINUE
from gateway.server.serving.reader import RequestReader
from tests.kit import without_collector
from tests.serving.kit import CLOSE, TOO_LARGE, Application, Wire, chunked, ok, post, refused

HEAD = b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CODED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SMALL = Bounds(body_bytes=10)


def one_by_one(stream: bytes) -> list[bytes]:
    return [stream[i : i + 1] for i in range(len(stream))]


MALFORMED = {
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "the same length twice": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    "list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\nab",
    "signed length": HEAD + b"Content-Length: +2\r\n\r\nab",
    "empty length": HEAD + b"Content-Length:\r\n\r\n",
    "length beyond 64 bits": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    "length, then coding": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding, then length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "coding twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "coding in HTTP/1.0": b"POST /mutate HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "obs-fold": HEAD + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "folded length": HEAD + b"Content-Length:\r\n 2\r\n\r\nab",
    "space before colon": HEAD + b"Content-Length : 2\r\n\r\nab",
    "bare LF": HEAD.replace(b"\r\n", b"\n") + b"\n",
    "bare LF at the end": HEAD + b"\n",
    "bare CR": HEAD + b"X: a\rY: b\r\n\r\n",
    "NUL": HEAD + b"X: a\x00b\r\n\r\n",
    "hexadecimal prefix": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n",
    "negative chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
    "chunk size with space": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n",
    "chunk size overflow": HEAD + b"Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\nab\r\n",
    "chunk longer than its size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    "bare LF after chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n",
    "bare LF in extension": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;a\nb\r\nab\r\n0\r\n\r\n",
    "length in the trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
    "no host": b"POST /mutate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
    "two hosts": HEAD + b"Host: b\r\nContent-Length: 0\r\n\r\n",
    "the same host twice": HEAD + b"Host: a\r\nContent-Length: 0\r\n\r\n",
    "lower-case method": b"post /mutate HTTP/1.1\r\nHost: a\r\n\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "control character in target": b"POST /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces after the method": HEAD.replace(b"POST ", b"POST  ") + b"\r\n",
    "two spaces before the version": HEAD.replace(b" HTTP", b"  HTTP") + b"\r\n",
    "space before the method": b" " + HEAD + b"\r\n",
    "space after the version": HEAD.replace(b"1.1", b"1.1 ") + b"\r\n",
    "tab after the method": HEAD.replace(b"POST ", b"POST\t") + b"\r\n",
    "tab before the version": HEAD.replace(b" HTTP", b"\tHTTP") + b"\r\n",
    "form feed before the version": HEAD.replace(b" HTTP", b"\x0cHTTP") + b"\r\n",
    "space in target": HEAD.replace(b"/mutate", b"/mut ate") + b"\r\n",
    "bare CR in the request line": HEAD.replace(b"/mutate", b"/mut\rate") + b"\r\n",
    "target in other characters": HEAD.replace(b"/mutate", b"/mut\xffate") + b"\r\n",
    "version of another protocol": HEAD.replace(b"HTTP/1.1", b"RTSP/1.0") + b"\r\n",
    "version with two digits": HEAD.replace(b"HTTP/1.1", b"HTTP/1.10") + b"\r\n",
    "version in small letters": HEAD.replace(b"HTTP", b"http") + b"\r\n",
    "bare LF before a request": b"\n" + HEAD + b"\r\n",
    "bare CR before a request": b"\r" + HEAD + b"\r\n",
    "many empty lines": b"\r\n" * 3 + HEAD + b"\r\n",
    "tab before colon": HEAD + b"Content-Length\t: 2\r\n\r\nab",
    "space before the first field": HEAD.replace(b"Host", b" Host") + b"\r\n",
    "field without name": HEAD + b": a\r\n\r\n",
    "host with a space": HEAD.replace(b"Host: a", b"Host: a b") + b"\r\n",
    "host with a path": HEAD.replace(b"Host: a", b"Host: a/b") + b"\r\n",
    "host with a user": HEAD.replace(b"Host: a", b"Host: u@a") + b"\r\n",
    "length and coding in one": HEAD + b"Content-Length: 2\r\nTransfer-Encoding:\r\n\r\nab",
    "chunk size of 17 digits": CODED + b"00000000000000002\r\nab\r\n0\r\n\r\n",
    "chunk size with a tab": CODED + b"2\t\r\nab\r\n0\r\n\r\n",
    "chunk without size": CODED + b"\r\nab\r\n0\r\n\r\n",
    "extension without a name": CODED + b"2;\r\nab\r\n0\r\n\r\n",
    "extension with NUL": CODED + b"2;a\0\r\nab\r\n0\r\n\r\n",
    "extension with a line end in quotes": CODED + b'2;a="\r\n"\r\nab\r\n0\r\n\r\n',
    "bare CR in extension": CODED + b"2;a\rb\r\nab\r\n0\r\n\r\n",
    "bare LF after chunk": CODED + b"2\r\nab\n0\r\n\r\n",
    "bare LF after the last chunk": CODED + b"0\n\n",
    "coding in the trailer": CODED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "space before colon in the trailer": CODED + b"0\r\nA : b\r\n\r\n",
    "obs-fold in the trailer": CODED + b"0\r\nA: b\r\n c\r\n\r\n",
    "bare LF in the trailer": CODED + b"0\r\nA: b\n\r\n",
    "bare CR in the trailer": CODED + b"0\r\nA: b\rc\r\n\r\n",
    "trailer without a colon": CODED + b"0\r\nAb\r\n\r\n",
    "tiny chunks without end": CODED + b"1\r\na\r\n" * 1100 + b"0\r\n\r\n",
    "trailer with NUL": CODED + b"0\r\nX: \0\r\n\r\n",
    "chunk without its end": CODED + b"2\r\nab0\r\n\r\n",
    **{
        f"chunk size {size!r}": CODED + size + b"\r\nab\r\n0\r\n\r\n"
        for size in (b"+2", b" 2", b"0" * 5000 + b"2", b"10000000000000002")
    },
    **{
        f"length {length!r}": HEAD + b"Content-Length: " + length + b"\r\n\r\nab"
        for length in (b"2, 300", b"-2", b"0x2", b"1_0", b"2.0", "\uff12".encode(), b"18446744073709551618")
    },
    **{
        f"field {field!r}": HEAD + field + b"\r\n\r\n0\r\n\r\n"
        for field in (
            *(b"Content-Length 2", b"X\0: a", b"X: a\nTransfer-Encoding: chunked"),
            *(
                b"Transfer-Encoding: chunked,",
                b"Transfer-Encoding: \x0bchunked",
                b"Transfer-Encoding:\r\n chunked",
            ),
            *(b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: xchunked\r\nContent-Length: 2"),
            b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\nContent-Length: 2",
        )
    },
}


@pytest.mark.parametrize("stream", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("split", [lambda s: [s], one_by_one], ids=["whole", "bytes"])
def test_malformed_request_is_400_and_ends_the_connection(stream: bytes, split: object) -> None:
    wire = Wire()
    answer = wire.feed(*split(stream + post()))  # type: ignore[operator]
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b'\r\n\r\n{"error":"bad HTTP: ' in answer
    assert CLOSE in answer
    assert answer.count(b"HTTP/1.1") == 1 + answer.count(b"expected HTTP/1.1")
    assert wire.is_closed()
    assert wire.app.seen == []


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (b"GET /mutate\r\n\r\n", b"505 HTTP Version Not Supported"),
        (b"POST /mutate HTTP/2.0\r\nHost: a\r\n\r\n", b"505 HTTP Version Not Supported"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"501 Not Implemented"),
        *(
            (HEAD + b"Transfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n", b"501 Not Implemented")
            for coding in (
                b'"chunked"',
                b"identity, chunked",
                b"xchunked",
                b",chunked",
                b"chunked;q=1",
                b"chunked\xa0",
            )
        ),
        (HEAD + b"Expect: 200-ok\r\nContent-Length: 2\r\n\r\n", b"417 Expectation Failed"),
    ],
)
def test_unsupported_http_is_refused_and_ends_the_connection(stream: bytes, status: bytes) -> None:
    wire = Wire()
    assert wire.feed(stream + post()).startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert wire.is_closed()
    assert wire.app.seen == []


VALID = {
    "as kube-apiserver": (post(b'{"a":1}', b"/mutate?timeout=10s"), ok(b'm:{"a":1}')),
    "no body": (post(b""), ok(b"m:")),
    "chunked": (chunked(b"ab", b"cde"), ok(b"m:abcde")),
    "chunk extension": (
        HEAD + b'Transfer-Encoding: chunked\r\n\r\n2;a=b;c="d e"\r\nab\r\n0\r\n\r\n',
        ok(b"m:ab"),
    ),
    "trailer": (
        chunked(b"ab", trailer=b"Host: b\r\nContent-Type: text/plain\r\nExpect: x\r\n"),
        ok(b"m:ab"),
    ),
    "an extension and a trailer of kilobytes": (
        CODED + b"2;a=%b\r\nab\r\n0\r\nX: %b\r\n\r\n" % (b"b" * 15_000, b"c" * 15_000),
        ok(b"m:ab"),
    ),
    "a thousand tiny chunks": (CODED + b"1\r\na\r\n" * 1023 + b"0\r\n\r\n", ok(b"m:" + b"a" * 1023)),
    "chunk size of 16 digits": (CODED + b"0000000000000002\r\nab\r\n000\r\n\r\n", ok(b"m:ab")),
    "one empty line": (b"\r\n" + post(b"x"), ok(b"m:x")),
    "no value of Host": (HEAD.replace(b"Host: a", b"Host:") + b"Content-Length: 0\r\n\r\n", ok(b"m:")),
    "host of IPv6": (HEAD.replace(b"Host: a", b"Host: [::1]:443") + b"Content-Length: 0\r\n\r\n", ok(b"m:")),
    "coding in capitals": (HEAD + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", ok(b"m:")),
    "other path": (post(b"x", b"/mutate/one"), ok(b"m1:x")),
    "absolute form": (post(b"x", b"https://gw:443/validate?timeout=1s"), ok(b"v:x")),
    "leading empty lines": (b"\r\n\r\n" + post(b"x"), ok(b"m:x")),
    "upgrade without the connection option": (post(b"x", extra=b"Upgrade: h2c\r\n"), ok(b"m:x")),
    "discarded body": (
        post(b"x" * 90, b"/other"),
        refused(b"404 Not Found", 'nothing is configured at "/other"'),
    ),
    "GET": (
        b"GET /mutate HTTP/1.1\r\nHost: a\r\n\r\n",
        refused(b"405 Method Not Allowed", "GET is not possible here, expected POST", b"Allow: POST\r\n"),
    ),
    "HEAD": (
        b"HEAD /mutate HTTP/1.1\r\nHost: a\r\n\r\n",
        refused(
            b"405 Method Not Allowed", "HEAD is not possible here, expected POST", b"Allow: POST\r\n"
        ).split(b"{")[0],
    ),
    "expecting": (
        post(b"ab", extra=b"Expect: 100-continue\r\n"),
        CONTINUE + ok(b"m:ab"),
    ),
}


@pytest.mark.parametrize(("stream", "answer"), VALID.values(), ids=VALID.keys())
def test_valid_request_has_exactly_this_answer(stream: bytes, answer: bytes) -> None:
    assert Wire().feed(stream) == answer
    assert Wire().feed(*one_by_one(stream)) == answer


@given(st.lists(st.sampled_from(sorted(VALID)), min_size=1, max_size=6), st.data())
@settings(max_examples=300, deadline=None)
def test_any_split_of_a_pipeline_gives_the_same_bytes(names: list[str], data: st.DataObject) -> None:
    stream = b"".join(VALID[name][0] for name in names)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a != b]
    wire = Wire()
    assert wire.feed(*pieces) == b"".join(VALID[name][1] for name in names)
    assert not wire.is_closed()
    assert wire.connection.state == "idle"


@given(st.lists(st.sampled_from(sorted(VALID)), min_size=2, max_size=6))
@settings(max_examples=100, deadline=None)
def test_late_answers_leave_in_the_order_of_requests(names: list[str]) -> None:
    wire = Wire(Application(holds=True))
    wire.feed(b"".join(VALID[name][0] for name in names))
    while wire.app.seen and wire.app.seen[-1].is_open:
        assert len([exchange for exchange in wire.app.seen if exchange.is_open]) == 1
        exchange = wire.app.seen[-1]
        exchange.respond(200, exchange.selection.encode() + b":" + exchange.request.body)
    answers = b"".join(VALID[name][1] for name in names)
    # A request whose body arrived during other answers gets no 100 Continue.
    assert wire.transport.written.replace(CONTINUE, b"") == answers.replace(CONTINUE, b"")
    assert wire.transport.written.endswith(VALID[names[-1]][1].removeprefix(CONTINUE))
    assert not wire.is_paused()


@given(st.binary(max_size=300), st.integers(1, 300))
@settings(max_examples=300, deadline=None)
def test_garbage_never_reaches_the_application(garbage: bytes, step: int) -> None:
    wire = Wire()
    wire.feed(*(garbage[i : i + step] for i in range(0, len(garbage), step)))
    assert wire.app.seen == []
    assert wire.is_closed() or not wire.transport.written
    assert not wire.transport.aborted


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.booleans())
@settings(max_examples=100, deadline=None)
def test_h11_and_the_gateway_understand_each_other(bodies: list[bytes], by_chunks: bool) -> None:
    wire, client = Wire(), h11.Connection(h11.CLIENT)
    for body in bodies:
        framing = ("Transfer-Encoding", "chunked") if by_chunks else ("Content-Length", str(len(body)))
        head = [("Host", "a"), ("Content-Type", "application/json"), framing]
        sent = client.send(h11.Request(method="POST", target="/mutate", headers=head)) or b""
        sent += client.send(h11.Data(data=body)) or b""
        sent += client.send(h11.EndOfMessage()) or b""
        wire.transport.written = b""
        client.receive_data(wire.feed(sent))
        response = client.next_event()
        assert isinstance(response, h11.Response)
        assert response.status_code == 200
        assert [name for name, _ in response.headers] == [b"content-type", b"content-length"]
        received = b""
        while isinstance(event := client.next_event(), h11.Data):
            received += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        assert received == b"m:" + body
        client.start_next_cycle()


def test_request_after_connection_close_is_not_served() -> None:
    wire = Wire()
    assert wire.feed(post(b"a", extra=CLOSE) + post(b"b")) == ok(b"m:a", CLOSE)
    assert wire.is_closed()
    assert len(wire.app.seen) == 1


@pytest.mark.parametrize("extra", [b"", b"Connection: keep-alive\r\n"])
def test_http_1_0_ends_with_its_answer(extra: bytes) -> None:
    wire = Wire()
    stream = (
        b"POST /mutate HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 1\r\n%b\r\na" % extra
    )
    assert wire.feed(stream) == ok(b"m:a", CLOSE)
    assert wire.is_closed()


@pytest.mark.parametrize("split", [lambda s: [s], one_by_one], ids=["whole", "bytes"])
@pytest.mark.parametrize(
    "framing", [b"Content-Length: 2\r\n\r\nab", b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"]
)
def test_upgrade_to_h2c_is_answered_as_an_ordinary_request(framing: bytes, split: object) -> None:
    wire = Wire()
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    answer = wire.feed(*split(HEAD + upgrade + framing))  # type: ignore[operator]
    assert answer == ok(b"m:ab", CLOSE)
    assert wire.is_closed()


def test_bytes_after_a_request_with_upgrade_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire()
    stream = post(b"{}", extra=b"Connection: Upgrade\r\nUpgrade: h2c\r\n")
    assert wire.feed(stream + post(b"more")) == ok(b"m:{}", CLOSE)
    wire = Wire(bounds=Bounds(body_bytes=1))
    large = stream.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked").replace(b"{}", b"2\r\n{}\r\n")
    assert wire.feed(large) == refused(TOO_LARGE, "body over 1 bytes", CLOSE)
    assert caplog.text == ""


def test_upgrade_to_websocket_is_an_ordinary_get() -> None:
    wire = Wire()
    stream = b"GET /mutate HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x00\x01"
    assert wire.feed(stream).startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert wire.is_closed()


def test_connect_is_refused() -> None:
    wire = Wire()
    assert wire.feed(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nabc").startswith(
        b"HTTP/1.1 404 Not Found\r\n"
    )
    assert wire.is_closed()


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (post(b"", b"/other"), b"404 Not Found"),
        (post(b"").replace(b"POST", b"PUT"), b"405 Method Not Allowed"),
        (post(b"").replace(b"application/json\r", b"text/plain\r"), b"415 Unsupported Media Type"),
        (post(b"", b"/mutate?timeout=x"), b"400 Bad Request"),
        (post(b"0123456789a"), TOO_LARGE),
    ],
)
def test_refusal_comes_instead_of_100_continue(stream: bytes, status: bytes) -> None:
    wire = Wire(bounds=SMALL)
    head = stream.partition(b"\r\n\r\n")[0] + b"\r\nExpect: 100-continue\r\n\r\n"
    answer = wire.feed(head)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"100 Continue" not in answer
    assert wire.is_closed()


def test_100_continue_waits_for_the_answers_before_it() -> None:
    wire = Wire(Application(holds=True))
    head, _, body = post(b"ab", extra=b"Expect: 100-continue\r\n").partition(b"\r\n\r\n")
    assert wire.feed(post(b"first") + head + b"\r\n\r\n") == b""
    wire.app.seen[0].respond(200, b"1")
    assert wire.transport.written == ok(b"1") + b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.feed(body)
    wire.app.seen[1].respond(200, b"2")
    assert wire.transport.written.endswith(ok(b"2"))


def test_body_of_the_allowed_size_is_accepted_and_one_byte_more_is_not() -> None:
    assert Wire(bounds=SMALL).feed(post(b"0123456789")) == ok(b"m:0123456789")
    assert Wire(bounds=SMALL).feed(chunked(b"01234", b"56789")) == ok(b"m:0123456789")
    too_large = refused(TOO_LARGE, "body over 10 bytes", CLOSE)
    assert Wire(bounds=SMALL).feed(chunked(b"01234", b"56789", b"a")) == too_large
    wire = Wire(bounds=SMALL)
    assert wire.feed(post(b"0123456789a").removesuffix(b"0123456789a")) == too_large
    assert wire.is_closed()
    assert wire.feed(b"0123456789a" + post()) == too_large


def test_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 8192
    assert Wire().feed(post(body)) == ok(b"m:" + body)
    assert Wire().feed(chunked(body[:1], body[1:])) == ok(b"m:" + body)


def head_of(length: int) -> bytes:
    """A head whose target and fields count *length* bytes."""
    counted = (
        len(b"/mutate") + len(b"Host: a\r\n") + len(b"Content-Type: application/json\r\n") + len(b"X: \r\n")
    )
    return HEAD + b"X: " + b"x" * (length - counted) + b"\r\n\r\n"


@pytest.mark.parametrize("split", [lambda s: [s], lambda s: [s[:9000], s[9000:]]], ids=["whole", "two reads"])
def test_head_over_16_kib_is_431(split: object) -> None:
    assert Wire().feed(*split(head_of(16_384))) == ok(b"m:")  # type: ignore[operator]
    too_large = refused(b"431 Request Header Fields Too Large", "header block over 16384 bytes", CLOSE)
    wire = Wire()
    assert wire.feed(*split(head_of(16_385) + post())) == too_large  # type: ignore[operator]
    assert wire.is_closed()


@pytest.mark.parametrize(
    "rest",
    [
        b"2;a=" + b"b" * 40_000 + b"\r\nab\r\n0\r\n\r\n",
        (b"2;a=" + b"b" * 500 + b"\r\nab\r\n") * 100 + b"0\r\n\r\n",
        b"2\r\nab\r\n0;a=" + b"b" * 40_000 + b"\r\n\r\n",
        b"2\r\nab\r\n0\r\nX: " + b"y" * 30_000 + b"\r\n\r\n",
        b"2\r\nab\r\n0\r\n" + b"X: y\r\n" * 99 + b"\r\n",
    ],
    ids=["extension", "extensions", "extension of the last chunk", "trailer", "trailer fields"],
)
@pytest.mark.parametrize("piece_bytes", [1, 1000, 65_536])
def test_framing_over_16_kib_or_100_fields_is_431(rest: bytes, piece_bytes: int) -> None:
    wire, stream = Wire(), CODED + rest + post()
    answer = wire.feed(*(stream[i : i + piece_bytes] for i in range(0, len(stream), piece_bytes)))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert CLOSE in answer
    assert wire.is_closed()
    assert wire.app.seen == []


@pytest.mark.parametrize("cut", [10, 5000, 16_000])
def test_head_over_16_kib_behind_another_request_is_431(cut: int) -> None:
    stream = post(b"1") + head_of(16_385)
    wire = Wire()
    assert wire.feed(stream[: len(post(b"1")) + cut], stream[len(post(b"1")) + cut :]).startswith(
        ok(b"m:1") + b"HTTP/1.1 431 "
    )


@pytest.mark.parametrize(
    "stream",
    [
        HEAD + b"X: " + b"x" * 20_000,
        HEAD + b"".join(b"X%d: y\r\n" % number for number in range(3000)),
        b"POST /" + b"x" * 20_000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"x" * 40_000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 40_000,
    ],
    ids=["one field", "many fields", "target", "chunk extension", "trailer"],
)
def test_endless_head_is_431_before_it_ends(stream: bytes) -> None:
    wire = Wire()
    answer = wire.feed(*(stream[i : i + 1000] for i in range(0, len(stream), 1000)))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert wire.is_closed()


def test_body_of_a_refused_request_is_not_kept() -> None:
    wire = Wire()
    wire.feed(post(b"x" * 100_000, b"/other")[:90_000])
    assert wire.transport.written == b""
    assert wire.connection._reader._kept == b""
    assert wire.connections.bytes.total_bytes == 0


def test_more_than_100_fields_are_431() -> None:
    """Each field takes several objects, much more memory than its bytes."""
    fields = b"".join(b"a%d:\r\n" % number for number in range(98))
    assert Wire().feed(HEAD + fields + b"\r\n") == ok(b"m:")
    wire = Wire()
    too_many = refused(b"431 Request Header Fields Too Large", "more than 100 header fields", CLOSE)
    assert wire.feed(post(b"1") + HEAD + fields + b"b:c\r\n") == ok(b"m:1")
    assert wire.feed(b"\r\n" + post(b"2")) == ok(b"m:1") + too_many
    assert wire.is_closed()
    assert len(wire.app.seen) == 1


def test_a_client_that_is_refused_repeatedly_has_to_reconnect() -> None:
    wire = Wire(bounds=Bounds(refusals=3))
    bad, good = post(b"x", b"/other"), post(b"1")
    not_found = b'nothing is configured at "/other"'.decode()
    kept, last = refused(b"404 Not Found", not_found), refused(b"404 Not Found", not_found, CLOSE)
    assert wire.feed(bad * 2 + good + bad * 2 + good) == kept * 2 + ok(b"m:1") + kept * 2 + ok(b"m:1")
    wire.transport.written = b""
    assert wire.feed(bad * 9 + good) == kept * 2 + last
    assert wire.is_closed()
    assert wire.connections.refused == {404: 7}
    assert len(wire.app.seen) == 2


def test_the_number_of_requests_that_wait_on_one_connection_is_bounded() -> None:
    wire = Wire(Application(holds=True), Bounds(pipelined=2))
    wire.feed(b"".join(post(b"%d" % number) for number in range(6)))
    for number in range(3):
        wire.app.seen[number].respond(200, b"%d" % number)
    text = "too many requests wait on this connection"
    too_many = refused(b"503 Service Unavailable", text, b"Retry-After: 1\r\n" + CLOSE)
    assert wire.transport.written == ok(b"0") + ok(b"1") + ok(b"2") + too_many
    assert len(wire.app.seen) == 3
    assert wire.is_closed()
    assert wire.connections.bytes.total_bytes == 0


def test_reading_pauses_while_more_waits_behind_a_request_in_flight() -> None:
    wire = Wire(Application(holds=True))
    wire.feed(post(b"1"))
    assert not wire.is_paused()
    wire.feed(post(b"2")[:50])
    assert wire.is_paused()
    wire.app.seen[0].respond(200, b"")
    assert not wire.is_paused()


def test_no_request_begins_while_the_client_does_not_read() -> None:
    wire = Wire()
    wire.feed(post(b"1"))
    wire.connection.pause_writing()
    assert wire.is_paused()
    wire.feed(post(b"2"))
    assert len(wire.app.seen) == 1
    assert wire.connection.state == "sending"
    wire.connection.resume_writing()
    assert wire.transport.written == ok(b"m:1") + ok(b"m:2")
    assert not wire.is_paused()


def test_one_write_per_answer() -> None:
    wire = Wire()
    wire.feed(post(b"1"), post(b"2"), post(b"3", b"/other"))
    assert wire.transport.writes == 3


def test_second_answer_is_ignored() -> None:
    wire = Wire(Application(holds=True))
    wire.feed(post(b"1"))
    wire.app.seen[0].respond(200, b"a")
    wire.app.seen[0].respond(200, b"b")
    assert wire.transport.written == ok(b"a")


def test_client_that_disconnects_cancels_its_request_once() -> None:
    wire = Wire(Application(holds=True))
    wire.feed(post(b"1") + post(b"2"))
    wire.lose()
    assert wire.app.cancelled == wire.app.seen
    assert len(wire.app.seen) == 1
    wire.app.seen[0].respond(200, b"late")
    assert wire.transport.written == b""
    assert not wire.connections.open


def test_client_that_disconnects_after_the_answer_cancels_nothing() -> None:
    wire = Wire(Application(holds=True))
    wire.feed(post(b"1"))
    wire.app.seen[0].respond(200, b"a")
    wire.lose()
    assert wire.app.cancelled == []


def test_lost_connection_is_freed_without_the_collector() -> None:
    with without_collector() as count:
        wire = Wire()
        wire.feed(post(b"1"), post(b"2")[:40])
        wire.lose()
        assert (count(HttpConnection), count(RequestReader)) == (1, 1)
        del wire.connection
        assert count(HttpConnection, RequestReader) == 0


def test_repr_is_a_status_line() -> None:
    wire = Wire(Application(holds=True))
    assert repr(wire.connection) == "<HttpConnection 10.0.0.1:4711, HTTP/1.1, idle, 0 requests>"
    wire.feed(post(b"1")[:20])
    assert "reading" in repr(wire.connection)
    wire.feed(post(b"1")[20:])
    assert "answering" in repr(wire.connection)
    wire.app.seen[0].respond(200, b"")
    assert repr(wire.connection) == "<HttpConnection 10.0.0.1:4711, HTTP/1.1, idle, 1 requests>"
    wire.connection.close()
    assert "closing" in repr(wire.connection)

"""The HTTP protocol: bytes of a client, cut into reads, through connection, reader and routes.

An input is a plan and then the stream. In the plain plan the same stream is read twice, whole and in pieces:
the answers must be equal, and requests must begin and end where h11 finds them. In the other plan there are
events between the reads: late answers, timeouts, a client that stops reading or disconnects, a drain.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from gateway.config.kinds.serving_settings import Authentication, ServerTls
from gateway.pure.core.review import decode
from gateway.server.serving.authentication import ClientAuthenticator
from gateway.server.serving.bounds import Bounds
from gateway.server.serving.message import CLOSING_IDLE, CONTINUE
from gateway.server.serving.routes import Router, RouterSettings
from tests.fuzz.answers import answers, by_h11
from tests.fuzz.documents import RECORDED
from tests.fuzz.laws import Faults
from tests.fuzz.source import Source
from tests.serving.kit import PATHS, Application, Wire, chunked, post

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.pure.core.deadline import Deadline
    from gateway.server.serving.message import Cancel, Exchange

MODULES: Final = (
    "gateway/server/serving/http_connection.py",
    "gateway/server/serving/reader.py",
    "gateway/server/serving/routes.py",
    "gateway/server/serving/message.py",
)
MAX_BYTES: Final = 2048
WORDS: Final = [
    *(
        b"POST ",
        b"GET ",
        b"HEAD ",
        b"CONNECT ",
        b"PRI ",
        b"/mutate",
        b"/validate",
        b"?timeout=",
        b"10s",
        b"1h",
    ),
    *(
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"HTTP/2.0",
        b"HTTP/0.9",
        b"\r\n\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n ",
    ),
    *(
        b"Host: a\r\n",
        b"Content-Length: ",
        b"Content-Length: 2\r\n",
        b"Transfer-Encoding: ",
        b"chunked",
        b"0\r\n",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Type: application/json\r\n", b"Expect: 100-continue\r\n"),
    *(
        b"Connection: close\r\n",
        b"Connection: keep-alive\r\n",
        b"Connection: Upgrade\r\n",
        b"Upgrade: h2c\r\n",
    ),
    *(
        b"Content-Encoding: gzip\r\n",
        b"0\r\n\r\n",
        b"2\r\nab\r\n",
        b"1;x=y\r\n",
        b"\0",
        b"\xff",
        b": ",
        b"gzip, ",
    ),
    *(b"Authorization: Bearer t0ken\r\n", b"Authorization: Basic dXNlcjpwYXNz\r\n", b"bearer ", b"t0ken"),
    *(
        b"User-Agent: kube-apiserver-admission\r\n",
        b"http://a/mutate",
        b"99999999999999999999",
        b"0x2",
        b"+2",
    ),
]

SMALL: Final = Bounds(head_bytes=300, body_bytes=64)
LARGE: Final = Bounds()
ALLOWED: Final = {100, 200, 400, 401, 404, 405, 408, 413, 415, 417, 431, 501, 503, 505}
_faults = Faults()


def _authenticator() -> ClientAuthenticator:
    with tempfile.TemporaryDirectory() as folder:
        tokens, users = Path(folder) / "tokens", Path(folder) / "users"
        tokens.write_text("t0ken\n")
        users.write_text("user:pass\n")
        return ClientAuthenticator(Authentication(tokens, users), ServerTls())


_AUTHENTICATOR: Final = _authenticator()


class App(Application):
    """Decodes the bodies of ``/mutate`` as reviews, and answers every request with its body."""

    def __call__(self, exchange: Exchange, selection: str, deadline: Deadline) -> Cancel | None:
        self.seen.append(exchange)
        body = exchange.request.body
        if selection == "m":
            decode(body)
        if self.holds:
            return lambda: self.cancelled.append(exchange)
        exchange.respond(200, orjson.dumps([selection, body.decode("latin-1")]))
        return None


def run(data: bytes) -> None:
    source = Source(data)
    plan = source.byte()
    bounds = SMALL if plan & 1 else LARGE
    with _faults:
        if plan & 2:
            _with_events(source, bounds, plan)
        else:
            _plain(source, bounds, plan)


def _plain(source: Source, bounds: Bounds, plan: int) -> None:
    pieces = source.take(16)
    stream = source.rest()
    whole, cut = _wire(bounds, plan), _wire(bounds, plan)
    whole.feed(stream)
    cut.feed(*Source(pieces).pieces(stream))
    for wire in (whole, cut):
        _check(wire)
    _check_against_h11(stream, whole)
    # A longer head is refused at the end of a read, so the answers depend on where reads end.
    if len(stream) <= bounds.head_bytes:
        assert _final_answers(whole) == _final_answers(cut), "the answers depend on how the bytes were cut"
        assert whole.is_closed() is cut.is_closed()
        assert _requests(whole) == _requests(cut)


def _requests(wire: Wire) -> list[tuple[bytes, bytes, bytes]]:
    requests = [exchange.request for exchange in wire.app.seen]
    return [(request.method, request.target, request.body) for request in requests]


def _with_events(source: Source, bounds: Bounds, plan: int) -> None:
    wire = _wire(bounds, plan)
    events = source.take(16)
    pieces = Source(source.take(16)).pieces(source.rest())
    for event, piece in zip(events.ljust(len(pieces), b"\0"), pieces, strict=False):
        _act(wire, event)
        if not wire.is_paused():
            wire.feed(piece)
        open_requests = [exchange for exchange in wire.app.seen if exchange.is_open]
        assert len(open_requests) <= 1, "more than one request of a connection in flight"
        assert wire.service.in_flight == len(open_requests)  # type: ignore[union-attr] # the router
    for event in events[len(pieces) :]:
        _act(wire, event)
    _check(wire)
    in_flight = [exchange for exchange in wire.app.seen if exchange.is_open]
    wire.lose()
    assert wire.app.cancelled == in_flight, "exactly the requests in flight are cancelled, once"
    assert wire.service.in_flight == 0  # type: ignore[union-attr]
    assert not wire.connections.open
    written = wire.transport.written
    for exchange in wire.app.seen:
        exchange.respond(200, b"late")
    assert wire.transport.written == written, "an answer after the end of the connection"


def _act(wire: Wire, event: int) -> None:
    match event % 10:
        case 1 | 2:
            for exchange in wire.app.seen:
                exchange.respond(
                    200 if event & 16 else 503, b"{}", b"" if event & 16 else b"Retry-After: 1\r\n"
                )
        case 3 if wire.connection.state != "sending":
            wire.transport.unsent = 100_000
            wire.connection.pause_writing()
        case 4 if wire.connection.state == "sending":
            wire.transport.unsent = 0
            wire.connection.resume_writing()
        case 5:
            wire.later(2.0)
        case 6:
            wire.later(31.0)
        case 7:
            wire.later(121.0)
        case 8:
            wire.later(700.0)
        case 9:
            wire.service.draining = True


def _wire(bounds: Bounds, plan: int) -> Wire:
    app = App(holds=plan & 6 == 6)
    authenticator = _AUTHENTICATOR if plan & 8 else None
    return Wire(
        app, bounds, Router(app, PATHS, RouterSettings(max_concurrent_reviews=1 + (plan >> 4)), authenticator)
    )


def _check(wire: Wire) -> None:
    found = list(answers(wire.transport.written))
    closes = [number for number, (_, head, _) in enumerate(found) if b"Connection: close\r\n" in head]
    assert closes in ([], [len(found) - 1]), "something was answered after the last answer"
    if closes:
        assert wire.is_closed() or wire.transport.aborted
    assert {status for status, _, _ in found} <= ALLOWED, found
    for status, head, body in found:
        if status == 503:
            assert b"Retry-After: 1\r\n" in head
        if status not in (100, 200, 503):
            assert body is None or list(orjson.loads(body)) == ["error"]
            assert body is None or b"Traceback" not in body


def _final_answers(wire: Wire) -> bytes:
    # Whether the gateway sends 100 Continue depends on how much of the body comes with the head.
    return wire.transport.written.replace(CONTINUE, b"")


def _check_against_h11(stream: bytes, wire: Wire) -> None:
    """A request that both accept has the same method, target and body, so that none can be smuggled."""
    seen = _requests(wire)
    if not seen:
        return
    theirs = by_h11(stream)
    ours = seen
    statuses = [status for status, _, _ in answers(wire.transport.written) if status != 100]
    if len(theirs) < len(statuses) or any(status not in (200, 400) for status in statuses):
        # One of the two is stricter, or requests were refused before their end.
        return
    assert ours == theirs[: len(ours)]


def seeds() -> Iterator[bytes]:
    review = min(RECORDED, key=len)
    smuggled = post(b"POST /mutate HTTP/1.1\r\nHost: a\r\n\r\n")
    streams: Sequence[bytes] = [
        post(review),
        post(b"{}") + post(b"ab", b"/validate?timeout=5s"),
        chunked(b"ab", b"cd", target=b"/validate", trailer=b"X: y\r\n"),
        post(b"ab", extra=b"Expect: 100-continue\r\n"),
        post(b"ab", b"/other", extra=b"Connection: close\r\n"),
        post(b"ab", extra=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n") + b"more",
        chunked(b"ab", target=b"/mutate.fail").replace(b"chunked", b"gzip, chunked"),
        post(b"ab").replace(b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 3"),
        chunked(b"ab").replace(b"Host: a", b"Host: a\r\nContent-Length: 2"),
        b"GET /mutate HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.0\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nabc",
        post(b"x" * 400, b"/validate"),
        smuggled,
        CLOSING_IDLE,
    ]
    for number, stream in enumerate(streams):
        cuts = bytes([number % 8, 0, 20, 0, 60, 0, 200]).ljust(16, b"\1")
        yield b"\0" + cuts + stream
        yield b"\1" + cuts + stream
        yield b"\x08" + cuts + stream.replace(b"\r\n", b"\r\nAuthorization: Bearer t0ken\r\n", 1)
        for events in (b"\0\1\0\1", b"\0\3\0\4\1\1", b"\6\0\5\7", b"\0\x11\x09\x12\5", b"\0\0\x08\x11"):
            yield bytes([6]) + events.ljust(16, b"\1") + cuts + stream

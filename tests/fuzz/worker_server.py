"""The server of the Python SDK: a client's bytes, cut into reads, through HTTP/2, gRPC and the methods.

An input is a list of events: the client sends valid or nearly valid frames, stops reading or reads on, and
the worker drains. Bounds are lowered so that short inputs reach them.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import struct
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker import PolicyServer, calls, connection, load, rpc, stream, turns
from admission_gateway_worker.http2 import frames, messages, server
from admission_gateway_worker.http2.frames import PREFACE
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.serving import Serving
from tests import frames as raw
from tests.fuzz.laws import bounded
from tests.fuzz.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from admission_gateway_worker import Review

MODULES: Final = (
    "workers/python/admission_gateway_worker/http2/frames.py",
    "workers/python/admission_gateway_worker/http2/server.py",
    "workers/python/admission_gateway_worker/http2/fields.py",
    "workers/python/admission_gateway_worker/http2/messages.py",
    "workers/python/admission_gateway_worker/connection.py",
    "workers/python/admission_gateway_worker/rpc.py",
    "workers/python/admission_gateway_worker/single.py",
    "workers/python/admission_gateway_worker/health.py",
    "workers/python/admission_gateway_worker/stream.py",
    "workers/python/admission_gateway_worker/turns.py",
)
MAX_BYTES: Final = 1000
_HELD_BYTES: Final = 12_000
_RPC_BYTES: Final = 200
_STREAMS: Final = 5
_BOUNDS: Final[Sequence[tuple[Any, Mapping[str, int]]]] = [
    (frames, {"MAX_UNPRODUCTIVE_FRAMES": 60, "MAX_HEADERS_BYTES": 6000}),
    (
        server,
        {"MAX_STREAMS": _STREAMS, "OUTPUT_BYTES": 2000, "WINDOW_BYTES": 66_000, "_PRODUCTIVE_FRAMES": 5},
    ),
    (messages, {"MAX_MESSAGE_BYTES": 2000}),
    (load, {"MAX_HELD_BYTES": _HELD_BYTES, "RELIEF_BYTES": 0, "RPC_BYTES": _RPC_BYTES, "CALL_BYTES": 100}),
    (rpc, {"RPC_BYTES": _RPC_BYTES}),
    (calls, {"CALL_BYTES": 100}),
    # The times are set by the input: the result must not depend on the CPU's speed.
    (turns, {"AT_ONCE_S": 0, "FIRST_S": 0}),
    (connection, {"SLICE_S": 0, "MAX_WAITING_BYTES": 10_000}),
    (stream, {"SLICE_S": 0, "TOGETHER_S": 0}),
]
_SERVICE: Final = "/admissiongateway.worker.v1.PolicyWorker/"
_HEALTH: Final = "/grpc.health.v1.Health/"
_PATHS: Final = (
    *(_SERVICE + "ReviewStream", _SERVICE + "Review", _HEALTH + "Watch", _HEALTH + "Check"),
    *(_SERVICE + "ListPolicies", _HEALTH + "List", "/a.B/C"),
)
_MORE: Final = (
    *((), ((b"grpc-timeout", b"1n"),), ((b"grpc-timeout", b"9H"),), ((b"grpc-encoding", b"gzip"),)),
    *(((b"te", b"x"),), ((b"a" * 300, b"b" * 3000),)),
)
_NUMBERS: Final = (0, 1, 100, 16_384, 65_535, 2**24 - 1, 2**31 - 1, 2**32 - 1)
WORDS: Final = (PREFACE, raw.frame(raw.SETTINGS), raw.message(b""), b"now", b"later", b"large")


async def _later(review: Review) -> None:
    await asyncio.sleep(0 if review.uid else 60)


def _large(review: Review) -> None:
    review.object["text"] = "x" * 1500


_POLICIES: Final = PolicyServer()
_POLICIES.policy("now")(lambda review: None)
_POLICIES.policy("later")(_later)
_POLICIES.policy("large", mutating=True)(_large)
_LOOP: Final = asyncio.new_event_loop()
atexit.register(_LOOP.close)


class Transport:
    """Writes everything, until it is closed."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written_bytes += len(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


class Failures(logging.Handler):
    """A block in which no RPC fails by an exception."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(record.getMessage()) from (record.exc_info or (None, None))[1]


def run(data: bytes) -> None:
    with bounded(_BOUNDS):
        _LOOP.run_until_complete(_serve(Source(data)))


async def _serve(source: Source) -> None:
    serving, failures = Serving(_POLICIES.policies), Failures(logging.ERROR)
    rpc.log.addHandler(failures)
    try:
        await _connect(serving, source)
        async with asyncio.timeout(10):
            while serving._evaluator.tasks:
                await asyncio.sleep(0)
    finally:
        rpc.log.removeHandler(failures)
        await serving.stop(0)


async def _connect(serving: Serving, source: Source) -> None:
    seconds = source.one_of((10**6, 0))
    for module, name in (
        *((turns, "AT_ONCE_S"), (turns, "FIRST_S")),
        *((connection, "SLICE_S"), (stream, "SLICE_S")),
    ):
        vars(module)[name] = seconds
    one, transport, sums = serving._connections.accept(), Transport(), serving._connections.load
    one.connection_made(transport)  # type: ignore[arg-type]
    received = b"" if source.chance(16) else PREFACE + raw.frame(raw.SETTINGS)
    one.data_received(received)
    received_bytes = len(received)
    is_drained = False
    try:
        for _ in range(24):
            if source.is_empty or transport.is_closed:
                break
            event = source.byte() % 16
            if event < 12:
                sent = _client(source)
                received_bytes += len(sent)
                for piece in source.pieces(sent):
                    if not transport.is_closed:
                        one.data_received(piece)
            elif event < 13:
                one.pause_writing()
            elif event < 15:
                one.resume_writing()
            elif not is_drained and source.chance(4):
                is_drained = True
                one.drain()
            for _ in range(source.byte() % 4):
                await asyncio.sleep(0)
            http2 = one._http2
            assert len(http2.streams) <= _STREAMS
            assert sums.rpcs <= _STREAMS
            # More is released in the next iteration.
            assert 0 <= sums.held_bytes <= _HELD_BYTES + received_bytes
            assert sums.held_bytes == sum(each.held_bytes for each in serving._connections.open)
            assert http2._unproductive_frames <= 60 + _STREAMS
            # An answer is at most a patch; the texts of statuses are shorter.
            assert transport.written_bytes + http2.unsent_bytes <= 300 + 60 * received_bytes
    finally:
        # A server that stops waits for the end of its connections.
        one.connection_lost(None)
    assert (sums.rpcs, sums.held_bytes, one._http2.unsent_bytes) == (0, 0, 0)
    assert not one._http2.streams
    assert serving._worker.idle.is_set()
    assert not serving._health._watches


def _client(source: Source) -> bytes:
    """Return one to four frames, sometimes repeated or damaged."""
    sent = b"".join(_frame(source) for _ in range(1 + source.byte() % 4))
    match source.byte() % 16:
        case 14:
            return sent * (1 + source.byte() % 70)
        case 15 if sent:
            damaged = bytearray(sent)
            damaged[source.below(len(sent))] = source.byte()
            return bytes(damaged)
    return sent


def _frame(source: Source) -> bytes:
    kind = source.byte() % 12
    stream = 2 * (source.byte() % 8) + 1
    match kind:
        case 0 | 1 | 2:
            pseudo = (
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", source.one_of(_PATHS).encode()),
            )
            fields: tuple[tuple[bytes, bytes], ...]
            fields = (*pseudo, (b"content-type", b"application/grpc"), *source.one_of(_MORE))
            flags = raw.END_HEADERS if not source.chance(8) else source.byte()
            return raw.headers(*fields, flags=flags, stream=stream)
        case 3 | 4 | 5 | 6:
            body = b"".join(_message(source) for _ in range(1 + source.byte() % 3))
            return raw.frame(raw.DATA, body, source.one_of((0, 0, raw.END_STREAM)), stream)
        case 7:
            size = struct.pack(">L", source.one_of(_NUMBERS))
            return raw.frame(raw.WINDOW_UPDATE, size, 0, stream if source.chance(2) else 0)
        case 8:
            setting = struct.pack(">HL", source.byte() % 8, source.one_of(_NUMBERS))
            return raw.frame(raw.SETTINGS, setting, source.byte() % 2)
        case 9:
            return raw.frame(raw.RST_STREAM, bytes(4), 0, stream)
        case 10:
            return raw.frame(raw.DATA, source.take(source.byte() % 32), source.byte() % 16, stream)
    return raw.frame(source.byte() % 12, source.take(source.byte() % 16), source.byte(), source.byte() % 4)


def _message(source: Source) -> bytes:
    """Return a gRPC message, often a batch or a review."""
    request = source.one_of((b'{"object": {}}', b'{"uid": "u", "object": {}}', b"{"))
    policy = source.one_of(("now", "later", "large", "absent"))
    match source.byte() % 8:
        case 6:
            return raw.message(pb.ReviewRequest(policy=policy, admission_request=request).SerializeToString())
        case 7:
            return raw.message(source.take(source.byte() % 16))[: 1 + source.byte()]
    batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=request)])
    for _ in range(source.byte() % 4):
        number = 1 + source.byte() % 6
        batch.calls.add(
            id=number, policy=policy, timeout_millis=9000, after=source.one_of((0, 0, number - 1))
        )
    batch.cancelled.extend(source.byte() % 6 for _ in range(source.byte() % 3))
    return raw.message(batch.SerializeToString())


def seeds() -> Iterator[bytes]:
    yield b""
    for path in range(len(_PATHS)):
        opened = bytes([0, 0, 0, 0, path, 0, 0, 0, 0, 1])
        for policy in range(4):
            for slice_ in range(2):
                calls = bytes([2, 0, 0, 1, 2, 0])
                batch = bytes([0, 0, 3, 0, 0, 0, policy, 0]) + calls + bytes([path % 3, 0, 0, 3])
                review = bytes([0, 0, 3, 0, 0, 0, policy, 6, 2, 0, 0, 3])
                yield bytes([slice_, 0]) + opened + batch + bytes([12, 0]) + review + batch + bytes([13, 2])
                yield bytes([slice_, 0]) + opened + review + opened + bytes([15, 3, 1]) + batch

"""The stream to a worker: the worker's bytes, cut into reads, through HTTP/2, gRPC, batches and verdicts.

An input is a list of events: calls are submitted, withdrawn and expire, and the worker sends bytes. These are
valid or nearly valid frames with batches of verdicts, so that most inputs get past the first frame. Bounds
are lowered so that short inputs reach them.

Two layers: the pure call, whose result must not depend on how the bytes are split; and the stream with calls
in flight, each of which must end exactly once.
"""

from __future__ import annotations

import asyncio
import atexit
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.http2 import client, frames, messages
from gateway.engine.dispatch import cpu_budget, stream_connection
from gateway.engine.dispatch.rpc import StreamingCall
from tests.frames import take
from tests.fuzz.laws import Faults, bounded
from tests.fuzz.source import Source
from tests.fuzz.streaming import FuzzedStream
from tests.fuzz.worker import PIECES, PING, SETTINGS, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODULES: Final = (
    "workers/python/admission_gateway_worker/http2/frames.py",
    "workers/python/admission_gateway_worker/http2/client.py",
    "workers/python/admission_gateway_worker/http2/fields.py",
    "workers/python/admission_gateway_worker/http2/messages.py",
    "gateway/engine/dispatch/rpc.py",
    "gateway/engine/dispatch/cpu_budget.py",
    "gateway/engine/dispatch/stream_connection.py",
    "gateway/engine/dispatch/stream.py",
    "gateway/engine/dispatch/verdicts.py",
)
MAX_BYTES: Final = 1400
WORDS: Final = PIECES
_MESSAGE_BYTES: Final = 2000
_FLOOD: Final = 60
_WINDOW_BYTES: Final = 66_000
_faults = Faults()


def run(data: bytes) -> None:
    source = Source(data)
    with _faults, bounded(_BOUNDS):
        if source.byte() % 4 == 3:
            _call(source)
        else:
            _LOOP.run_until_complete(_stream(source))


_BOUNDS: Final[Sequence[tuple[Any, Mapping[str, int]]]] = [
    (frames, {"MAX_UNPRODUCTIVE_FRAMES": _FLOOD, "MAX_HEADERS_BYTES": 6000}),
    (client, {"WINDOW_BYTES": _WINDOW_BYTES}),
    (messages, {"MAX_MESSAGE_BYTES": _MESSAGE_BYTES}),
    # One step in each slice and no wait between them, so that the result does not depend on the CPU's speed.
    (stream_connection, {"MAX_UNSENT_BYTES": 2000, "SLICE_S": 0}),
    (cpu_budget, {"BURST_S": 10**9}),
]
_LOOP: Final = asyncio.new_event_loop()
atexit.register(_LOOP.close)


# The pure call.


def _call(source: Source) -> None:
    cuts = Source(source.take(16))
    sent = source.byte() % 4
    received = b"".join(Worker(source).send() for _ in range(source.byte() % 4)) + source.rest()
    whole, cut = (_call_with_messages(sent) for _ in range(2))
    begun_bytes = len(whole.http2.output)
    messages = take(whole, received)
    assert messages == [message for piece in cuts.pieces(received) for message in take(cut, piece)]
    assert whole.status == cut.status
    assert whole.http2.output == cut.http2.output
    assert all(len(message) <= _MESSAGE_BYTES for message in messages)
    assert sum(map(len, messages)) <= len(received)
    # An acknowledgement is as long as its frame. There may also be a GOAWAY and the held output.
    assert len(whole.http2.output) <= begun_bytes + len(received) + 200 + sent * 2100
    _check_kept(whole)
    if whole.status is not None:
        written = bytes(whole.http2.output)
        assert take(whole, received) == []
        assert whole.http2.output == written
    whole.cancel()
    assert whole.status is not None


def _call_with_messages(sent: int) -> StreamingCall:
    call = StreamingCall("/a.B/C", "worker.test", "http")
    for number in range(sent):
        call.send(bytes(number * 1000))
    return call


def _check_kept(call: StreamingCall) -> None:
    assert call.http2._unproductive_frames <= _FLOOD + 1
    # One read of the transport, and a frame that began in the read before.
    assert call.http2.unread_bytes <= (262_144 if call.http2.has_more else 0) + 16_384 + 9
    assert len(call.http2._block or b"") <= 6000 + 16_384
    assert len(call._reader.partial) <= _MESSAGE_BYTES + 5 + 16_384


# The stream.


async def _stream(source: Source) -> None:
    fuzzed = FuzzedStream()
    worker = Worker(source)
    await asyncio.sleep(0)
    fuzzed.receive([] if source.chance(16) else [SETTINGS])
    if not source.chance(16):
        fuzzed.receive([worker.headers(0)])
    for _ in range(24):
        if source.is_empty:
            break
        event = source.byte() % 16
        if event > 10:
            worker.written = fuzzed.written
            fuzzed.receive(source.pieces(worker.send()))
        elif event > 8:
            await asyncio.sleep(0)
        else:
            _act(fuzzed, event, source)
        if fuzzed.call is not None:
            _check_kept(fuzzed.call)
    await fuzzed.end()


def _act(fuzzed: FuzzedStream, event: int, source: Source) -> None:
    match event:
        case 0 | 1 | 2:
            fuzzed.submit(1 + source.byte() % 4)
        case 3:
            fuzzed.withdraw(source.byte())
        case 4:
            fuzzed.expire(source.byte())
        case 5:
            fuzzed.pause(is_paused=source.chance(2))
        case 6 if source.chance(4):
            fuzzed.stream.finish_writing()
        case 7 if source.chance(4):
            fuzzed.break_connection()
        case 8:
            fuzzed.keep_alive()


def seeds() -> Iterator[bytes]:
    yield b""
    begun = bytes([0, 0, 0, 0])
    submitted = bytes([0, 2, 9, 9])
    for kind in range(24):
        for verdict in (0, 5):
            received = bytes([11, 1, 0, kind, 0, 0, 2, 0, 1, 0, verdict, 1, 7, kind, 0, 0, verdict])
            yield begun + submitted + received + bytes([9, 11])
            yield (
                begun + submitted + bytes([4, 0, 1, 1, 9]) + received + bytes([3, 1, 11, 0, 0, kind, 0, 5, 8])
            )
            yield bytes([3]) + bytes(16) + bytes([1, 3, 1, 0, 0, 2, 0, kind, 1, 0, 2, kind, 5, verdict, 1])
        yield begun + submitted + bytes([11, 0, kind, 0, 1, 1, 1, 1, 29, 79, 9, 9])
    yield bytes([3]) + bytes(17) + b"\0" + SETTINGS + PING * 70
    yield begun + bytes([2, 3, 9, 9, 3, 1, 4, 2, 5, 1, 0, 2, 5, 0, 9, 9, 6, 3, 7, 3])

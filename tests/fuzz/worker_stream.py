"""The stream to a worker: the worker's bytes, cut into reads, through HTTP/2, gRPC, batches and verdicts.

An input is a plan of what happens: reviews are asked, withdrawn and expire, and the worker says something.
What it says is made of frames, which are right or a little wrong, and of batches of verdicts within them, so
that not everything ends at the first nine bytes. Bounds are set low, to be reached.

Two layers: the pure call, of which whole and cut bytes have to make the same; and the stream with calls in
flight, each of which has to end exactly once.
"""

from __future__ import annotations

import asyncio
import atexit
from typing import TYPE_CHECKING, Any, Final

from gateway.dispatch import cpu_budget, http2, rpc, stream_connection
from gateway.dispatch.rpc import StreamingCall
from tests.frames import take
from tests.fuzz.laws import Faults, bounded
from tests.fuzz.source import Source
from tests.fuzz.streaming import Bed
from tests.fuzz.worker import PIECES, PING, SETTINGS, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODULES: Final = (
    "gateway/dispatch/http2.py",
    "gateway/dispatch/header_fields.py",
    "gateway/dispatch/rpc.py",
    "gateway/dispatch/cpu_budget.py",
    "gateway/dispatch/stream_connection.py",
    "gateway/dispatch/stream.py",
    "gateway/dispatch/verdicts.py",
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
    (http2, {"MAX_UNPRODUCTIVE_FRAMES": _FLOOD, "WINDOW_BYTES": _WINDOW_BYTES, "_MAX_HEADERS_BYTES": 6000}),
    (rpc, {"MAX_MESSAGE_BYTES": _MESSAGE_BYTES}),
    # A step a slice, and never a wait for the next one: what happens must not depend on the machine's speed.
    (stream_connection, {"MAX_UNSENT_BYTES": 2000, "SLICE_S": 0}),
    (cpu_budget, {"BURST_S": 10**9}),
]
_LOOP: Final = asyncio.new_event_loop()
atexit.register(_LOOP.close)


# The pure call.


def _call(source: Source) -> None:
    cuts = Source(source.take(16))
    asked = source.byte() % 4
    said = b"".join(Worker(source).say() for _ in range(source.byte() % 4)) + source.rest()
    whole, cut = (_begun(asked) for _ in range(2))
    begun_bytes = len(whole.http2.output)
    messages = take(whole, said)
    assert messages == [message for piece in cuts.pieces(said) for message in take(cut, piece)]
    assert whole.status == cut.status
    assert whole.http2.output == cut.http2.output
    assert all(len(message) <= _MESSAGE_BYTES for message in messages)
    assert sum(map(len, messages)) <= len(said)
    # An acknowledgement is as long as what it is of; besides, a goodbye and what was held back.
    assert len(whole.http2.output) <= begun_bytes + len(said) + 200 + asked * 2100
    _check_kept(whole)
    if whole.status is not None:
        written = bytes(whole.http2.output)
        assert take(whole, said) == []
        assert whole.http2.output == written
    whole.cancel()
    assert whole.status is not None


def _begun(asked: int) -> StreamingCall:
    call = StreamingCall("/a.B/C", "worker.test", "http")
    for number in range(asked):
        call.send(bytes(number * 1000))
    return call


def _check_kept(call: StreamingCall) -> None:
    assert call.http2._unproductive_frames <= _FLOOD + 1
    # A read of the transport's, and the frame that the one before has begun.
    assert call.http2.unread_bytes <= (262_144 if call.http2.has_more else 0) + 16_384 + 9
    assert len(call.http2._block or b"") <= 6000 + 16_384
    assert len(call._partial) <= _MESSAGE_BYTES + 5 + 16_384


# The stream.


async def _stream(source: Source) -> None:
    bed = Bed()
    worker = Worker(source)
    await asyncio.sleep(0)
    bed.hear([] if source.chance(16) else [SETTINGS])
    if not source.chance(16):
        bed.hear([worker.headers(0)])
    for _ in range(24):
        if source.is_empty:
            break
        event = source.byte() % 16
        if event > 10:
            worker.written = bed.written
            bed.hear(source.pieces(worker.say()))
        elif event > 8:
            await asyncio.sleep(0)
        else:
            _happen(bed, event, source)
        if bed.call is not None:
            _check_kept(bed.call)
    await bed.end()


def _happen(bed: Bed, event: int, source: Source) -> None:
    match event:
        case 0 | 1 | 2:
            bed.ask(1 + source.byte() % 4)
        case 3:
            bed.withdraw(source.byte())
        case 4:
            bed.expire(source.byte())
        case 5:
            bed.pause(is_paused=source.chance(2))
        case 6 if source.chance(4):
            bed.stream.finish_writing()
        case 7 if source.chance(4):
            bed.break_connection()
        case 8:
            bed.go_on()


def seeds() -> Iterator[bytes]:
    yield b""
    begun = bytes([0, 0, 0, 0])
    asked = bytes([0, 2, 9, 9])
    for kind in range(24):
        for verdict in (0, 5):
            said = bytes([11, 1, 0, kind, 0, 0, 2, 0, 1, 0, verdict, 1, 7, kind, 0, 0, verdict])
            yield begun + asked + said + bytes([9, 11])
            yield begun + asked + bytes([4, 0, 1, 1, 9]) + said + bytes([3, 1, 11, 0, 0, kind, 0, 5, 8])
            yield bytes([3]) + bytes(16) + bytes([1, 3, 1, 0, 0, 2, 0, kind, 1, 0, 2, kind, 5, verdict, 1])
        yield begun + asked + bytes([11, 0, kind, 0, 1, 1, 1, 1, 29, 79, 9, 9])
    yield bytes([3]) + bytes(17) + b"\0" + SETTINGS + PING * 70
    yield begun + bytes([2, 3, 9, 9, 3, 1, 4, 2, 5, 1, 0, 2, 5, 0, 9, 9, 6, 3, 7, 3])

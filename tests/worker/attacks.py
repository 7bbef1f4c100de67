"""Attacks with invalid HTTP/2 frames: floods and garbage, with answers in between.

An attack takes any number of connections at its port, and is repeated on each for as long as the other side
takes it. Its name is that of a function below, or ``fuzz``: frames at random, by the seed and the number of
the connection.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final

from admission_gateway_worker.pb import worker_pb2
from tests import frames
from tests.frames import DATA, PING, RESPONSE, SETTINGS, frame, headers, varint

MIB: Final = 1024 * 1024
CHUNK_BYTES: Final = MIB
MESSAGE_BYTES: Final = 8 * MIB - 16
PREFACE_BYTES: Final = 24

Attack = Callable[["Peer"], Iterator[bytes]]
ATTACKS: dict[str, Attack] = {}


class Peer:
    """One connection. A thread reads the calls."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self.number = number
        self._connection = connection
        self._new_calls: list[int] = []
        self._news = threading.Condition()
        self._is_over = False

    def serve(self, attack: Attack) -> None:
        """Attack until the other side closes the connection."""
        with self._connection, contextlib.suppress(OSError):
            self._connection.sendall(frame(SETTINGS, struct.pack(">HL", 4, 2**31 - 1)))
            self._connection.sendall(frame(frames.WINDOW_UPDATE, struct.pack(">L", 2**31 - 65_536)))
            if attack not in UNREAD:
                threading.Thread(target=self._read, daemon=True).start()
            for chunk in attack(self):
                self._connection.sendall(chunk)
            # The gateway writes from time to time; nothing is read.
            self._connection.recv(1) if attack not in UNREAD else threading.Event().wait()

    def new_calls(self, count: int = 1, within_s: float = 60.0) -> list[int]:
        """Return the new calls when there are *count*, or after *within_s* seconds."""
        with self._news:
            self._news.wait_for(lambda: len(self._new_calls) >= count or self._is_over, within_s)
            new_calls, self._new_calls = self._new_calls, []
            if self._is_over:
                raise OSError
            return new_calls

    def _read(self) -> None:
        body = b""
        with contextlib.suppress(OSError, struct.error), self._connection.makefile("rb") as stream:
            stream.read(PREFACE_BYTES)
            while head := stream.read(9):
                high, low, kind, *_ = struct.unpack(">HBBBL", head)
                payload = stream.read(high << 8 | low)
                if kind != DATA:
                    continue
                body += payload
                while len(body) >= 5 and len(body) >= (end := 5 + int.from_bytes(body[1:5])):
                    batch = worker_pb2.ReviewBatch.FromString(body[5:end])
                    body = body[end:]
                    with self._news:
                        self._new_calls += [call.id for call in batch.calls]
                        self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()


def attack(made: Attack) -> Attack:
    ATTACKS[made.__name__] = made
    return made


def flood(*pieces: bytes) -> Iterator[bytes]:
    """Yield *pieces* forever, many at a time."""
    one = b"".join(pieces)
    return itertools.repeat(one * max(1, CHUNK_BYTES // len(one)))


def batch(*numbers: int) -> bytes:
    """Return a message that allows the calls with these ids."""
    allowed = worker_pb2.ReviewResponse(allowed=True)
    verdicts = [worker_pb2.Verdict(id=number, response=allowed) for number in numbers]
    return worker_pb2.VerdictBatch(verdicts=verdicts).SerializeToString()


def answers(peer: Peer) -> Iterator[bytes]:
    """Yield an answer to each call."""
    while True:
        yield frames.data(frames.message(batch(*peer.new_calls())))


def answers_of(peer: Peer, response: bytes) -> Iterator[bytes]:
    """Yield an answer to each call: *response* is the message of its verdict, which may be invalid."""
    while True:
        for number in peer.new_calls():
            verdict = b"\x08" + varint(number) + b"\x12" + varint(len(response)) + response
            yield frames.data(frames.message(b"\x0a" + varint(len(verdict)) + verdict))


# -- the header blocks ------------------------------------------------------------------------------


@attack
def many_fields_of_100(_: Peer) -> Iterator[bytes]:
    yield from flood(frame(frames.HEADERS, frames.literal(b":status", b"100") + b"\x90" * 1500, 4, 1))


@attack
def long_fields_of_103(_: Peer) -> Iterator[bytes]:
    yield from flood(headers((b":status", b"103"), (b"link", b"x" * 2048)))


@attack
def short_103(_: Peer) -> Iterator[bytes]:
    yield from flood(headers((b":status", b"103")))


@attack
def size_updates(_: Peer) -> Iterator[bytes]:
    yield from flood(frame(frames.HEADERS, b"\x20" * 16_000, frames.END_HEADERS, 1))


@attack
def long_huffman(_: Peer) -> Iterator[bytes]:
    value = b"\xff" + b"\x81\x75" + b"\x00" * 15_104
    yield from flood(frame(frames.HEADERS, frames.literal(b":status", b"103") + b"\x00\x01a" + value, 4, 1))


@attack
def continuations(_: Peer) -> Iterator[bytes]:
    yield frame(frames.HEADERS, b"", 0, 1)
    yield from flood(frame(frames.CONTINUATION, b"", 0, 1))


# -- useless frames ---------------------------------------------------------------------------------


@attack
def pings_and_a_byte(_: Peer) -> Iterator[bytes]:
    yield RESPONSE + frame(DATA, struct.pack(">BL", 0, MESSAGE_BYTES), 0, 1)
    yield from flood(frame(PING, b"12345678") * 20, frame(DATA, b"x", 0, 1))


@attack
def settings_and_a_byte(_: Peer) -> Iterator[bytes]:
    yield RESPONSE + frame(DATA, struct.pack(">BL", 0, MESSAGE_BYTES), 0, 1)
    yield from flood(frame(SETTINGS) * 20, frame(DATA, b"x", 0, 1))


@attack
def bytes_alone(_: Peer) -> Iterator[bytes]:
    yield RESPONSE + frame(DATA, struct.pack(">BL", 0, MESSAGE_BYTES), 0, 1)
    yield from flood(frame(DATA, b"x", 0, 1))


@attack
def large_settings(_: Peer) -> Iterator[bytes]:
    yield from flood(frame(SETTINGS, b"\x00\x10\x00\x00\x00\x01" * 2700))


@attack
def small_windows(_: Peer) -> Iterator[bytes]:
    yield frame(SETTINGS, struct.pack(">HL", 4, 0))
    yield from flood(frame(frames.WINDOW_UPDATE, struct.pack(">L", 1), 0, 1))


@attack
def priorities(_: Peer) -> Iterator[bytes]:
    yield from flood(frame(frames.PRIORITY, b"\x00\x00\x00\x03\x10", 0, 1))


@attack
def unknown_frames(_: Peer) -> Iterator[bytes]:
    yield from flood(frame(0xEE, b"", 0, 7))


@attack
def padding(_: Peer) -> Iterator[bytes]:
    yield RESPONSE
    yield from flood(frame(DATA, b"\xff" + bytes(255), frames.PADDED, 1))


@attack
def goodbyes(_: Peer) -> Iterator[bytes]:
    yield from flood(frame(frames.GOAWAY, struct.pack(">LL", 2**31 - 1, 0)))


@attack
def unread_pings(_: Peer) -> Iterator[bytes]:
    yield from flood(frame(PING, b"12345678"))


@attack
def nothing_read(_: Peer) -> Iterator[bytes]:
    yield RESPONSE


# -- messages ---------------------------------------------------------------------------------------


@attack
def unknown_fields(_: Peer) -> Iterator[bytes]:
    yield RESPONSE
    yield from flood(frames.data(frames.message(b"\x78\x01" * (MESSAGE_BYTES // 2))))


@attack
def unknown_field(_: Peer) -> Iterator[bytes]:
    yield RESPONSE
    content = b"\x7a\xf0\xff\xff\x03" + bytes(MESSAGE_BYTES)
    yield from flood(frames.data(frames.message(content[:MESSAGE_BYTES])))


@attack
def empty_verdicts(_: Peer) -> Iterator[bytes]:
    yield RESPONSE
    yield from flood(frames.data(frames.message(b"\x0a\x00" * (MESSAGE_BYTES // 2))))


@attack
def small_verdict_batches(_: Peer) -> Iterator[bytes]:
    yield RESPONSE
    yield from flood(frames.data(frames.message(b"\x0a\x00" * 30_000)))


@attack
def empty_messages(_: Peer) -> Iterator[bytes]:
    yield RESPONSE
    yield from flood(frames.data(bytes(5) * 100_000))


@attack
def drains(_: Peer) -> Iterator[bytes]:
    yield RESPONSE
    yield from flood(frames.data(frames.message(b"\x10\x01")))


@attack
def pings_between_answers(peer: Peer) -> Iterator[bytes]:
    yield RESPONSE
    for answer in answers(peer):
        yield frame(PING, b"12345678") * 9000 + answer


@attack
def answers_of_unknown_fields(peer: Peer) -> Iterator[bytes]:
    yield RESPONSE
    response = b"\x08\x01" + b"\x78\x01" * (MESSAGE_BYTES // 2 - 100)
    yield from answers_of(peer, response)


@attack
def answers_of_nested_fields(peer: Peer) -> Iterator[bytes]:
    """An annotation that repeats its key four million times."""
    yield RESPONSE
    entry = b"\x0a\x00" * (MESSAGE_BYTES // 2 - 100)
    response = b"\x08\x01\x22" + varint(len(entry)) + entry
    yield from answers_of(peer, response)


@attack
def answers_held_back(peer: Peer) -> Iterator[bytes]:
    """Answers in messages of one verdict and frames of one byte."""
    yield RESPONSE
    while True:
        numbers = peer.new_calls(1000, 1.0)
        yield b"".join(frames.data(frames.message(batch(number)), 1) for number in numbers)


# -- random frames ----------------------------------------------------------------------------------


def at_random(seed: int) -> Attack:
    """Return an attack of random frames, different on every connection."""

    def fuzz(peer: Peer) -> Iterator[bytes]:
        dice = random.Random(f"{seed} {peer.number}")
        if dice.random() < 0.8:
            yield RESPONSE
        while True:
            kinds = [_random_frame(dice) for _ in range(dice.randint(1, 4))]
            yield b"".join(dice.choices(kinds, k=dice.choice((10, 1000, 50_000))))[: 4 * MIB]
            if dice.random() < 0.2:
                yield frames.data(frames.message(batch(*peer.new_calls(1, 0.1))))

    return fuzz


def _random_frame(dice: random.Random) -> bytes:
    match dice.randrange(8):
        case 0:
            return frames.data(frames.message(dice.randbytes(dice.choice((0, 3, 300)))))
        case 1:
            field = dice.choice((b"\x78\x01", b"\x0a\x00", b"\x0a\x02\x08\x01", b"\x10\x01", b"\x7a\x01x"))
            return frames.data(frames.message(field * dice.choice((1, 1000, 40_000, 1_000_000))))
        case 2:
            return frames.data(frames.message(bytes(dice.choice((100, 20_000)))), dice.choice((1, 7, 300)))
        case 3:
            fields = [(b":status", dice.choice((b"100", b"103", b"200", b"2\x1b0")))]
            fields += [(b"a", dice.randbytes(dice.choice((1, 2000))))] * dice.choice((0, 1, 100))
            return headers(*fields)[: 16_384 + 9]
        case 4:
            size = dice.choice((0, 4, 5, 6, 8, 60, 6000))
            return frame(dice.randrange(12), dice.randbytes(size), dice.randrange(256), dice.randrange(3))
        case 5:
            return frame(
                frames.WINDOW_UPDATE, struct.pack(">L", dice.choice((1, 1000))), 0, dice.randrange(2)
            )
        case 6:
            return frame(
                SETTINGS, b"".join(struct.pack(">HL", 9, n) for n in range(dice.choice((0, 20, 2000))))
            )
        case _:
            return frame(PING, dice.randbytes(8))


UNREAD: Final = frozenset({unread_pings, nothing_read})
"""Attacks that read nothing."""


def listen(name: str, seed: int) -> int:
    """Attack all connections to a port by the attack of that *name*, and return the port."""
    made = at_random(seed) if name == "fuzz" else ATTACKS[name]
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)

    def accept() -> None:
        for number in itertools.count():
            connection, _ = listener.accept()
            threading.Thread(target=Peer(connection, number).serve, args=(made,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port

"""One ReviewStream: receives batches of calls, and sends batches of verdicts.

The verdicts of all calls that need no waiting are sent in one message. Verdicts that become ready while a
message waits are sent together in the next message. A cancelled call gets no verdict.

The calls of a batch begin in slices, between which others have their turn. Bounds: those of ``batch`` and
``calls``; no further call begins, and no further batch comes, while a message of verdicts waits.

Source: protos/README.md.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.answer import ALLOWED, Outcome
from admission_gateway_worker.batch import ProtocolViolation, read_batch
from admission_gateway_worker.calls import Calls
from admission_gateway_worker.http2.messages import MAX_MESSAGE_BYTES, StatusCode
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.stream_parameters import StreamParameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission_gateway_worker.evaluation import Evaluator
    from admission_gateway_worker.policy import Policy
    from admission_gateway_worker.rpc import Rpc

VERDICT_BYTES: Final = 64
"""Upper bound of a verdict's size without its outcome: tags, lengths and a 64-bit id."""

SLICE_S: Final = 0.001
"""Time in which calls of a batch begin, and which the last of them may exceed. Those of a few reviews begin
in one slice."""

TOGETHER_S: Final = 0.005
"""Time for which verdicts wait for those of the next slices."""

PAUSE_BYTES: Final = 1024 * 1024
"""Bytes of verdicts that are sent before further calls begin."""

_DRAINING: Final = pb.VerdictBatch(draining=True).SerializeToString()
_VERDICTS, _ID, _ALLOWED_RESPONSE = (b"\x0a", b"\x08", b"\x12\x02\x08\x01")
"""The tags of VerdictBatch.verdicts and Verdict.id, and the response that only allows."""
_BYTES: Final = tuple(bytes((byte,)) for byte in range(256))

QUIET_S: Final = 0.5
"""Time without a message after which the worker ends a draining stream: several round trips, for batches that
the gateway sent before it received the drain notice."""


class ReviewStream:
    """The server side of one stream, the handler of its RPC."""

    def __init__(
        self,
        rpc: Rpc,
        policies: Mapping[str, Policy],
        evaluator: Evaluator,
        ended: Callable[[ReviewStream], None],
        hold_parameters: Callable[[int], None],
    ) -> None:
        """*ended* is called once, when the stream has ended. *hold_parameters*: see ``StreamParameters``."""
        self._rpc = rpc
        self._evaluator = evaluator
        self._ended: Callable[[ReviewStream], None] | None = ended
        self.parameters = StreamParameters(rpc, hold_parameters)
        self._calls = Calls(policies, evaluator, self._add, self._flush_soon, rpc, self.parameters)
        self._held_bytes = 0
        """The bytes of the batch that begins, and of verdicts that wait."""
        self._verdicts: list[bytes] = []
        """The encoded verdicts of the next message."""
        self._has_notice = False
        """Whether it has the drain notice."""
        self._allowed = AllowedVerdicts()
        self._batch_bytes = self._batch_size = 0
        """The bytes of the verdicts of the next message, and of the last batch."""
        self._full: deque[bytes] = deque()
        self._is_flush_due = False
        self._over = False
        """Whether no more messages will be read."""
        self._draining = False
        self._last_batch = self._flushed = 0.0
        """Monotonic times of the last batch, and of its last verdicts."""

    def __repr__(self) -> str:
        state = "over" if self._over else "draining" if self._draining else "open"
        return f"<ReviewStream {state} busy={self._calls.is_busy} full={len(self._full)}>"

    def drain(self) -> None:
        """Send the drain notice; the stream ends when no call is in flight, or after ``QUIET_S``."""
        if self._draining or self._over:
            return
        self._draining = True
        self._has_notice = True
        self._last_batch = time.monotonic()
        self._flush()
        self._evaluator.loop.call_later(QUIET_S, self._end_if_quiet)

    # -- called by the RPC ------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """See ``Handler``."""
        return self._calls.is_busy

    def received(self, message: bytes) -> None:
        """Take a batch, and send the verdicts that need no waiting."""
        arrived = self._last_batch = self._flushed = time.monotonic()
        try:
            self._calls.accept(read_batch(message), arrived)
            self._batch_size = len(message)
        except ProtocolViolation as problem:
            self._violated(problem)
        else:
            self.go_on()

    def go_on(self) -> None:
        """Begin more calls of the batch; send their verdicts at the end of the batch, or after a while."""
        now = time.monotonic()
        try:
            self._calls.go_on(now + SLICE_S)
        except ProtocolViolation as problem:
            self._violated(problem)
            return
        if not self._calls.is_busy or self._calls.is_pausing or now - self._flushed > TOGETHER_S:
            self._flushed = now
            self._flush()
        else:
            self._count_held()

    def half_closed(self) -> None:
        """End the stream when the calls in flight are answered."""
        self._over = True
        self._flush()

    def cancelled(self) -> None:
        """Cancel the calls in flight."""
        self._calls.cancel_all()
        self._end()

    def writable(self) -> None:
        """Send the verdicts that are waiting."""
        self._flush()

    # -- internals --------------------------------------------------------------------------------

    def _violated(self, problem: ProtocolViolation) -> None:
        self._rpc.finish(StatusCode.INVALID_ARGUMENT, str(problem))
        self.cancelled()

    def _end(self) -> None:
        ended, self._ended = self._ended, None
        self._over = True
        self.parameters.clear()
        if ended is not None:
            ended(self)

    def _end_if_quiet(self) -> None:
        if self._over:
            return
        idle_s = time.monotonic() - self._last_batch
        if self._calls or idle_s < QUIET_S:
            self._evaluator.loop.call_later(max(QUIET_S - idle_s, 0.05), self._end_if_quiet)
            return
        self._over = True
        self._flush()

    def _flush_soon(self) -> None:
        """Send verdicts in the next iteration of the event loop, those of this iteration together."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._evaluator.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send the verdicts that are ready, as far as they do not wait; end the stream after the last."""
        self._is_flush_due = False
        while self._rpc.can_send and (self._full or self._batch_bytes or self._has_notice):
            if not self._full:
                self._seal()
            self._rpc.send(self._full.popleft())
        if self._over and not self._calls and not self._full and not self._batch_bytes and self._ended:
            self._rpc.finish()
            self._end()
        self._count_held()

    def _count_held(self) -> None:
        """Count the batch that begins, and verdicts that wait, as held."""
        held = self._batch_bytes + sum(map(len, self._full))
        if self._calls.is_busy:
            held += self._batch_size
        if held != self._held_bytes:
            self._rpc.hold(held - self._held_bytes)
            self._held_bytes = held

    def _add(self, number: int, outcome: Outcome, is_chained: bool) -> None:
        """Add a verdict to the next message."""
        size = VERDICT_BYTES if outcome is ALLOWED else VERDICT_BYTES + outcome.ByteSize()
        if self._batch_bytes + size > MAX_MESSAGE_BYTES:
            self._seal()
        self._batch_bytes += size
        if self._batch_bytes > PAUSE_BYTES or self._full:
            self._calls.is_pausing = True
        # The id 0 is not written.
        if outcome is ALLOWED and number and not is_chained:
            self._verdicts.append(self._allowed.encoded(number))
            return
        verdict = pb.Verdict(id=number, chained=is_chained)
        if isinstance(outcome, pb.ReviewResponse):
            verdict.response.CopyFrom(outcome)
        else:
            verdict.error.CopyFrom(outcome)
        self._verdicts.append(pb.VerdictBatch(verdicts=[verdict]).SerializeToString())

    def _seal(self) -> None:
        if self._has_notice:
            self._verdicts.append(_DRAINING)
            self._has_notice = False
        self._full.append(b"".join(self._verdicts))
        self._verdicts.clear()
        self._batch_bytes = 0


class AllowedVerdicts:
    """Encodes verdicts that only allow. Most are such, and successive ones differ in the end of their ids."""

    __slots__ = ("_begin", "_continues", "_end", "_high")

    def __init__(self) -> None:
        self._high = -1
        """The last id without its low seven bits."""
        self._begin = self._end = b""
        """How its verdict begins and ends, around the byte with the low bits."""
        self._continues = 0
        """The bit that says whether more bytes of the id follow."""

    def encoded(self, number: int) -> bytes:
        """Return the verdict that allows the call *number*, which is not 0, as protobuf writes it."""
        high = number >> 7
        if high != self._high:
            self._high = high
            rest = b""
            while high:
                low, high = high & 0x7F, high >> 7
                rest += _BYTES[low | 0x80 if high else low]
            self._continues = 0x80 if rest else 0
            self._end = rest + _ALLOWED_RESPONSE
            # The tag of the id and its first byte come before.
            self._begin = _VERDICTS + _BYTES[2 + len(self._end)] + _ID
        return self._begin + _BYTES[self._continues | number & 0x7F] + self._end

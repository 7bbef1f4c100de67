"""One ReviewStream: receives batches of calls, and sends batches of verdicts.

The verdicts of all calls that need no waiting are sent in one message. Verdicts that become ready during a
write are sent together in the next message. A cancelled call gets no verdict.

Bounds: ``MAX_IN_FLIGHT`` waiting calls; no further batch is read while a full message of verdicts is unsent.

Source: protos/README.md.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from gateway.pb import worker_pb2 as pb
from workers.answer import ALLOWED, MAX_MESSAGE_BYTES, Outcome, error
from workers.evaluation import Evaluator, Running
from workers.review import Review

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.policy import Policy

    Rpc = aio.ServicerContext[bytes, bytes]

MAX_IN_FLIGHT: Final = 4096
"""Limit of calls in tasks and threads for each stream: four times the default maxInFlight of the gateway."""

VERDICT_BYTES: Final = 64
"""Upper bound of a verdict's size without its outcome: tags, lengths and a 64-bit id."""

QUIET_S: Final = 0.5
"""Time without a message after which the worker ends a draining stream: several round trips, for batches that
the gateway sent before it received the drain notice."""


class ProtocolViolation(Exception):
    """The gateway violated the contract, and the stream cannot continue."""


def unknown_policy(name: str, policies: Mapping[str, Policy]) -> pb.Error:
    """Return the Error of a call for an unknown policy."""
    served = ", ".join(sorted(policies)) or "none"
    return error(grpc.StatusCode.NOT_FOUND, f'policy "{name}" is not served here; served are: {served}')


class ReviewStream:
    """The server side of one stream; ``serve`` runs it to its end."""

    def __init__(self, rpc: Rpc, policies: Mapping[str, Policy], evaluator: Evaluator) -> None:
        self._rpc = rpc
        self._policies = policies
        self._evaluator = evaluator
        self._running: dict[int, Running] = {}
        self._batch = pb.VerdictBatch()
        self._batch_bytes = 0
        self._full: deque[bytes] = deque()
        self._to_write = asyncio.Event()
        self._written = asyncio.Event()
        self._over = False
        """Whether no more messages will be read."""
        self._draining = False
        self._last_batch = 0.0

    def __repr__(self) -> str:
        state = "over" if self._over else "draining" if self._draining else "open"
        return f"<ReviewStream {state} in_flight={len(self._running)} full={len(self._full)}>"

    async def serve(self) -> None:
        """Answer calls until the gateway ends the stream, or until it is drained.

        Raises:
            asyncio.CancelledError: the stream or the connection was aborted; running calls are cancelled.
            ProtocolViolation: the gateway violated the contract; running calls are cancelled.
        """
        reader = asyncio.create_task(self._read())
        reader.add_done_callback(self._read_ended)
        try:
            while not (self._over and not self._running):
                await self._to_write.wait()
                self._to_write.clear()
                await self._write()
                if reader.done() and not reader.cancelled():
                    reader.result()
        except (aio.UsageError, aio.InternalError):
            pass  # the call ended between two steps
        finally:
            reader.cancel()
            for running in self._running.values():
                running.cancel()
            self._running.clear()
            with suppress(asyncio.CancelledError, ProtocolViolation, aio.BaseError):
                await reader

    def drain(self) -> None:
        """Send the drain notice; the stream ends when no call is in flight, or after ``QUIET_S``."""
        if self._draining or self._over:
            return
        self._draining = True
        self._batch.draining = True
        self._last_batch = time.monotonic()
        self._to_write.set()
        self._evaluator.loop.call_later(QUIET_S, self._end_if_quiet)

    def _end_if_quiet(self) -> None:
        if self._over:
            return
        idle_s = time.monotonic() - self._last_batch
        if self._running or idle_s < QUIET_S:
            self._evaluator.loop.call_later(max(QUIET_S - idle_s, 0.05), self._end_if_quiet)
            return
        self._over = True
        self._to_write.set()

    async def _read(self) -> None:
        while isinstance(message := await self._rpc.read(), bytes):
            self._accept(message)
            while self._full:
                self._written.clear()
                await self._written.wait()

    def _read_ended(self, _: asyncio.Task[None]) -> None:
        self._over = True
        self._to_write.set()

    async def _write(self) -> None:
        while self._full or self._batch_bytes or self._batch.draining:
            if not self._full:
                self._seal()
            await self._rpc.write(self._full.popleft())
            self._written.set()

    def _accept(self, message: bytes) -> None:
        """Start the calls of one batch; calls that need no waiting are answered."""
        arrived = self._last_batch = time.monotonic()
        try:
            batch = pb.ReviewBatch.FromString(message)
        except DecodeError as problem:
            raise ProtocolViolation(f"not a ReviewBatch: {problem}") from None
        payloads = [(payload.admission_request, payload.namespace_object) for payload in batch.payloads]
        cancelled = set(batch.cancelled)
        self._evaluator.mark()
        for call in batch.calls:
            number = call.id
            if number in cancelled:
                continue
            if number in self._running:
                raise ProtocolViolation(f"call id {number} is used again while its call is in flight")
            outcome = self._begin(call, payloads, arrived)
            if isinstance(outcome, Running):
                self._running[number] = outcome
            else:
                self._add(number, outcome)
        for number in cancelled:
            running = self._running.pop(number, None)
            if running is not None:
                running.cancel()
        self._to_write.set()

    def _begin(self, call: pb.Call, payloads: list[tuple[bytes, bytes]], arrived: float) -> Outcome | Running:
        policy = self._policies.get(call.policy)
        if policy is None:
            return unknown_policy(call.policy, self._policies)
        position = call.payload
        if position >= len(payloads):
            text = f"the call is for payload {position}, the batch has {len(payloads)}"
            return error(grpc.StatusCode.INVALID_ARGUMENT, text)
        if len(self._running) >= MAX_IN_FLIGHT:
            text = f"{MAX_IN_FLIGHT} calls of this stream are in flight"
            return error(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        request, namespace = payloads[position]
        deadline = arrived + call.timeout_millis / 1000
        review = Review(request, namespace, deadline=deadline, mutating=policy.mutating)
        return self._evaluator.begin(policy, review, partial(self._finished, call.id))

    def _finished(self, number: int, outcome: Outcome) -> None:
        if self._running.pop(number, None) is not None:
            self._add(number, outcome)
            self._to_write.set()

    def _add(self, number: int, outcome: Outcome) -> None:
        """Add a verdict to the next message."""
        size = VERDICT_BYTES if outcome is ALLOWED else VERDICT_BYTES + outcome.ByteSize()
        if self._batch_bytes + size > MAX_MESSAGE_BYTES:
            self._seal()
        self._batch_bytes += size
        verdict = self._batch.verdicts.add()
        verdict.id = number
        if outcome is ALLOWED:
            verdict.response.allowed = True
        elif isinstance(outcome, pb.ReviewResponse):
            verdict.response.CopyFrom(outcome)
        else:
            verdict.error.CopyFrom(outcome)

    def _seal(self) -> None:
        self._full.append(self._batch.SerializeToString())
        self._batch = pb.VerdictBatch()
        self._batch_bytes = 0

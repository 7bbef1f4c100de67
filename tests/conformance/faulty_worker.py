"""The sample worker of the Python SDK with one injected fault at a time.

``python -m tests.conformance.faulty_worker FAULT_FILE --listen ADDRESS``. FAULT_FILE contains the name of the
fault and is read at every call; an empty file means no fault. Each rule has at least one fault in ``FAULTS``.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import orjson
from grpc_health.v1 import health, health_pb2  # type: ignore[import-untyped]

from admission_gateway_worker import answer as answer_module
from admission_gateway_worker import batch as batch_module
from admission_gateway_worker import calls as calls_module
from admission_gateway_worker import server as server_module
from admission_gateway_worker import stream as stream_module
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.samples import server
from tests.conformance.aio_serving import AioServing, AioWorker

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS = {
    "review-vectors": (
        "other-message",
        "other-code",
        "no-causes",
        "other-patch",
        "patch-of-another-object",
        "no-patch",
        "no-warnings",
        "no-annotations",
        "other-error",
    ),
    "review-again": ("counts",),
    "review-unknown-policy": ("unknown-is-allowed",),
    "review-names-what-is-served": ("unknown-without-names",),
    "review-malformed": ("garbage-is-allowed", "dies-of-garbage"),
    "review-unknown-fields": ("refuses-unknown-fields",),
    "review-traceparent": ("refuses-traceparents",),
    "review-not-json": ("no-json-is-allowed", "null-is-allowed"),
    "review-malformed-namespace": ("namespace-passes", "namespace-hurts-all"),
    "review-long-details": ("long-details", "half-characters"),
    "review-at-once": ("first-answer-for-all",),
    "review-slow-neighbour": ("one-at-a-time",),
    "review-deadline": ("early", "allows-at-deadline"),
    "review-cancelled": ("fails-after-cancel",),
    "review-of-7-mib": ("four-mib",),
    "review-over-8-mib": ("sixteen-mib", "hangs-up-on-large"),
    "review-answer-over-8-mib": ("large-answers",),
    "stream-of-7-mib": ("four-mib",),
    "stream-over-8-mib": ("sixteen-mib", "ends-all-on-large"),
    "stream-answer-over-8-mib": ("large-answers", "ends-on-large-answer"),
    "stream-verdicts-split": ("large-batches", "cut-denials"),
    "batch-vectors": ("stream-other-message", "stream-no-patch"),
    "batch-like-review": ("stream-other-error",),
    "batch-shared-payload": ("leaks-changes",),
    "batch-many": (
        "drops-one",
        "repeats-one",
        "invents-one",
        "no-outcome",
        "code-0",
        "no-batch",
        "all-chained",
    ),
    "batch-own-answers": ("old-payloads",),
    "batch-replies": ("one-by-one",),
    "batch-ids": ("double-ids", "signed-ids", "no-id-0"),
    "batch-unknown-fields": ("refuses-unknown-fields",),
    "batch-traceparent": ("refuses-traceparents",),
    "batch-payload-out-of-range": ("clamps-payloads", "ends-on-payload"),
    "batch-unknown-policy": ("stream-unknown-is-allowed", "ends-on-unknown-policy"),
    "batch-not-json": ("stream-no-json-is-allowed",),
    "batch-empty": ("ends-on-empty",),
    "call-slow-neighbour": ("slow-first",),
    "call-no-time": ("no-time-is-much",),
    "call-timeout": ("stream-early", "stream-late"),
    "call-longest-timeout": ("signed-timeout",),
    "call-cancelled": ("ignores-cancelled",),
    "call-cancelled-at-once": ("ignores-cancelled",),
    "call-cancelled-unknown": ("ends-on-cancelled",),
    "call-id-again": ("ids-once",),
    "call-too-many": ("no-limit", "low-limit", "keeps-cancelled"),
    "chain-like-review": ("flat-chains", "never-chained", "stream-no-patch"),
    "chain-branches": ("chains-in-line",),
    "chain-longest": ("short-chains",),
    "chain-after-failure": ("ends-at-denial",),
    "chain-order": ("flat-chains", "verdicts-at-the-end"),
    "chain-timeout": ("flat-chains",),
    "chain-cancelled": ("flat-chains", "ignores-cancelled"),
    "chain-cancelled-at-once": ("flat-chains", "ignores-cancelled"),
    "chain-unknown": ("passes-over-unknown-after", "ends-on-unknown-after"),
    "chain-id-again": ("ids-once",),
    "chain-duplicate-id": ("passes-over-duplicates",),
    "chain-too-many": ("no-limit", "flat-chains"),
    "chain-half-close": ("half-close-is-cancel", "half-close-fails"),
    "parameters-by-id": ("parameters-of-a-batch", "never-applied"),
    "parameters-of-a-review": ("ignores-parameters", "never-applied"),
    "parameters-unknown-id": ("unknown-parameters-are-none",),
    "parameters-unusable": ("any-parameters-will-do",),
    "parameters-not-taken": ("all-policies-take-parameters",),
    "parameters-bounds": ("drops-long-parameters",),
    "check-parameters-usable": ("check-finds-a-problem",),
    "check-parameters-unusable": ("check-finds-none", "check-has-another-text", "check-is-a-status"),
    "check-parameters-too-long": ("check-finds-none", "check-is-a-status"),
    "check-parameters-unknown-policy": ("check-knows-all",),
    "stream-of-the-gateway": ("grpc-only", "never-ok"),
    "stream-half-close": ("half-close-is-cancel", "half-close-fails"),
    "stream-half-close-at-once": ("half-close-fails", "half-close-hangs"),
    "stream-duplicate-id": ("passes-over-duplicates", "ends-all-on-duplicate", "other-code-on-duplicate"),
    "stream-garbage": ("passes-over-garbage", "ok-on-garbage", "ends-all-on-garbage"),
    "stream-several": ("wrong-stream",),
    "stream-cancelled": ("fails-after-stream",),
    "bounds-of-a-batch": ("takes-any-batch", "refuses-full-batches"),
    "bounds-empty-payloads": ("takes-any-batch",),
    "bounds-many-calls": ("waits-for-batches",),
    "list-unique": ("lists-twice", "lists-none", "lists-no-list"),
    "list-served": ("lists-more",),
    "list-parameters": ("lists-no-schema", "lists-no-json"),
    "list-mutating": ("lists-none-mutating", "lists-all-mutating"),
    "health-check": ("not-serving",),
    "health-check-unknown": ("knows-all",),
    "health-watch": ("not-serving", "watch-ends"),
    "health-watch-unknown": ("knows-all", "watch-ends"),
    "keepalive-without-calls": ("few-pings",),
    "keepalive-with-calls": ("few-pings",),
    "stop-notice": ("no-notice",),
    "stop-in-flight": ("cuts-off-at-stop",),
    "stop-in-flight-review": ("cuts-off-at-stop",),
    "stop-crossing": ("deaf-at-stop",),
    "stop-half-closed": ("never-ok",),
    "stop-quiet": ("impatient", "never-ends-when-quiet"),
    "stop-health": ("always-healthy",),
    "stop-refuses": ("keeps-open",),
    "stop-exit": ("exit-status", "lingers"),
    "stop-socket": ("leaves-socket",),
}
"""Faults that violate a rule, by rule."""

DEADLY = ("dies-of-garbage", "hangs-up-on-large")
"""Faults that end the worker."""

# The changed attributes are Final in the SDK.
answer: Any = answer_module
batch: Any = batch_module
calls: Any = calls_module
stream: Any = stream_module

LIMIT = 8 << 20
CORRECT_BOUNDS = batch._BOUNDS
CORRECT_MAX_RESPONSE = answer.MAX_RESPONSE_BYTES
SIZES = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))
PINGS = (("grpc.http2.min_ping_interval_without_data_ms", 500), ("grpc.keepalive_permit_without_calls", 1))
CODES = {code.value[0]: code for code in grpc.StatusCode}
UNKNOWN_FIELD = b"\xc2\x3e\x05hello"
INVALID, EXHAUSTED, INTERNAL = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
)


class State:
    """State of the current fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.count = 0
        self.is_broken = False
        self.first: Any = None
        self.turn = asyncio.Lock()
        self.streams: list[FaultyRpc] = []


class Current:
    """The current fault."""

    file = Path(os.devnull)
    state = State("")


def current_state() -> State:
    """Return the state of the current fault, after applying the fault in the file."""
    fault = Current.file.read_text().strip()
    if fault != Current.state.fault:
        Current.state = State(fault)
        answer.MAX_RESPONSE_BYTES = (32 << 20) if fault == "large-answers" else CORRECT_MAX_RESPONSE
        batch._BOUNDS = {
            field: (name, {"takes-any-batch": 1 << 20, "refuses-full-batches": bound - 1}.get(fault, bound))
            for field, (name, bound) in CORRECT_BOUNDS.items()
        }
        calls.MAX_IN_FLIGHT = {"no-limit": 1 << 20, "low-limit": 100}.get(fault, 4096)
        answer.MAX_ERROR_BYTES = 1 << 20 if fault == "long-details" else 2000
    return Current.state


def error(code: grpc.StatusCode, text: str) -> pb.Error:
    return pb.Error(code=code.value[0], message=text)


def is_json_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def usable(parameters: bytes) -> bytes:
    return parameters if re.fullmatch(rb'{"max":[0-9]+}', parameters) else b"{}"


def is_null(text: bytes) -> bool:
    return text == b"null"


class FaultyWorker(AioWorker):
    """Review and ListPolicies with faults; streams use a FaultyRpc."""

    async def review(self, message: bytes, rpc: Any) -> bytes:
        now = current_state()
        if len(message) > LIMIT and now.fault != "sixteen-mib":
            if now.fault == "hangs-up-on-large":
                os._exit(1)
            await rpc.abort(EXHAUSTED, "larger than max")
        running: Any = None
        self._unary[rpc] = running  # so that the shutdown waits for it
        self.idle.clear()
        try:
            outcome = await self._faulty_outcome(message, rpc, now)
            if isinstance(outcome, pb.Error):
                await rpc.abort(CODES[outcome.code], outcome.message)
            return bytes(outcome.SerializeToString())
        finally:
            self._unary.pop(rpc, None)
            self._update_idle()

    async def _faulty_outcome(self, message: bytes, rpc: Any, now: State) -> Any:
        fault = now.fault
        try:
            request = pb.ReviewRequest.FromString(message)
        except Exception:
            if fault == "dies-of-garbage":
                os._exit(1)
            if fault == "garbage-is-allowed":
                return pb.ReviewResponse(allowed=True)
            raise
        if fault == "ignores-parameters":
            request.parameters = b""
            message = request.SerializeToString()
        if fault == "refuses-traceparents" and dict(rpc.invocation_metadata()).get("traceparent"):
            return error(INVALID, "a trace context")
        if (early := await self._before(request, message, now)) is not None:
            return early
        if fault == "one-at-a-time":
            async with now.turn:
                return await super().outcome(message, rpc)
        try:
            outcome = await super().outcome(message, rpc)
        except asyncio.CancelledError:
            now.is_broken = fault == "fails-after-cancel"
            raise
        return self._after(request, outcome, now)

    async def _before(self, request: pb.ReviewRequest, message: bytes, now: State) -> Any:
        fault, text = now.fault, request.admission_request
        sleeps = request.policy == "sleeps"
        if now.is_broken:
            return error(INTERNAL, "broken")
        if fault == "waits-for-batches" and any(stream.is_busy for stream in self._streams):
            await asyncio.sleep(20)
        if fault == "refuses-unknown-fields" and message.endswith(UNKNOWN_FIELD):
            return error(INVALID, "a field that is not known")
        if fault == "four-mib" and len(message) > 4 << 20:
            return error(EXHAUSTED, "larger than max")
        if sleeps and fault == "early":
            return error(grpc.StatusCode.DEADLINE_EXCEEDED, "not yet")
        if sleeps and fault == "allows-at-deadline":
            await asyncio.sleep(0.25)
            return pb.ReviewResponse(allowed=True)
        if sleeps and fault == "cuts-off-at-stop":
            while not self._draining:
                await asyncio.sleep(0.01)
            return error(grpc.StatusCode.UNAVAILABLE, "stopping")
        allowed = (
            (fault == "unknown-is-allowed" and request.policy not in server.policies)
            or (fault == "no-json-is-allowed" and not is_json_object(text))
            or (fault == "null-is-allowed" and is_null(text))
            or (fault == "namespace-passes" and request.namespace_object)
        )
        if allowed:
            return pb.ReviewResponse(allowed=True)
        if (
            fault == "namespace-hurts-all"
            and request.namespace_object
            and not is_json_object(request.namespace_object)
        ):
            return error(INVALID, "namespace_object is not JSON")
        return None

    def _after(self, request: pb.ReviewRequest, outcome: Any, now: State) -> Any:
        fault = now.fault
        now.count += 1
        if isinstance(outcome, pb.Error):
            if fault == "unknown-without-names":
                return error(grpc.StatusCode.NOT_FOUND, "no such policy")
            if fault == "other-error":
                return error(grpc.StatusCode.UNKNOWN, "failed")
            if fault == "half-characters" and outcome.code == INTERNAL.value[0]:
                outcome.message = outcome.message[:500] + "\ufffd"
            return outcome
        changed = pb.ReviewResponse()
        changed.CopyFrom(outcome)
        if fault == "first-answer-for-all" and request.policy == "deny-latest-tag":
            now.first = now.first or changed
            return now.first
        if fault == "counts":
            changed.warnings.append(f"asked {now.count} times")
        if fault in ANSWER_FAULTS:
            ANSWER_FAULTS[fault](changed)
        return changed

    async def list_policies(self, message: bytes, rpc: Any) -> bytes:
        fault = current_state().fault
        listed = pb.ListPoliciesResponse.FromString(await super().list_policies(message, rpc))
        if fault == "lists-twice":
            listed.policies.append(listed.policies[0])
        elif fault == "lists-none":
            del listed.policies[:]
        elif fault == "lists-no-list":
            return b"\xff\xff"
        elif fault in ("lists-no-schema", "lists-no-json"):
            for policy in listed.policies:
                policy.parameters_schema = "" if fault == "lists-no-schema" else "object"
        elif fault == "lists-more":
            listed.policies.add(name="not-there")
        elif fault in ("lists-none-mutating", "lists-all-mutating"):
            for policy in listed.policies:
                policy.mutating = fault == "lists-all-mutating"
        return bytes(listed.SerializeToString())

    async def check_parameters(self, message: bytes, rpc: Any) -> bytes:
        fault = current_state().fault
        if fault == "check-knows-all":
            return b""
        answer = pb.CheckParametersResponse.FromString(await super().check_parameters(message, rpc))
        if fault == "check-finds-none":
            answer.problem = ""
        elif fault == "check-finds-a-problem":
            answer.problem = "no"
        elif fault == "check-has-another-text" and answer.problem:
            answer.problem += "!"
        elif fault == "check-is-a-status" and answer.problem:
            await rpc.abort(INVALID, answer.problem)
        return bytes(answer.SerializeToString())

    async def review_stream(self, messages: object, rpc: Any) -> None:
        now = current_state()
        faulty = FaultyRpc(rpc, now, self)
        if now.is_broken:
            await rpc.abort(INTERNAL, "broken")
        agent = dict(rpc.invocation_metadata()).get("user-agent", "")
        if now.fault == "grpc-only" and not agent.startswith("grpc"):
            await rpc.abort(INTERNAL, "not gRPC")
        now.streams.append(faulty)
        try:
            await super().review_stream(messages, faulty)
        except asyncio.CancelledError:
            now.is_broken = now.fault == "fails-after-stream"
            raise
        if now.fault == "never-ok":
            await rpc.abort(INTERNAL, "never OK")

    def drain(self) -> None:
        now = current_state()
        if now.fault == "deaf-at-stop":
            for rpc in now.streams:
                rpc.is_deaf = True
        if now.fault == "cuts-off-at-stop":
            for found in self._streams:
                numbers = list(found._calls._in_flight)
                found._calls.cancel_all()
                for number in numbers:
                    found._add(number, error(grpc.StatusCode.UNAVAILABLE, "stopping"), is_chained=False)
        super().drain()


def set_status(**fields: Any) -> Callable[[pb.ReviewResponse], None]:
    def fault(response: pb.ReviewResponse) -> None:
        if not response.allowed:
            response.status.MergeFrom(pb.Status(**fields))

    return fault


def with_patch(patch: bytes) -> Callable[[pb.ReviewResponse], None]:
    def fault(response: pb.ReviewResponse) -> None:
        if response.patch:
            response.patch = patch

    return fault


ANSWER_FAULTS: dict[str, Callable[[pb.ReviewResponse], None]] = {
    "other-message": set_status(message="denied"),
    "other-code": set_status(code=422),
    "no-causes": lambda response: response.status.ClearField("causes"),
    "other-patch": with_patch(b'[{"op":"add","path":"/x","value":1}]'),
    "patch-of-another-object": with_patch(b'[{"op":"remove","path":"/x"}]'),
    "no-patch": lambda response: response.ClearField("patch"),
    "no-warnings": lambda response: response.ClearField("warnings"),
    "no-annotations": lambda response: response.ClearField("audit_annotations"),
    "never-applied": lambda response: response.ClearField("parameters_applied"),
}


class FaultyRpc:
    """A layer between a stream of the SDK and gRPC that can change messages in both directions."""

    def __init__(self, rpc: Any, now: State, worker: FaultyWorker) -> None:
        self._rpc = rpc
        self._now = now
        self._worker = worker
        self._payloads: list[Any] = []
        self._ids: set[int] = set()
        self._parameters: set[int] = set()
        self._after: dict[int, int] = {}
        self._denied: set[int] = set()
        self._held = pb.VerdictBatch()
        self._sleeping = False
        self.is_deaf = False
        self.killed = asyncio.Event()
        self.is_over = False

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        if self._now.fault == "other-code-on-duplicate":
            code = INTERNAL
        if self._now.fault == "ends-all-on-duplicate":
            await self._end_all(code, text)
        await self._rpc.abort(code, text)

    async def _end_all(self, code: grpc.StatusCode, text: str) -> None:
        for other in self._now.streams:
            if other is not self:
                other.killed.set()
        await self._rpc.abort(code, text)

    # -- reading ----------------------------------------------------------------------------------

    async def read(self) -> Any:
        while True:
            message = await self._next()
            if not isinstance(message, bytes):
                await self._half_closed()
                return message
            if not self.is_deaf and (changed := await self._taken(message)) is not None:
                return changed

    async def _next(self) -> Any:
        if self.is_over:
            return grpc.aio.EOF
        reading, killing = asyncio.ensure_future(self._rpc.read()), asyncio.ensure_future(self.killed.wait())
        try:
            await asyncio.wait({reading, killing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            killing.cancel()
        if self.killed.is_set():
            await self._rpc.abort(INTERNAL, "with another stream")
        return await reading

    async def _half_closed(self) -> None:
        fault = self._now.fault
        if fault == "half-close-is-cancel":
            await self._rpc.abort(grpc.StatusCode.CANCELLED, "half-closed")
        if fault == "half-close-fails":
            await self._rpc.abort(INTERNAL, "half-closed")
        if fault == "half-close-hangs":
            await asyncio.sleep(30)

    async def _taken(self, message: bytes) -> bytes | None:
        fault = self._now.fault
        if len(message) > LIMIT and fault != "sixteen-mib":
            if fault == "ends-all-on-large":
                await self._end_all(EXHAUSTED, "larger than max")
            await self._rpc.abort(EXHAUSTED, "larger than max")
        if fault == "four-mib" and len(message) > 4 << 20:
            await self._rpc.abort(EXHAUSTED, "larger than max")
        if fault == "refuses-unknown-fields" and UNKNOWN_FIELD in message:
            await self._rpc.abort(INVALID, "a field that is not known")
        if message.startswith(2 * b"\x0a\x00") and len(message) > 1 << 20:
            return None if fault == "takes-any-batch" else message  # too many objects for this test
        try:
            batch = pb.ReviewBatch.FromString(message)
        except Exception:
            if fault == "passes-over-garbage":
                return None
            if fault == "ok-on-garbage":
                self.is_over = True
                return b""
            if fault == "ends-all-on-garbage":
                await self._end_all(INVALID, "garbage")
            raise
        await self._change(batch)
        return bytes(batch.SerializeToString())

    async def _change(self, batch: pb.ReviewBatch) -> None:  # noqa: C901
        fault = self._now.fault
        served = server.policies
        if fault == "ends-on-empty" and not batch.calls:
            await self._rpc.abort(INVALID, "empty")
        if fault == "ends-on-cancelled" and set(batch.cancelled) - self._ids:
            await self._rpc.abort(INVALID, "not in flight")
        if fault == "ends-on-unknown-policy" and any(call.policy not in served for call in batch.calls):
            await self._rpc.abort(grpc.StatusCode.NOT_FOUND, "no such policy")
        if fault == "ends-on-unknown-after" and any(call.after == call.id for call in batch.calls):
            await self._rpc.abort(INVALID, "no such call")
        if fault == "ends-on-payload" and any(call.payload >= len(batch.payloads) for call in batch.calls):
            await self._rpc.abort(INVALID, "no such payload")
        if fault == "refuses-traceparents" and any(call.traceparent for call in batch.calls):
            await self._rpc.abort(INVALID, "a trace context")
        if fault == "ids-once" and any(call.id in self._ids for call in batch.calls):
            await self._rpc.abort(INVALID, "used before")
        if fault == "passes-over-duplicates":
            seen: set[int] = set()
            calls = [c for c in batch.calls if not (c.id in self._ids | seen or seen.add(c.id))]  # type: ignore[func-returns-value]
            del batch.calls[:]
            batch.calls.extend(calls)
        self._ids.update(call.id for call in batch.calls)
        if fault in ("ignores-cancelled", "keeps-cancelled"):
            del batch.cancelled[:]
        if fault == "leaks-changes":
            self._leak(batch)
        if fault == "old-payloads":
            self._payloads = self._payloads or list(batch.payloads)
            del batch.payloads[:]
            batch.payloads.extend(self._payloads)
        self._change_parameters(batch)
        for call in batch.calls:
            self._change_call(call, batch)
        self._change_chains(batch)

    def _change_parameters(self, batch: pb.ReviewBatch) -> None:
        fault = self._now.fault
        self._parameters.update(one.id for one in batch.parameters)
        for call in batch.calls:
            forgotten = fault == "parameters-of-a-batch" and not batch.parameters
            unknown = fault == "unknown-parameters-are-none" and call.parameters not in self._parameters
            needless = fault == "all-policies-take-parameters" and call.policy != "limit-replicas"
            if forgotten or unknown or needless:
                call.parameters = 0
        for one in batch.parameters:
            if fault == "any-parameters-will-do":
                one.json = usable(one.json)
            if fault == "drops-long-parameters" and len(one.json) > 64 * 1024:
                one.json = b"{}"

    def _change_call(self, call: pb.Call, batch: pb.ReviewBatch) -> None:
        fault = self._now.fault
        self._sleeping |= call.policy == "sleeps"
        if fault == "clamps-payloads":
            call.payload = min(call.payload, len(batch.payloads) - 1)
        elif fault == "no-time-is-much":
            call.timeout_millis = call.timeout_millis or 20_000
        elif fault == "stream-early":
            call.timeout_millis //= 4
        elif fault == "stream-late":
            call.timeout_millis += 5_000
        elif fault == "signed-timeout" and call.timeout_millis >= 2**31:
            call.timeout_millis = 1

    def _change_chains(self, batch: pb.ReviewBatch) -> None:
        fault = self._now.fault
        earlier: list[int] = []
        for call in batch.calls:
            self._after[call.id] = call.after
            if not call.after:
                pass
            elif fault == "flat-chains":
                call.after = 0
            elif fault == "chains-in-line":
                call.after = earlier[-1]
            elif fault == "short-chains" and len(earlier) > 16:
                call.after = call.id
            elif fault == "passes-over-unknown-after" and call.after not in earlier:
                call.after = 0
            earlier.append(call.id)

    def _leak(self, batch: pb.ReviewBatch) -> None:
        """Let the calls behind the first mutating one see the object as that one left it."""
        request = orjson.loads(batch.payloads[0].admission_request)
        request["object"].setdefault("metadata", {})["labels"] = {"team": "leaked"}
        for containers in (request["object"].get("spec") or {}).values():
            for container in containers if isinstance(containers, list) else ():
                container["imagePullPolicy"] = "Always"
        leaked = batch.payloads.add()
        leaked.CopyFrom(batch.payloads[0])
        leaked.admission_request = orjson.dumps(request)
        for call in list(batch.calls)[len(batch.calls) // 2 :]:
            call.payload = len(batch.payloads) - 1

    # -- writing ----------------------------------------------------------------------------------

    async def write(self, message: bytes) -> None:
        fault = self._now.fault
        batch = pb.VerdictBatch.FromString(message)
        if fault == "slow-first" and self._sleeping:
            await asyncio.sleep(20)
        if fault == "no-notice":
            batch.draining = False
        if fault == "wrong-stream" and len(self._now.streams) > 1:
            others = self._now.streams
            await others[others.index(self) - 1]._rpc.write(message)
            return
        if fault == "ends-on-large-answer" and any(
            v.error.code == EXHAUSTED.value[0] for v in batch.verdicts
        ):
            await self._rpc.abort(EXHAUSTED, "larger than max")
        if fault == "one-by-one":
            for verdict in batch.verdicts:
                await self._rpc.write(pb.VerdictBatch(verdicts=[verdict]).SerializeToString())
            return
        if fault == "verdicts-at-the-end":
            self._held.MergeFrom(batch)
            if len(self._held.verdicts) < len(self._after):
                return
            batch = self._held
        if fault == "large-batches":
            self._held.MergeFrom(batch)
            if self._held.ByteSize() <= LIMIT:
                return
            batch = self._held
        for verdict in list(batch.verdicts):
            self._change_verdict(verdict, batch)
            self._change_chained(verdict)
        await self._rpc.write(b"\xff\xff" if fault == "no-batch" else batch.SerializeToString())

    def _change_verdict(self, verdict: pb.Verdict, batch: pb.VerdictBatch) -> None:  # noqa: C901
        fault = self._now.fault
        is_last = verdict is batch.verdicts[-1] or verdict.id == batch.verdicts[-1].id
        failed = verdict.HasField("error")
        if fault == "drops-one" and is_last:
            del batch.verdicts[-1]
        elif fault == "repeats-one" and is_last:
            batch.verdicts.append(verdict)
        elif fault == "invents-one" and is_last:
            batch.verdicts.add(id=verdict.id + 12345).response.allowed = True
        elif fault == "no-outcome":
            verdict.ClearField("outcome")
        elif fault == "code-0":
            verdict.error.code = 0
        elif fault == "double-ids":
            verdict.id = int(float(verdict.id)) % 2**64
        elif fault == "signed-ids":
            verdict.id &= 2**63 - 1
        elif fault == "no-id-0" and verdict.id == 0:
            verdict.id = 1
        elif (fault == "stream-unknown-is-allowed" and verdict.error.code == 5) or (
            fault == "stream-no-json-is-allowed" and verdict.error.code == 3
        ):
            verdict.response.allowed = True
        elif fault == "never-applied" and not failed:
            verdict.response.parameters_applied = False
        elif fault == "stream-other-error" and failed:
            verdict.error.message += "!"
        elif fault == "stream-other-message" and verdict.response.status.message:
            verdict.response.status.message += "!"
        elif fault == "stream-no-patch" and verdict.response.patch:
            verdict.response.ClearField("patch")
        elif fault == "cut-denials" and verdict.response.status.message:
            verdict.response.status.message = verdict.response.status.message[:100]
            verdict.response.status.ClearField("causes")

    def _change_chained(self, verdict: pb.Verdict) -> None:
        fault, after = self._now.fault, self._after.get(verdict.id, 0)
        if fault in ("all-chained", "never-chained"):
            verdict.chained = fault == "all-chained"
        elif fault in ("flat-chains", "passes-over-unknown-after"):
            verdict.chained = after != 0
        if not verdict.response.allowed:
            self._denied.add(verdict.id)
        if fault == "ends-at-denial" and after in self._denied:
            verdict.error.code = grpc.StatusCode.FAILED_PRECONDITION.value[0]


class FaultyHealth(health.aio.HealthServicer):  # type: ignore[misc]
    """Health with faults."""

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        fault = current_state().fault
        if fault == "not-serving":
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
        if fault == "knows-all":
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        return await super().Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        fault = current_state().fault
        if fault == "watch-ends":
            return
        if fault in ("not-serving", "knows-all"):
            status = "NOT_SERVING" if fault == "not-serving" else "SERVING"
            await context.write(health_pb2.HealthCheckResponse(status=status))
            await asyncio.sleep(30)
        await super().Watch(request, context)

    async def enter_graceful_shutdown(self) -> None:
        if current_state().fault != "always-healthy":
            await super().enter_graceful_shutdown()


def start_with(fault: str) -> None:
    """Apply a fault that has to be present at the start."""
    if fault == "few-pings":
        AioServing.options = SIZES
    elif fault == "impatient":
        stream.QUIET_S = 0.05
    elif fault == "never-ends-when-quiet":
        stream.QUIET_S = 8.0
    elif fault == "exit-status":
        atexit.register(os._exit, 3)
    elif fault == "lingers":
        # As if the worker waited for policies of cancelled calls.
        atexit.register(signal.pause)
    elif fault == "leaves-socket":
        # gRPC has removed it by then.
        atexit.register(socket.socket(socket.AF_UNIX).bind, sys.argv[2].removeprefix("unix:"))
    elif fault == "keeps-open":
        running: Any = AioServing
        correct = running.stop

        async def stop(self: Any, grace_s: float) -> int:
            self._worker.drain()
            await asyncio.sleep(4)
            return int(await correct(self, grace_s))

        running.stop = stop


def main() -> None:
    Current.file = Path(sys.argv.pop(1))
    AioServing.make_worker = FaultyWorker
    AioServing.make_health = FaultyHealth
    AioServing.options = (*SIZES, *PINGS)
    module: Any = server_module
    module.Serving = AioServing
    start_with(Current.file.read_text().strip())
    server.main()


if __name__ == "__main__":
    main()

"""The sample worker of the Python SDK with one fault: each rule of the kit has at least one in ``FAULTS``.

It runs on the event loop of a test, by ``FaultyServing``, or as a process: ``python -m
tests.conformance.faulty_worker FAULT --listen ADDRESS``.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import orjson
from google.protobuf.message import DecodeError

from admission_gateway_worker import answer, batch, calls, stream
from admission_gateway_worker import server as server_module
from admission_gateway_worker.connection import Connection
from admission_gateway_worker.health import Health
from admission_gateway_worker.http2 import messages
from admission_gateway_worker.http2.frames import ACK, ENHANCE_YOUR_CALM, PING, Violation
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.http2.server import Http2Server
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.samples import server
from admission_gateway_worker.serving import Serving
from admission_gateway_worker.single import Refused
from admission_gateway_worker.unary import SERVICE, PolicyWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from admission_gateway_worker.http2.server import ServerStream
    from admission_gateway_worker.rpc import Methods, Rpc
    from admission_gateway_worker.stream import ReviewStream

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

LIMIT = 8 << 20
UNKNOWN_FIELD = b"\xc2\x3e\x05hello"
MANY_CALLS = 50
LARGE = (messages, "MAX_MESSAGE_BYTES", 64 << 20)
"""Messages above the limit reach the worker, or the client, which reads them by the same module."""


def bounds(change: Callable[[int], int]) -> dict[int, tuple[str, int]]:
    """Return the bounds of a batch with all changed."""
    return {field: (name, change(bound)) for field, (name, bound) in batch._BOUNDS.items()}


def tolerates_two_pings(self: Any, kind: int, flags: int, stream: int, payload: bytes) -> None:
    """Stand in for ``Endpoint._take_control``, as gRPC servers with their defaults."""
    if kind == PING and not flags & ACK:
        self.pings = getattr(self, "pings", 0) + 1
        if self.pings > 2:
            raise Violation(ENHANCE_YOUR_CALM, "too many pings")
    take_control(self, kind, flags, stream, payload)


def knows_grpc_only(self: Connection, stream: ServerStream, fields: Mapping[str, str]) -> Rpc:
    """Stand in for ``Connection._accept``."""
    is_refused = fields[":path"].endswith("ReviewStream") and not fields["user-agent"].startswith("grpc")
    return accept(self, stream, {**fields, ":path": "/"} if is_refused else fields)


take_control, accept = Http2Server._take_control, Connection._accept
CHANGES: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "large-answers": ((answer, "MAX_RESPONSE_BYTES", 32 << 20), LARGE),
    "sixteen-mib": (LARGE,),
    "hangs-up-on-large": (LARGE,),
    "ends-all-on-large": (LARGE,),
    "long-details": ((answer, "MAX_ERROR_BYTES", 4000),),
    "takes-any-batch": ((batch, "_BOUNDS", bounds(lambda _: 1 << 20)),),
    "refuses-full-batches": ((batch, "_BOUNDS", bounds(lambda bound: bound - 1)),),
    "no-limit": ((calls, "MAX_IN_FLIGHT", 1 << 20),),
    "low-limit": ((calls, "MAX_IN_FLIGHT", 100),),
    "impatient": ((stream, "QUIET_S", 0.05),),
    "never-ends-when-quiet": ((stream, "QUIET_S", 8.0),),
    "few-pings": ((Http2Server, "_take_control", tolerates_two_pings),),
    "grpc-only": ((Connection, "_accept", knows_grpc_only),),
}
"""Faults in constants and functions of the SDK."""


@contextmanager
def changed(fault: str) -> Iterator[None]:
    """Have the SDK's constants and functions changed by *fault* during the block."""
    with ExitStack() as stack:
        for change in CHANGES.get(fault, ()):
            stack.enter_context(mock.patch.object(*change))
        yield


def error(code: StatusCode, text: str) -> pb.Error:
    return pb.Error(code=code, message=text)


def is_json_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def usable(parameters: bytes) -> bytes:
    return parameters if re.fullmatch(rb'{"max":[0-9]+}', parameters) else b"{}"


ALLOWED_BEFORE: dict[str, Callable[[pb.ReviewRequest], bool]] = {
    "unknown-is-allowed": lambda request: request.policy not in server.policies,
    "no-json-is-allowed": lambda request: not is_json_object(request.admission_request),
    "null-is-allowed": lambda request: request.admission_request == b"null",
    "namespace-passes": lambda request: bool(request.namespace_object),
}
"""Reviews that are allowed without the policy."""
REFUSED_BATCHES: dict[str, Callable[[pb.ReviewBatch, set[int]], bool]] = {
    "ends-on-empty": lambda batch, _: not batch.calls,
    "ends-on-cancelled": lambda batch, ids: bool(set(batch.cancelled) - ids),
    "ends-on-unknown-policy": lambda batch, _: (
        not {call.policy for call in batch.calls} <= set(server.policies)
    ),
    "ends-on-unknown-after": lambda batch, _: any(call.after == call.id for call in batch.calls),
    "ends-on-payload": lambda batch, _: any(call.payload >= len(batch.payloads) for call in batch.calls),
    "refuses-traceparents": lambda batch, _: any(call.traceparent for call in batch.calls),
    "ids-once": lambda batch, ids: any(call.id in ids for call in batch.calls),
}
"""Batches that end the stream; the set has all ids so far."""


class FaultyWorker(PolicyWorker):
    """The methods of the service; streams use a ``FaultyStream``."""

    def __init__(
        self, policies: Mapping[str, Any], evaluator: Any, fault: str, die: Callable[[], None]
    ) -> None:
        super().__init__(policies, evaluator)
        self.fault = fault
        self.is_broken = False
        self.faulty_streams: list[FaultyStream] = []
        self._die = die
        self._count = 0
        self._first: pb.ReviewResponse | None = None
        self._requests: dict[Rpc, pb.ReviewRequest] = {}

    # -- Review -----------------------------------------------------------------------------------

    def _review(self, rpc: Rpc, message: bytes) -> None:
        fault = self.fault
        try:
            request = pb.ReviewRequest.FromString(message)
        except DecodeError:
            if fault == "dies-of-garbage":
                self._die()
            elif fault == "garbage-is-allowed":
                self._answer(rpc, pb.ReviewResponse(allowed=True))
            else:
                super()._review(rpc, message)
            return
        if fault == "hangs-up-on-large" and len(message) > LIMIT:
            self._die()
            return
        if fault == "ignores-parameters":
            request.parameters = b""
            message = request.SerializeToString()
        if (early := self._before(rpc, request, message)) is not None:
            self._answer(rpc, early)
        elif fault == "allows-at-deadline" and request.policy == "sleeps":
            allowed = pb.ReviewResponse(allowed=True)
            self._evaluator.loop.call_later(0.25, self._answer, rpc, allowed)
        elif not self._is_held():
            self._requests[rpc] = request
            super()._review(rpc, message)

    def _is_held(self) -> bool:
        """Whether a Review is never answered."""
        if self.fault == "waits-for-batches":
            return any(len(stream.ids) > MANY_CALLS for stream in self.faulty_streams)
        return self.fault == "one-at-a-time" and bool(self._unary)

    def _before(self, rpc: Rpc, request: pb.ReviewRequest, message: bytes) -> Any:
        """Return the outcome of a request whose policy is not asked; None if it is."""
        fault, namespace = self.fault, request.namespace_object
        if self.is_broken:
            return error(StatusCode.INTERNAL, "broken")
        if fault == "refuses-traceparents" and rpc.traceparent:
            return error(StatusCode.INVALID_ARGUMENT, "a trace context")
        if fault == "refuses-unknown-fields" and message.endswith(UNKNOWN_FIELD):
            return error(StatusCode.INVALID_ARGUMENT, "a field that is not known")
        if fault == "four-mib" and len(message) > 4 << 20:
            return error(StatusCode.RESOURCE_EXHAUSTED, "larger than max")
        if fault == "early" and request.policy == "sleeps":
            return error(StatusCode.DEADLINE_EXCEEDED, "not yet")
        if fault in ALLOWED_BEFORE and ALLOWED_BEFORE[fault](request):
            return pb.ReviewResponse(allowed=True)
        if fault == "namespace-hurts-all" and namespace and not is_json_object(namespace):
            return error(StatusCode.INVALID_ARGUMENT, "namespace_object is not JSON")
        return None

    def _answer(self, rpc: Rpc, outcome: Any) -> None:
        request = self._requests.pop(rpc, None)
        super()._answer(rpc, outcome if request is None else self._changed(request, outcome))

    def _changed(self, request: pb.ReviewRequest, outcome: Any) -> Any:
        """Return another outcome of a policy."""
        fault, changed = self.fault, type(outcome)()
        changed.CopyFrom(outcome)
        if isinstance(changed, pb.Error):
            if fault == "unknown-without-names":
                return error(StatusCode.NOT_FOUND, "no such policy")
            if fault == "other-error":
                return error(StatusCode.UNKNOWN, "failed")
            if fault == "half-characters" and changed.code == StatusCode.INTERNAL:
                changed.message = changed.message[:500] + "\ufffd"
            return changed
        self._count += 1
        if fault == "first-answer-for-all" and request.policy == "deny-latest-tag":
            self._first = self._first or changed
            return self._first
        if fault == "counts":
            changed.warnings.append(f"asked {self._count} times")
        if fault in ANSWER_FAULTS:
            ANSWER_FAULTS[fault](changed)
        return changed

    def _cancel_review(self, rpc: Rpc) -> None:
        super()._cancel_review(rpc)
        self.is_broken |= self.fault == "fails-after-cancel"

    # -- the other methods ------------------------------------------------------------------------

    def _list_policies(self, message: bytes) -> bytes:
        fault = self.fault
        listed = pb.ListPoliciesResponse.FromString(super()._list_policies(message))
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
        return listed.SerializeToString()

    def _check_parameters(self, message: bytes) -> bytes:
        fault = self.fault
        if fault == "check-knows-all":
            return b""
        checked = pb.CheckParametersResponse.FromString(super()._check_parameters(message))
        if fault == "check-finds-none":
            checked.problem = ""
        elif fault == "check-finds-a-problem":
            checked.problem = "no"
        elif fault == "check-has-another-text" and checked.problem:
            checked.problem += "!"
        elif fault == "check-is-a-status" and checked.problem:
            raise Refused(StatusCode.INVALID_ARGUMENT, checked.problem)
        return checked.SerializeToString()

    def _review_stream(self, rpc: Rpc) -> Any:
        faulty: Any = FaultyStream(rpc, self)
        faulty.stream = super()._review_stream(faulty)
        self.faulty_streams.append(faulty)
        if self.is_broken:
            # Later, because the RPC sends nothing before it has its handler.
            self._evaluator.loop.call_soon(faulty.end, StatusCode.INTERNAL, "broken")
        return faulty

    def drain(self) -> None:
        for faulty in self.faulty_streams:
            faulty.is_deaf = self.fault == "deaf-at-stop"
        if self.fault == "cuts-off-at-stop":
            for rpc in tuple(self._unary):
                self._cancel_review(rpc)
                rpc.finish(StatusCode.UNAVAILABLE, "stopping")
            for found in self._streams:
                numbers = list(found._calls._in_flight)
                found._calls.cancel_all()
                for number in numbers:
                    found._add(number, error(StatusCode.UNAVAILABLE, "stopping"), is_chained=False)
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


class FaultyStream:
    """A layer between the SDK's handler of a stream and its RPC, for messages in both directions."""

    stream: ReviewStream

    def __init__(self, rpc: Rpc, worker: FaultyWorker) -> None:
        self.ids: set[int] = set()
        """The ids of all calls so far."""
        self.is_deaf = False
        self._rpc = rpc
        self._worker = worker
        self._fault = worker.fault
        self._payloads: list[Any] = []
        self._parameters: set[int] = set()
        self._after: dict[int, int] = {}
        self._denied: set[int] = set()
        self._held = pb.VerdictBatch()
        self._sleeping = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rpc, name)

    def end(self, code: StatusCode, text: str = "") -> None:
        """End the stream with a status."""
        self._rpc.finish(code, text)
        self.stream.cancelled()

    def _end_all(self, code: StatusCode, text: str) -> None:
        """End this stream, and all others of the worker."""
        for other in self._worker.faulty_streams:
            other.end(StatusCode.INTERNAL if other is not self else code, text)

    # -- called by the RPC ------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return self.stream.is_busy

    def go_on(self) -> None:
        self.stream.go_on()

    def writable(self) -> None:
        self.stream.writable()

    def cancelled(self) -> None:
        self._worker.is_broken |= self._fault == "fails-after-stream"
        self.stream.cancelled()

    def half_closed(self) -> None:
        if self._fault == "half-close-is-cancel":
            self.end(StatusCode.CANCELLED, "half-closed")
        elif self._fault == "half-close-fails":
            self.end(StatusCode.INTERNAL, "half-closed")
        elif self._fault != "half-close-hangs":
            self.stream.half_closed()

    def received(self, message: bytes) -> None:
        if not self.is_deaf and (changed := self._changed(bytes(message))) is not None:
            self.stream.received(changed)

    def _changed(self, message: bytes) -> bytes | None:
        """Return a message for the handler; None if it gets none."""
        fault = self._fault
        if (fault == "ends-all-on-large" and len(message) > LIMIT) or (
            fault == "four-mib" and len(message) > 4 << 20
        ):
            ending = self._end_all if fault == "ends-all-on-large" else self.end
            ending(StatusCode.RESOURCE_EXHAUSTED, "larger than max")
            return None
        if fault == "refuses-unknown-fields" and UNKNOWN_FIELD in message:
            self.end(StatusCode.INVALID_ARGUMENT, "a field that is not known")
            return None
        if message.startswith(2 * b"\x0a\x00") and len(message) > 1 << 20:
            return None if fault == "takes-any-batch" else message  # too many objects for this test
        try:
            batch = pb.ReviewBatch.FromString(message)
        except DecodeError:
            if fault == "ok-on-garbage":
                self.end(StatusCode.OK)
            elif fault == "ends-all-on-garbage":
                self._end_all(StatusCode.INVALID_ARGUMENT, "garbage")
            return message if not fault.endswith("-garbage") else None
        if fault in REFUSED_BATCHES and REFUSED_BATCHES[fault](batch, self.ids):
            self.end(StatusCode.INVALID_ARGUMENT, "refused")
            return None
        self._change(batch)
        return batch.SerializeToString()

    def _change(self, batch: pb.ReviewBatch) -> None:
        fault = self._fault
        if fault == "passes-over-duplicates":
            seen: set[int] = set()
            calls = [c for c in batch.calls if not (c.id in self.ids | seen or seen.add(c.id))]  # type: ignore[func-returns-value]
            del batch.calls[:]
            batch.calls.extend(calls)
        self.ids.update(call.id for call in batch.calls)
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
        fault = self._fault
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
        fault = self._fault
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
        fault = self._fault
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

    # -- called by the handler --------------------------------------------------------------------

    def finish(self, code: StatusCode = StatusCode.OK, text: str = "") -> None:
        fault = self._fault
        if fault == "never-ok" and code == StatusCode.OK:
            code, text = StatusCode.INTERNAL, "never OK"
        if fault == "other-code-on-duplicate" and code != StatusCode.OK:
            code = StatusCode.INTERNAL
        if fault == "ends-all-on-duplicate" and code != StatusCode.OK:
            self._end_all(code, text)
        self._rpc.finish(code, text)

    def send(self, message: bytes) -> None:
        fault = self._fault
        batch = pb.VerdictBatch.FromString(message)
        if fault == "slow-first" and self._sleeping:
            return
        if fault == "no-notice":
            batch.draining = False
        if fault == "wrong-stream" and len(self._worker.faulty_streams) > 1:
            others = self._worker.faulty_streams
            others[others.index(self) - 1]._rpc.send(message)
            return
        if fault == "ends-on-large-answer" and any(
            verdict.error.code == StatusCode.RESOURCE_EXHAUSTED for verdict in batch.verdicts
        ):
            self.end(StatusCode.RESOURCE_EXHAUSTED, "larger than max")
            return
        if fault == "one-by-one":
            for verdict in batch.verdicts:
                self._rpc.send(pb.VerdictBatch(verdicts=[verdict]).SerializeToString())
            return
        if fault in ("verdicts-at-the-end", "large-batches"):
            self._held.MergeFrom(batch)
            if fault == "verdicts-at-the-end" and len(self._held.verdicts) < len(self._after):
                return
            if fault == "large-batches" and self._held.ByteSize() <= LIMIT:
                return
            batch = self._held
        for verdict in list(batch.verdicts):
            self._change_verdict(verdict, batch)
            self._change_chained(verdict)
        self._rpc.send(b"\xff\xff" if fault == "no-batch" else batch.SerializeToString())

    def _change_verdict(self, verdict: pb.Verdict, batch: pb.VerdictBatch) -> None:  # noqa: C901
        fault = self._fault
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
        fault, after = self._fault, self._after.get(verdict.id, 0)
        if fault in ("all-chained", "never-chained"):
            verdict.chained = fault == "all-chained"
        elif fault in ("flat-chains", "passes-over-unknown-after"):
            verdict.chained = after != 0
        if not verdict.response.allowed:
            self._denied.add(verdict.id)
        if fault == "ends-at-denial" and after in self._denied:
            verdict.error.code = StatusCode.FAILED_PRECONDITION


class FaultyHealth(Health):
    """Health with faults."""

    fault = ""

    def methods(self) -> Methods:
        methods = dict(super().methods())
        if self.fault == "watch-ends":
            [watch] = [name for name in methods if name.endswith("/Watch")]
            methods[watch] = methods[watch.replace("Watch", "Check")]
        return methods

    def _state(self, service: str) -> bytes:
        state = {"not-serving": 2, "knows-all": 1}.get(self.fault)
        return super()._state(service) if state is None else bytes([1 << 3, state])

    def _check(self, message: bytes) -> bytes:
        return self._state("") if self.fault == "knows-all" else super()._check(message)

    def stop(self) -> None:
        if self.fault != "always-healthy":
            super().stop()


class FaultyServing(Serving):
    """The samples' server with a fault, which ``changed`` has to be in force for."""

    def __init__(self, fault: str, policies: Mapping[str, Any], **_: Any) -> None:
        super().__init__(policies)
        self._fault = fault
        self._worker = FaultyWorker(policies, self._evaluator, fault, self.die)
        self._health = FaultyHealth(SERVICE)
        self._health.fault = fault
        self._connections.methods = {**self._worker.methods(), **self._health.methods()}

    def die(self) -> None:
        """End at once, as a process that dies."""
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self._connections.open):
            connection._abort()

    async def stop(self, grace_s: float) -> int:
        if self._fault == "keeps-open":
            self._worker.drain()
            await asyncio.sleep(4)
        return await super().stop(grace_s)

    def _remove_socket_files(self) -> None:
        if self._fault != "leaves-socket":
            super()._remove_socket_files()


class FaultyProcess(FaultyServing):
    """The server of a process of its own."""

    def die(self) -> None:
        os._exit(1)


def main() -> None:
    fault = sys.argv.pop(1)
    serving: Any = partial(FaultyProcess, fault)
    with changed(fault), mock.patch.object(server_module, "Serving", serving):
        server.main()


if __name__ == "__main__":
    main()

"""The gRPC service: its unary methods, Review and ListPolicies, and the registration of all methods.

The methods receive and return bytes, so that the most frequent answer is encoded only once.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError

from gateway.pb import worker_pb2 as pb
from workers.answer import ALLOWED, Outcome, error, status_code
from workers.evaluation import Evaluator, Running
from workers.review import Review
from workers.stream import ProtocolViolation, ReviewStream, unknown_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.policy import Policy
    from workers.stream import Rpc

SERVICE: Final = "admissiongateway.worker.v1.PolicyWorker"

MAX_UNARY_IN_FLIGHT: Final = 4096
"""Same limit as for a stream. gRPC's own limit would also count streams and health watches."""

_ALLOWED_BYTES: Final = ALLOWED.SerializeToString()


class PolicyWorker:
    """The methods of the service, with one Evaluator."""

    def __init__(self, policies: Mapping[str, Policy], evaluator: Evaluator) -> None:
        self._policies = policies
        self._evaluator = evaluator
        self._streams: set[ReviewStream] = set()
        self._draining = False
        self._unary = 0
        self.idle = asyncio.Event()
        """Set while neither a Review nor a ReviewStream is open."""
        self.idle.set()

    def __repr__(self) -> str:
        return f"<PolicyWorker unary={self._unary} streams={len(self._streams)} {self._evaluator!r}>"

    def drain(self) -> None:
        """Send the drain notice on all open and later streams."""
        self._draining = True
        for stream in self._streams:
            stream.drain()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the argument for ``grpc.aio.Server.add_generic_rpc_handlers``."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "ListPolicies": grpc.unary_unary_rpc_method_handler(self.list_policies),
                "Review": grpc.unary_unary_rpc_method_handler(self.review),
                "ReviewStream": grpc.stream_stream_rpc_method_handler(self.review_stream),
            },
        )

    async def list_policies(self, _: bytes, rpc: Rpc) -> bytes:
        """Answer ListPolicies in the order of registration."""
        served = [
            pb.Policy(
                name=policy.name,
                description=policy.description,
                mutating=policy.mutating,
                version=policy.version,
            )
            for policy in self._policies.values()
        ]
        return pb.ListPoliciesResponse(policies=served).SerializeToString()

    async def review(self, message: bytes, rpc: Rpc) -> bytes:
        """Answer Review; an Error becomes the status of the call."""
        self._unary += 1
        self.idle.clear()
        try:
            outcome = await self._outcome(message, rpc)
            if isinstance(outcome, pb.Error):
                await rpc.abort(status_code(outcome), outcome.message)
            return _ALLOWED_BYTES if outcome is ALLOWED else outcome.SerializeToString()
        finally:
            self._unary -= 1
            self._update_idle()

    async def _outcome(self, message: bytes, rpc: Rpc) -> Outcome:
        try:
            request = pb.ReviewRequest.FromString(message)
        except DecodeError as problem:
            return error(grpc.StatusCode.INVALID_ARGUMENT, f"not a ReviewRequest: {problem}")
        policy = self._policies.get(request.policy)
        if policy is None:
            return unknown_policy(request.policy, self._policies)
        if self._unary > MAX_UNARY_IN_FLIGHT:
            return error(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_UNARY_IN_FLIGHT} calls are in flight")
        remaining_s = rpc.time_remaining()
        review = Review(
            request.admission_request,
            request.namespace_object,
            deadline=math.inf if remaining_s is None else time.monotonic() + remaining_s,
            mutating=policy.mutating,
        )
        finished: asyncio.Future[Outcome] = self._evaluator.loop.create_future()

        def finish(outcome: Outcome) -> None:
            if not finished.done():  # the future is done if the call was cancelled
                finished.set_result(outcome)

        self._evaluator.mark()
        running = self._evaluator.begin(policy, review, finish)
        if not isinstance(running, Running):
            return running
        try:
            return await finished
        finally:
            running.cancel()

    async def review_stream(self, _: object, rpc: Rpc) -> None:
        """Answer ReviewStream."""
        stream = ReviewStream(rpc, self._policies, self._evaluator)
        self._streams.add(stream)
        self.idle.clear()
        if self._draining:
            stream.drain()
        try:
            await stream.serve()
        except ProtocolViolation as problem:
            await rpc.abort(grpc.StatusCode.INVALID_ARGUMENT, str(problem))
        finally:
            self._streams.discard(stream)
            self._update_idle()

    def _update_idle(self) -> None:
        if not self._unary and not self._streams:
            self.idle.set()

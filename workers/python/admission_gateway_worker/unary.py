"""The gRPC service: its unary methods, and the table of all methods.

The methods receive and return bytes, so that the most frequent answer is encoded only once.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from admission_gateway_worker.answer import ALLOWED, Outcome, error, with_parameters
from admission_gateway_worker.calls import unknown_policy
from admission_gateway_worker.evaluation import Evaluator, Running
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.load import MAX_PARAMETERS_BYTES, heaviest
from admission_gateway_worker.parameters import MAX_BYTES, too_long
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.review import Review
from admission_gateway_worker.single import Refused, SingleRequest, answering
from admission_gateway_worker.stream import ReviewStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission_gateway_worker.policy import Policy
    from admission_gateway_worker.rpc import Methods, Rpc

SERVICE: Final = "admissiongateway.worker.v1.PolicyWorker"

_ALLOWED_BYTES: Final = ALLOWED.SerializeToString()


class PolicyWorker:
    """The methods of the service, with one Evaluator."""

    def __init__(self, policies: Mapping[str, Policy], evaluator: Evaluator) -> None:
        self._policies = policies
        self._evaluator = evaluator
        self._streams: set[ReviewStream] = set()
        self._parameters_bytes = 0
        """The bytes of the parameters of all streams."""
        self._draining = False
        self._unary: dict[Rpc, Running] = {}
        """The Review calls that wait for their policy."""
        self.idle = asyncio.Event()
        """Set while no Review waits for its policy and no ReviewStream is open."""
        self.idle.set()

    def __repr__(self) -> str:
        return f"<PolicyWorker unary={len(self._unary)} streams={len(self._streams)} {self._evaluator!r}>"

    def drain(self) -> None:
        """Send the drain notice on all open and later streams."""
        self._draining = True
        for stream in tuple(self._streams):
            stream.drain()

    def methods(self) -> Methods:
        """Return the methods."""
        return {
            f"/{SERVICE}/ListPolicies": partial(answering, self._list_policies),
            f"/{SERVICE}/CheckParameters": partial(answering, self._check_parameters),
            f"/{SERVICE}/Review": lambda rpc: SingleRequest(rpc, self._review, self._cancel_review),
            f"/{SERVICE}/ReviewStream": self._review_stream,
        }

    def _list_policies(self, _: bytes) -> bytes:
        """Answer ListPolicies in the order of registration."""
        served = [
            pb.Policy(
                name=policy.name,
                description=policy.description,
                mutating=policy.mutating,
                version=policy.version,
                parameters_schema=policy.parameters_schema,
            )
            for policy in self._policies.values()
        ]
        return pb.ListPoliciesResponse(policies=served).SerializeToString()

    def _check_parameters(self, message: bytes) -> bytes:
        """Answer CheckParameters."""
        try:
            request = pb.CheckParametersRequest.FromString(message)
        except DecodeError as problem:
            raise Refused(StatusCode.INVALID_ARGUMENT, f"not a CheckParametersRequest: {problem}") from None
        policy = self._policies.get(request.policy)
        if policy is None:
            raise Refused(StatusCode.NOT_FOUND, unknown_policy(request.policy, self._policies).message)
        text = policy.prepared.problem(policy, request.parameters)
        text = error(StatusCode.INVALID_ARGUMENT, text).message
        return pb.CheckParametersResponse(problem=text).SerializeToString()

    def _review(self, rpc: Rpc, message: bytes) -> None:
        """Answer Review; an Error becomes the status of the call."""
        try:
            request = pb.ReviewRequest.FromString(message)
        except DecodeError as problem:
            raise Refused(StatusCode.INVALID_ARGUMENT, f"not a ReviewRequest: {problem}") from None
        policy = self._policies.get(request.policy)
        if policy is None:
            self._answer(rpc, unknown_policy(request.policy, self._policies))
            return
        review = Review(
            request.admission_request,
            request.namespace_object,
            deadline=rpc.deadline,
            mutating=policy.mutating,
            traceparent=rpc.traceparent,
        )
        parameters = request.parameters
        if len(parameters) > MAX_BYTES:
            raise Refused(StatusCode.INVALID_ARGUMENT, too_long(parameters))
        self._evaluator.mark()
        finish = partial(self._finish_review, rpc, bool(parameters))
        outcome = self._evaluator.begin(policy, review, finish, parameters, rpc.connection)
        if isinstance(outcome, Running):
            self._unary[rpc] = outcome
            self.idle.clear()
        else:
            self._answer(rpc, with_parameters(outcome) if parameters else outcome)

    def _finish_review(self, rpc: Rpc, has_parameters: bool, outcome: Outcome) -> None:
        if self._unary.pop(rpc, None) is not None:
            self._answer(rpc, with_parameters(outcome) if has_parameters else outcome)
            self._update_idle()

    def _cancel_review(self, rpc: Rpc) -> None:
        running = self._unary.pop(rpc, None)
        if running is not None:
            running.cancel()
            self._update_idle()

    def _answer(self, rpc: Rpc, outcome: Outcome) -> None:
        if isinstance(outcome, pb.Error):
            rpc.finish(StatusCode(outcome.code), outcome.message)
            return
        rpc.send(_ALLOWED_BYTES if outcome is ALLOWED else outcome.SerializeToString())
        rpc.finish()

    def _review_stream(self, rpc: Rpc) -> ReviewStream:
        """Answer ReviewStream."""
        stream = ReviewStream(rpc, self._policies, self._evaluator, self._stream_ended, self._hold_parameters)
        self._streams.add(stream)
        self.idle.clear()
        if self._draining:
            # Later, because the RPC sends nothing before it has its handler.
            self._evaluator.loop.call_soon(stream.drain)
        return stream

    def _hold_parameters(self, change: int) -> None:
        self._parameters_bytes += change
        if self._parameters_bytes > MAX_PARAMETERS_BYTES:
            # Later, because the stream works with them.
            self._evaluator.loop.call_soon(self._release_parameters)

    def _release_parameters(self) -> None:
        """End the streams that have the most bytes of parameters, if there are too many."""
        while self._parameters_bytes > MAX_PARAMETERS_BYTES:
            found = heaviest([stream.parameters for stream in self._streams])
            if found is None or not found.held_bytes:
                return
            found.release(self._parameters_bytes)

    def _stream_ended(self, stream: ReviewStream) -> None:
        self._streams.discard(stream)
        self._update_idle()

    def _update_idle(self) -> None:
        if not self._unary and not self._streams:
            self.idle.set()

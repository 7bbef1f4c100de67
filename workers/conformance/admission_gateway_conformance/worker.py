"""A connection to the worker under test, and the facts about that worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError

from admission_gateway_conformance.answers import Answer, describe, kind
from admission_gateway_conformance.requests import pod
from admission_gateway_conformance.rule import ANSWER_S, NotChecked, Violation
from admission_gateway_conformance.stream import Stream
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    import asyncio

    from admission_gateway_conformance.process import Process
    from admission_gateway_conformance.shutdown_probe import ShutdownRecord
    from admission_gateway_conformance.target import Target
    from admission_gateway_conformance.vectors import Vector

    Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    ServerStream = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]

SERVICE: Final = "admissiongateway.worker.v1.PolicyWorker"
REVIEW: Final = f"/{SERVICE}/Review"
STREAM: Final = f"/{SERVICE}/ReviewStream"
LIST: Final = f"/{SERVICE}/ListPolicies"
CHECK_PARAMETERS: Final = f"/{SERVICE}/CheckParameters"
CHAINS: Final = "chains"
"""The feature of ReviewStream that a worker may lack."""


@dataclass(slots=True)
class Facts:
    """Facts about the worker, found before the first rule is checked."""

    methods: set[str] = field(default_factory=set)
    """The served ones of ``Review``, ``ReviewStream``, ``ListPolicies``, ``CheckParameters``, ``Check``,
    ``Watch`` and ``CHAINS``."""
    samples: set[str] = field(default_factory=set)
    """The sample policies that the worker serves."""
    policy: str = ""
    """The policy for rules that accept any policy; empty if none is known."""
    baseline: str = ""
    """The kind of that policy's answer to an ordinary Pod."""
    patience: float = 1.0
    """How many times longer than on a quiet machine an answer may take."""
    vectors: tuple[Vector, ...] = ()
    """Vectors of the policies in ``samples``."""
    mutating: set[str] = field(default_factory=set)
    """Policies that have sent a patch so far."""
    process: Process | None = None
    """The process of the worker, if the kit may stop it."""
    ping_after_s: float = 0.0
    """Idle time before a keepalive ping. 0 if pings are not checked, which takes minutes."""
    shutdown: ShutdownRecord | None = None
    """The observations of the shutdown."""
    pinged: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """The checks of keepalive pings, which run concurrently."""


class Worker:
    """A separate connection for one rule; a context manager."""

    def __init__(self, target: Target, facts: Facts) -> None:
        self.target = target
        self.facts = facts
        self._channel = target.open_channel()

    async def __aenter__(self) -> Worker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def call(
        self,
        method: str,
        message: bytes,
        *,
        timeout_s: float | None = ANSWER_S,
        announced: str | None = None,
        traceparent: str | None = None,
    ) -> bytes | pb.Error:
        """Return the answer of the unary *method*, or its status as an Error.

        *announced* is a value of grpc-timeout that only the worker applies. *timeout_s* is then None, and
        the caller has to bound the time.
        """
        timeout_s = None if timeout_s is None else self.within(timeout_s)
        sent = {"grpc-timeout": announced, "traceparent": traceparent}
        metadata = [(name, value) for name, value in sent.items() if value is not None]
        try:
            call: Unary = self._channel.unary_unary(method)
            answer = await call(message, timeout=timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return pb.Error(code=error.code().value[0], message=error.details() or "")
        assert isinstance(answer, bytes)
        return answer

    async def review(
        self,
        policy: str,
        request: bytes,
        namespace: bytes = b"",
        parameters: bytes = b"",
        *,
        timeout_s: float | None = ANSWER_S,
        announced: str | None = None,
        traceparent: str | None = None,
    ) -> Answer:
        """Return the answer of one Review.

        Raises:
            Violation: the answer is not a ReviewResponse.
        """
        message = pb.ReviewRequest(
            policy=policy, admission_request=request, namespace_object=namespace, parameters=parameters
        )
        return await self.review_raw(
            message.SerializeToString(),
            policy,
            timeout_s=timeout_s,
            announced=announced,
            traceparent=traceparent,
        )

    async def review_raw(
        self,
        message: bytes,
        policy: str,
        *,
        timeout_s: float | None = ANSWER_S,
        announced: str | None = None,
        traceparent: str | None = None,
    ) -> Answer:
        """Return the answer to a Review with the request *message*, which may be malformed, for *policy*.

        Raises:
            Violation: the answer is not a ReviewResponse.
        """
        answer = await self.call(
            REVIEW, message, timeout_s=timeout_s, announced=announced, traceparent=traceparent
        )
        if isinstance(answer, pb.Error):
            return answer
        try:
            response = pb.ReviewResponse.FromString(answer)
        except DecodeError as error:
            raise Violation(
                f"Review of {policy}", f"{len(answer)} bytes: {error}", "a ReviewResponse"
            ) from None
        if response.patch:
            self.facts.mutating.add(policy)
        return response

    async def expect_baseline(self, after: str) -> None:
        """Call ``policy`` by Review.

        Raises:
            Violation: after the action *after* the kind of the answer has changed.
        """
        expect_baseline(
            self.facts, f"Review of {self.policy} after {after}", await self.review(self.policy, pod())
        )

    @property
    def policy(self) -> str:
        """The policy for rules that accept any policy."""
        return self.facts.policy

    def stream(self) -> Stream:
        """Open a ReviewStream, a context manager."""
        return Stream(self._channel.stream_stream(STREAM)(), self.facts.mutating, self.facts.patience)

    def within(self, timeout_s: float) -> float:
        """Return a timeout of so many seconds on a quiet machine."""
        return timeout_s * self.facts.patience

    def watch(self, method: str, message: bytes) -> grpc.aio.UnaryStreamCall[bytes, bytes]:
        """Start a call with a stream of answers."""
        call: ServerStream = self._channel.unary_stream(method)
        return call(message)

    def need(self, condition: bool, what: str) -> None:
        """Raise NotChecked with the requirement *what*, unless *condition*."""
        if not condition:
            raise NotChecked(what)


def expect_baseline(facts: Facts, action: str, answer: Answer) -> None:
    """Raise a Violation unless the kind of *answer* is the baseline."""
    if kind(answer) != facts.baseline:
        raise Violation(action, describe(answer), f"{facts.baseline}, as before")

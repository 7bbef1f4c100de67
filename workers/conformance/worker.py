"""A connection to the worker that is held against the contract, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError

from gateway.pb import worker_pb2 as pb
from workers.conformance.answers import Answer, in_words, kind
from workers.conformance.requests import pod
from workers.conformance.rule import ANSWER_S, Breach, NotChecked
from workers.conformance.stream import Stream

if TYPE_CHECKING:
    import asyncio

    from workers.conformance.process import Process
    from workers.conformance.shutdown_probe import ShutdownRecord
    from workers.conformance.target import Target
    from workers.conformance.vectors import Vector

    Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    ServerStream = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]

SERVICE: Final = "admissiongateway.worker.v1.PolicyWorker"
REVIEW: Final = f"/{SERVICE}/Review"
STREAM: Final = f"/{SERVICE}/ReviewStream"
LIST: Final = f"/{SERVICE}/ListPolicies"


@dataclass(slots=True)
class Facts:
    """What was found out about the worker before the first rule."""

    methods: set[str] = field(default_factory=set)
    """``Review``, ``ReviewStream``, ``ListPolicies``, ``Check`` and ``Watch``, as far as they are served."""
    samples: set[str] = field(default_factory=set)
    """The sample policies that it serves."""
    policy: str = ""
    """The policy for rules that hold for any; empty if none is known."""
    usual: str = ""
    """The kind of its answer to an ordinary Pod."""
    vectors: tuple[Vector, ...] = ()
    """Those of the policies in ``samples``."""
    mutating: set[str] = field(default_factory=set)
    """Policies that have sent a patch so far."""
    process: Process | None = None
    """The worker's, if it may be stopped."""
    ping_after_s: float = 0.0
    """Of silence; 0 where pings are not to be checked, which takes minutes."""
    shutdown: ShutdownRecord | None = None
    """What was seen when it was stopped."""
    pinged: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """The rules about pings, which are checked side by side."""


class Worker:
    """A connection of its own for one rule; to be used as a context manager."""

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
        within_s: float | None = ANSWER_S,
        announced: str | None = None,
    ) -> bytes | pb.Error:
        """Return what the unary *method* answers, or its status as an Error.

        *announced* is a deadline for the worker alone, as grpc-timeout writes it; *within_s* is then None,
        and whoever calls has to bound the time.
        """
        metadata = None if announced is None else (("grpc-timeout", announced),)
        try:
            call: Unary = self._channel.unary_unary(method)
            answer = await call(message, timeout=within_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return pb.Error(code=error.code().value[0], message=error.details() or "")
        assert isinstance(answer, bytes)
        return answer

    async def review(
        self,
        policy: str,
        request: bytes,
        namespace: bytes = b"",
        *,
        within_s: float | None = ANSWER_S,
        announced: str | None = None,
    ) -> Answer:
        """Return the answer of one Review.

        Raises:
            Breach: it is no ReviewResponse.
        """
        asked = pb.ReviewRequest(policy=policy, admission_request=request, namespace_object=namespace)
        return await self.review_raw(
            asked.SerializeToString(), policy, within_s=within_s, announced=announced
        )

    async def review_raw(
        self,
        message: bytes,
        policy: str,
        *,
        within_s: float | None = ANSWER_S,
        announced: str | None = None,
    ) -> Answer:
        """Return the answer of one Review whose *message* need not be one; *policy* is whom it asks.

        Raises:
            Breach: it is no ReviewResponse.
        """
        answer = await self.call(REVIEW, message, within_s=within_s, announced=announced)
        if isinstance(answer, pb.Error):
            return answer
        try:
            response = pb.ReviewResponse.FromString(answer)
        except DecodeError as error:
            raise Breach(f"Review of {policy}", f"{len(answer)} bytes: {error}", "a ReviewResponse") from None
        if response.patch:
            self.facts.mutating.add(policy)
        return response

    async def expect_usual(self, after: str) -> None:
        """Ask the policy for any rule by Review.

        Raises:
            Breach: it does not answer as it did before *after*.
        """
        expect_usual(
            self.facts, f"Review of {self.policy} after {after}", await self.review(self.policy, pod())
        )

    @property
    def policy(self) -> str:
        """The policy for rules that hold for any."""
        return self.facts.policy

    def stream(self) -> Stream:
        """Open a ReviewStream, to be used as a context manager."""
        return Stream(self._channel.stream_stream(STREAM)(), self.facts.mutating)

    def watch(self, method: str, message: bytes) -> grpc.aio.UnaryStreamCall[bytes, bytes]:
        """Begin a call whose answers come one by one."""
        call: ServerStream = self._channel.unary_stream(method)
        return call(message)

    def need(self, condition: bool, what: str) -> None:
        """Raise NotChecked with *what* is needed, unless *condition*."""
        if not condition:
            raise NotChecked(what)


def expect_usual(facts: Facts, asked: str, answer: Answer) -> None:
    """Raise a Breach unless *answer* is of the kind that the policy for any rule usually gives to a Pod."""
    if kind(answer) != facts.usual:
        raise Breach(asked, in_words(answer), f"{facts.usual}, as before")

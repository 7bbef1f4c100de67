"""Rules of ``Review``, the method that every worker serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import Answer, describe, difference, expect_kind, expect_same
from admission_gateway_conformance.requests import (
    INVALID_JSON,
    NON_OBJECTS,
    TRACEPARENTS,
    numbered_image,
    numbered_pod,
    pod,
)
from admission_gateway_conformance.rule import ANSWER_S, Group, Violation, expect
from admission_gateway_conformance.worker import REVIEW, expect_baseline
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission_gateway_conformance.vectors import Vector
    from admission_gateway_conformance.worker import Worker

UNKNOWN: Final = "conformance.example/not-served"
GARBAGE: Final = b"\xff\xff\xff"
UNKNOWN_FIELD: Final = b"\xc2\x3e\x05hello"
"""Field 1000 with five bytes, such as a later gateway may add."""

MAX_DETAILS_BYTES: Final = 2000
_MAX_SHOWN: Final = 3
_AT_ONCE: Final = 100
_DEADLINE_MS: Final = 300
_LATE_S: Final = 2.0
"""Allowed delay of an answer after its deadline, on a busy machine."""

STATUSES: Final = "Status codes"

REVIEWS: Final = Group("Review", "Review", "The answer")


@REVIEWS.rule(
    "answers the vectors of the sample policies, with patches that lead to the same objects",
    needs_policy=False,
    timeout_s=30,
)
async def review_vectors(worker: Worker) -> str:
    """Status, texts, causes, warnings, annotations, and the object that the patch leads to."""
    vectors = needed(worker)
    expect_vectors(vectors, [await _ask(worker, vector) for vector in vectors])
    return f"{len(vectors)} vectors"


@REVIEWS.rule(
    "answers equal requests equally",
    section="The request",
    needs_policy=False,
    timeout_s=30,
)
async def review_again(worker: Worker) -> None:
    """The order of map entries is ignored."""
    for vector in needed(worker):
        first, second = await _ask(worker, vector), await _ask(worker, vector)
        expect_same(f"{vector.name}, twice", second, first, vector.request)


@REVIEWS.rule("answers NOT_FOUND for an unknown policy", section=STATUSES, needs_policy=False)
async def review_unknown_policy(worker: Worker) -> None:
    """Never allowed: requests would bypass the policy."""
    expect_kind(f"Review of {UNKNOWN}", await worker.review(UNKNOWN, pod()), "NOT_FOUND")


@REVIEWS.rule("lists its policies in the details of NOT_FOUND", section=STATUSES)
async def review_names_what_is_served(worker: Worker) -> None:
    """The user sees these details."""
    answer = await worker.review(UNKNOWN, pod())
    holds = isinstance(answer, pb.Error) and worker.policy in answer.message
    expect(holds, f"Review of {UNKNOWN}", describe(answer), f"details that name {worker.policy}")


@REVIEWS.rule("rejects a malformed ReviewRequest and keeps serving", section=STATUSES)
async def review_malformed(worker: Worker) -> None:
    """With any status other than OK."""
    answer = await worker.call(REVIEW, GARBAGE)
    expect(isinstance(answer, pb.Error), "Review with bytes that are not protobuf", "an answer", "a refusal")
    await worker.expect_baseline("bytes that are not protobuf")


@REVIEWS.rule("ignores unknown fields", section="Methods")
async def review_unknown_fields(worker: Worker) -> None:
    """Later versions may add fields."""
    message = pb.ReviewRequest(policy=worker.policy, admission_request=pod()).SerializeToString()
    action = "Review with a field that is not in the contract"
    expect_baseline(worker.facts, action, await worker.review_raw(message + UNKNOWN_FIELD, worker.policy))


@REVIEWS.rule(
    "gives the same answer with and without a trace context, also an invalid one", section="The request"
)
async def review_traceparent(worker: Worker) -> None:
    """It continues the trace with a valid ``traceparent``, and ignores any other."""
    without = await worker.review(worker.policy, pod())
    for traceparent in TRACEPARENTS:
        answer = await worker.review(worker.policy, pod(), traceparent=traceparent)
        expect_same(f"Review with the metadata traceparent {traceparent[:80]!r}", answer, without, pod())


@REVIEWS.rule(
    "answers INVALID_ARGUMENT for an admission_request that is not a JSON object",
    section=STATUSES,
    samples=("deny-latest-tag",),
    needs_policy=False,
)
async def review_not_json(worker: Worker) -> None:
    """Including null, which many parsers accept as an empty object."""
    for request in (INVALID_JSON, b"", b"\xff", *NON_OBJECTS):
        action = f"Review of deny-latest-tag with the admission_request {request!r}"
        expect_kind(action, await worker.review("deny-latest-tag", request), "INVALID_ARGUMENT")


@REVIEWS.rule(
    "rejects an invalid namespace_object only for policies that read it",
    section=STATUSES,
    samples=("deny-latest-tag", "team-from-namespace"),
    needs_policy=False,
)
async def review_malformed_namespace(worker: Worker) -> None:
    """Unrelated policies share a payload."""
    for namespace in (INVALID_JSON, *NON_OBJECTS):
        reads = await worker.review("team-from-namespace", pod(), namespace)
        expect_kind(f"Review of team-from-namespace in {namespace!r}", reads, "INVALID_ARGUMENT")
        other = await worker.review("deny-latest-tag", pod(), namespace)
        expect_kind(f"Review of deny-latest-tag in {namespace!r}", other, "allowed")


@REVIEWS.rule(
    "limits the details of a failure to the size of gRPC trailers",
    section=STATUSES,
    samples=("fails",),
    needs_policy=False,
)
async def review_long_details(worker: Worker) -> None:
    """Details are percent-encoded in the trailers, which gRPC limits to 8 KiB."""
    answer = await worker.review("fails", pod(uid="é" * 10_000))
    action = "Review of fails with a uid of 20,000 bytes, which the details contain"
    expect_kind(action, answer, "INTERNAL")
    assert isinstance(answer, pb.Error)
    size = len(answer.message.encode())
    expect(size <= MAX_DETAILS_BYTES, action, f"details of {size} bytes", f"{MAX_DETAILS_BYTES} at most")
    expect("�" not in answer.message, action, describe(answer), "details cut between two characters")


@REVIEWS.rule(
    "answers concurrent calls with their own answers",
    section="Methods",
    samples=("deny-latest-tag",),
    needs_policy=False,
)
async def review_at_once(worker: Worker) -> str:
    """All calls share one connection."""
    reviews = [worker.review("deny-latest-tag", numbered_pod(number)) for number in range(_AT_ONCE)]
    for number, answer in enumerate(await asyncio.gather(*reviews)):
        expect_own(f"{_AT_ONCE} Reviews at once", number, answer)
    return f"{_AT_ONCE} calls"


@REVIEWS.rule(
    "answers other calls while a policy waits",
    section="Batching",
    samples=("sleeps", "deny-latest-tag"),
    needs_policy=False,
)
async def review_slow_neighbour(worker: Worker) -> None:
    """A waiting policy delays no other call."""
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(worker.review("sleeps", pod(), timeout_s=2 * ANSWER_S)) for _ in range(20)
        ]
        await asyncio.sleep(0.05)
        answer = await worker.review("deny-latest-tag", numbered_pod(1))
        expect_own("a Review beside 20 of sleeps", 1, answer)
        for task in waiting:
            task.cancel()


@REVIEWS.rule(
    "ends a call at its deadline",
    section="Deadlines",
    samples=("sleeps",),
    needs_policy=False,
)
async def review_deadline(worker: Worker) -> None:
    """The kit sends a deadline (grpc-timeout) that it does not apply itself."""
    action = f"Review of sleeps with grpc-timeout {_DEADLINE_MS}m, from a client that keeps waiting"
    loop = asyncio.get_running_loop()
    began = loop.time()
    late_s = worker.within(_LATE_S)
    try:
        async with asyncio.timeout(_DEADLINE_MS / 1000 + late_s):
            answer = await worker.review("sleeps", pod(), timeout_s=None, announced=f"{_DEADLINE_MS}m")
    except TimeoutError:
        found = f"no answer {late_s:g} s after the deadline"
        raise Violation(action, found, "DEADLINE_EXCEEDED at the deadline") from None
    # A server that resets the call instead of answering it shows as CANCELLED.
    expect_kind(action, answer, "DEADLINE_EXCEEDED", "CANCELLED")
    took_ms = (loop.time() - began) * 1000
    expect(
        took_ms > _DEADLINE_MS - 20,
        action,
        f"{describe(answer)} after {took_ms:.0f} ms",
        "not before the deadline",
    )


@REVIEWS.rule("keeps serving after calls are cancelled", section="Cancellation")
async def review_cancelled(worker: Worker) -> None:
    """The effect of the cancellation itself shows only at shutdown."""
    policy = "sleeps" if "sleeps" in worker.facts.samples else worker.policy
    calls = [asyncio.create_task(worker.review(policy, pod(), timeout_s=30)) for _ in range(_AT_ONCE)]
    await asyncio.sleep(0.1)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await worker.expect_baseline(f"{_AT_ONCE} cancelled calls")


def needed(worker: Worker) -> tuple[Vector, ...]:
    """Return the vectors of the sample policies that *worker* serves.

    Raises:
        NotChecked: the worker serves no sample policy.
    """
    worker.need(bool(worker.facts.vectors), "needs a worker that serves the sample policies")
    return worker.facts.vectors


def expect_vectors(vectors: Sequence[Vector], answers: Sequence[Answer]) -> None:
    """Raise a Violation that names the first vectors with another answer."""
    wrong = []
    for vector, answer in zip(vectors, answers, strict=True):
        differing = difference(answer, vector.answer, vector.request)
        if differing is not None:
            wrong.append((vector.name, *differing))
    if wrong:
        names, found, expected = ("; ".join(texts) for texts in zip(*wrong[:_MAX_SHOWN], strict=True))
        more = f", and {len(wrong) - _MAX_SHOWN} more" if len(wrong) > _MAX_SHOWN else ""
        raise Violation(f"{len(wrong)} of {len(vectors)} vectors: {names}{more}", found, expected)


def expect_own(action: str, number: int, answer: Answer) -> None:
    """Raise a Violation unless *answer* is deny-latest-tag's answer to ``numbered_pod(number)``."""
    image = numbered_image(number)
    expected = f'spec.containers[0].image: image "{image}" has the tag latest: name a version'
    holds = isinstance(answer, pb.ReviewResponse) and not answer.allowed and answer.status.message == expected
    expect(holds, f"{action}: number {number}", describe(answer), f"denied, {expected}")


async def _ask(worker: Worker, vector: Vector) -> Answer:
    return await worker.review(vector.policy, vector.request, vector.namespace, vector.parameters)

"""The rules of ``Review``, the one method that every worker serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gateway.pb import worker_pb2 as pb
from workers.conformance.answers import Answer, difference, expect_kind, expect_same, in_words
from workers.conformance.requests import NO_JSON, NO_OBJECTS, image_of, pod, unlike
from workers.conformance.rule import ANSWER_S, Breach, Group, expect
from workers.conformance.worker import REVIEW, expect_usual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.conformance.vectors import Vector
    from workers.conformance.worker import Worker

UNKNOWN: Final = "conformance.example/not-served"
GARBAGE: Final = b"\xff\xff\xff"
UNKNOWN_FIELD: Final = b"\xc2\x3e\x05hello"
"""Field 1000, five bytes: what a later gateway may add."""

MOST_DETAILS_BYTES: Final = 2000
_MOST_SHOWN: Final = 3
_AT_ONCE: Final = 100
_DEADLINE_MS: Final = 300
_LATE_S: Final = 2.0
"""What an answer at a deadline may come after it, on a machine that is busy."""

STATUSES: Final = "What the gateway does with a status"

REVIEWS: Final = Group("Review", "Review", "The answer")


@REVIEWS.rule("answers the vectors of the samples as they are written", asks_a_policy=False, within_s=30)
async def review_vectors(worker: Worker) -> str:
    """Status, texts, causes, warnings, annotations, and the patch to the byte."""
    vectors = needed(worker)
    expect_vectors(vectors, [await _ask(worker, vector) for vector in vectors])
    return f"{len(vectors)} vectors"


@REVIEWS.rule(
    "answers the same when it is asked the same again",
    section="The request",
    asks_a_policy=False,
    within_s=30,
)
async def review_again(worker: Worker) -> None:
    """By content: the entries of a map have no order."""
    for vector in needed(worker):
        first, second = await _ask(worker, vector), await _ask(worker, vector)
        expect_same(f"{vector.name}, twice", second, first)


@REVIEWS.rule("answers NOT_FOUND for a policy that it does not serve", section=STATUSES, asks_a_policy=False)
async def review_unknown_policy(worker: Worker) -> None:
    """Never an allow: it would let through what the policy was to look at."""
    expect_kind(f"Review of {UNKNOWN}", await worker.review(UNKNOWN, pod()), "NOT_FOUND")


@REVIEWS.rule("names what it serves to whom asks for another policy", section=STATUSES)
async def review_names_what_is_served(worker: Worker) -> None:
    """In the details, which the user gets to see."""
    answer = await worker.review(UNKNOWN, pod())
    holds = isinstance(answer, pb.Error) and worker.policy in answer.message
    expect(holds, f"Review of {UNKNOWN}", in_words(answer), f"details that name {worker.policy}")


@REVIEWS.rule("refuses what is no ReviewRequest, and lives on", section=STATUSES)
async def review_malformed(worker: Worker) -> None:
    """With any status but OK."""
    answer = await worker.call(REVIEW, GARBAGE)
    expect(isinstance(answer, pb.Error), "Review with bytes that are no protobuf", "an answer", "a refusal")
    await worker.expect_usual("bytes that are no protobuf")


@REVIEWS.rule("passes over fields that it does not know", section="Methods")
async def review_unknown_fields(worker: Worker) -> None:
    """Fields may be added."""
    message = pb.ReviewRequest(policy=worker.policy, admission_request=pod()).SerializeToString()
    asked = "Review with a field that is not in the contract"
    expect_usual(worker.facts, asked, await worker.review_raw(message + UNKNOWN_FIELD, worker.policy))


@REVIEWS.rule(
    "answers INVALID_ARGUMENT for an admission_request that is not JSON, or no object",
    section=STATUSES,
    samples=("deny-latest-tag",),
    asks_a_policy=False,
)
async def review_not_json(worker: Worker) -> None:
    """Null among them, which many parsers take for an object without members."""
    for request in (NO_JSON, b"", b"\xff", *NO_OBJECTS):
        asked = f"Review of deny-latest-tag with the admission_request {request!r}"
        expect_kind(asked, await worker.review("deny-latest-tag", request), "INVALID_ARGUMENT")


@REVIEWS.rule(
    "lets a namespace_object that is not JSON hurt only a policy that reads it",
    section=STATUSES,
    samples=("deny-latest-tag", "team-from-namespace"),
    asks_a_policy=False,
)
async def review_malformed_namespace(worker: Worker) -> None:
    """Payloads are shared by policies that have nothing to do with each other."""
    for namespace in (NO_JSON, *NO_OBJECTS):
        reads = await worker.review("team-from-namespace", pod(), namespace)
        expect_kind(f"Review of team-from-namespace in {namespace!r}", reads, "INVALID_ARGUMENT")
        other = await worker.review("deny-latest-tag", pod(), namespace)
        expect_kind(f"Review of deny-latest-tag in {namespace!r}", other, "allowed")


@REVIEWS.rule(
    "answers a failure of its own with details short enough to arrive",
    section=STATUSES,
    samples=("fails",),
    asks_a_policy=False,
)
async def review_long_details(worker: Worker) -> None:
    """They travel in the trailers, percent-encoded, and gRPC has 8 KiB for those."""
    answer = await worker.review("fails", pod(uid="é" * 10_000))
    asked = "Review of fails with a uid of 20,000 bytes, which it has in its text"
    expect_kind(asked, answer, "INTERNAL")
    assert isinstance(answer, pb.Error)
    size = len(answer.message.encode())
    expect(size <= MOST_DETAILS_BYTES, asked, f"details of {size} bytes", f"{MOST_DETAILS_BYTES} at most")
    expect("�" not in answer.message, asked, in_words(answer), "text that is cut between two characters")


@REVIEWS.rule(
    "answers each of many calls that come at once with its own answer",
    section="Methods",
    samples=("deny-latest-tag",),
    asks_a_policy=False,
)
async def review_at_once(worker: Worker) -> str:
    """On one connection."""
    asks = [worker.review("deny-latest-tag", unlike(number)) for number in range(_AT_ONCE)]
    for number, answer in enumerate(await asyncio.gather(*asks)):
        expect_own(f"{_AT_ONCE} Reviews at once", number, answer)
    return f"{_AT_ONCE} calls"


@REVIEWS.rule(
    "answers others while a policy takes its time",
    section="Batching",
    samples=("sleeps", "deny-latest-tag"),
    asks_a_policy=False,
)
async def review_slow_neighbour(worker: Worker) -> None:
    """A policy that waits holds up nobody."""
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(worker.review("sleeps", pod(), within_s=2 * ANSWER_S)) for _ in range(20)
        ]
        await asyncio.sleep(0.05)
        answer = await worker.review("deny-latest-tag", unlike(1))
        expect_own("a Review beside 20 of sleeps", 1, answer)
        for task in waiting:
            task.cancel()


@REVIEWS.rule(
    "ends a call at its deadline, though the caller goes on waiting",
    section="Deadlines",
    samples=("sleeps",),
    asks_a_policy=False,
)
async def review_deadline(worker: Worker) -> None:
    """Seen by announcing a deadline (grpc-timeout) to which this side does not keep."""
    asked = f"Review of sleeps with grpc-timeout {_DEADLINE_MS}m, from a client that waits on"
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(_DEADLINE_MS / 1000 + _LATE_S):
            answer = await worker.review("sleeps", pod(), within_s=None, announced=f"{_DEADLINE_MS}m")
    except TimeoutError:
        found = f"nothing {_LATE_S:g} s after the deadline"
        raise Breach(asked, found, "DEADLINE_EXCEEDED at the deadline") from None
    # A server that resets the call instead of answering it shows as CANCELLED.
    expect_kind(asked, answer, "DEADLINE_EXCEEDED", "CANCELLED")
    took_ms = (loop.time() - began) * 1000
    expect(took_ms > _DEADLINE_MS - 20, asked, f"{in_words(answer)} after {took_ms:.0f} ms", "not before it")


@REVIEWS.rule("lives on when calls are cancelled", section="Cancellation")
async def review_cancelled(worker: Worker) -> None:
    """What it does with them nobody can see from here but at its end."""
    policy = "sleeps" if "sleeps" in worker.facts.samples else worker.policy
    calls = [asyncio.create_task(worker.review(policy, pod(), within_s=30)) for _ in range(_AT_ONCE)]
    await asyncio.sleep(0.1)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await worker.expect_usual(f"{_AT_ONCE} cancelled calls")


def needed(worker: Worker) -> tuple[Vector, ...]:
    """Return the vectors of the samples that *worker* serves.

    Raises:
        NotChecked: it serves none.
    """
    worker.need(bool(worker.facts.vectors), "needs a worker that serves the sample policies")
    return worker.facts.vectors


def expect_vectors(vectors: Sequence[Vector], answers: Sequence[Answer]) -> None:
    """Raise a Breach that names the first vectors that were not answered as they are written."""
    wrong = []
    for vector, answer in zip(vectors, answers, strict=True):
        differing = difference(answer, vector.answer)
        if differing is not None:
            wrong.append((vector.name, *differing))
    if wrong:
        names, found, expected = ("; ".join(texts) for texts in zip(*wrong[:_MOST_SHOWN], strict=True))
        more = f", and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
        raise Breach(f"{len(wrong)} of {len(vectors)} vectors: {names}{more}", found, expected)


def expect_own(asked: str, number: int, answer: Answer) -> None:
    """Raise a Breach unless *answer* is that of deny-latest-tag to ``unlike(number)``."""
    expected = f'image "{image_of(number)}" has the tag latest'
    holds = isinstance(answer, pb.ReviewResponse) and not answer.allowed and answer.status.message == expected
    expect(holds, f"{asked}: number {number}", in_words(answer), f"denied, {expected}")


async def _ask(worker: Worker, vector: Vector) -> Answer:
    return await worker.review(vector.policy, vector.request, vector.namespace)

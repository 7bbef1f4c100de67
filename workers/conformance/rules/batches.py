"""The rules of what a batch on the stream says, and how it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pb import worker_pb2 as pb
from workers.conformance.answers import expect_kind, expect_same
from workers.conformance.requests import NO_JSON, pod, unlike
from workers.conformance.rule import Group, expect
from workers.conformance.rules.unary import (
    STATUSES,
    UNKNOWN,
    UNKNOWN_FIELD,
    expect_own,
    expect_vectors,
    needed,
)
from workers.conformance.worker import expect_usual

if TYPE_CHECKING:
    from workers.conformance.vectors import Vector
    from workers.conformance.worker import Worker

LARGEST_ID: Final = 2**64 - 1
_MANY: Final = 1000
_MOST_MESSAGES: Final = _MANY // 4
"""For as many answers. A worker that writes each by itself sends four times as many, one that collects while
it writes some dozens."""

BATCHES: Final = Group("Batches", "ReviewStream", "Batching")


@BATCHES.rule("answers the vectors, all in one batch, as they are written", asks_a_policy=False, within_s=20)
async def batch_vectors(worker: Worker) -> str:
    """With payloads that are equal sent once."""
    vectors = needed(worker)
    async with worker.stream() as stream:
        payloads = list(dict.fromkeys((vector.request, vector.namespace) for vector in vectors))
        calls = [(i, v.policy, payloads.index((v.request, v.namespace))) for i, v in enumerate(vectors)]
        await stream.send(calls, payloads, asked="all vectors in one batch")
        answers = await stream.verdicts(range(len(vectors)), 10)
        expect_vectors(vectors, [answers[i] for i in range(len(vectors))])
    return f"{len(payloads)} payloads, {len(vectors)} calls"


@BATCHES.rule("answers on the stream as by Review", section="Methods", asks_a_policy=False, within_s=30)
async def batch_like_review(worker: Worker) -> None:
    """Errors included: their codes and texts are those of the status."""
    asked: list[tuple[str, bytes, bytes]] = [
        (vector.policy, vector.request, vector.namespace) for vector in needed(worker)
    ]
    asked += [(policy, NO_JSON, NO_JSON) for policy in sorted(worker.facts.samples - {"sleeps"})]
    asked.append((UNKNOWN, pod(), b""))
    async with worker.stream() as stream:
        calls = [(i, policy, i) for i, (policy, _, _) in enumerate(asked)]
        await stream.send(calls, [(request, namespace) for _, request, namespace in asked])
        answers = await stream.verdicts(range(len(asked)), 10)
    for number, (policy, request, namespace) in enumerate(asked):
        review = await worker.review(policy, request, namespace)
        expect_same(f"{policy} with {request[:60]!r}... on the stream", answers[number], review)


@BATCHES.rule(
    "shows no policy what another did to a payload that they share",
    samples=("always-pull-images", "inject-sidecar", "default-resources"),
    asks_a_policy=False,
)
async def batch_shared_payload(worker: Worker) -> None:
    """Each call has its own copy."""
    shared, own = _shared(worker)
    async with worker.stream() as stream:
        payload = (shared.request, shared.namespace)
        calls = [(i, vector.policy) for i, vector in enumerate(3 * own)]
        await stream.send(calls, [payload], asked=f"{len(calls)} calls on one payload, {shared.name}")
        answers = await stream.verdicts(range(len(calls)))
        expect_vectors(3 * own, [answers[i] for i in range(len(calls))])


@BATCHES.rule(f"answers each of {_MANY} calls in a batch once, by its id")
async def batch_many(worker: Worker) -> None:
    """Ids come in no order that means anything."""
    async with worker.stream() as stream:
        ids = [(i * 7919 + 3) % 2**40 for i in range(_MANY)]
        await stream.send([(i, worker.policy) for i in ids], [pod()])
        for answer in (await stream.verdicts(ids)).values():
            expect_usual(worker.facts, stream.asked, answer)


@BATCHES.rule(
    f"answers {_MANY} calls on different payloads each with its own answer",
    samples=("deny-latest-tag",),
    asks_a_policy=False,
)
async def batch_own_answers(worker: Worker) -> None:
    """The positions of the payloads are those in this batch, not in the one before."""
    async with worker.stream() as stream:
        for first in (0, _MANY):
            payloads = [unlike(number) for number in range(first, first + _MANY)]
            calls = [(first + i, "deny-latest-tag", i) for i in range(_MANY)]
            await stream.send(calls, payloads)
            answers = await stream.verdicts(range(first, first + _MANY))
            for number in range(first, first + _MANY):
                expect_own(stream.asked, number, answers[number])


@BATCHES.rule(
    f"sends the answers to {_MANY} calls of a batch in {_MOST_MESSAGES} messages at the most",
    samples=("deny-latest-tag",),
    asks_a_policy=False,
)
async def batch_replies(worker: Worker) -> str:
    """What became ready while a message was being written goes out together in the next."""
    async with worker.stream() as stream:
        await stream.send([(i, "deny-latest-tag") for i in range(_MANY)], [unlike(1)])
        await stream.verdicts(range(_MANY))
        count = len([message for message in stream.messages if message.ids])
        expect(count <= _MOST_MESSAGES, stream.asked, f"{count} messages", f"{_MOST_MESSAGES} at the most")
    return f"{count} message{'s' if count > 1 else ''}"


@BATCHES.rule("takes any id of 64 bits, 0 and 2^64-1 among them")
async def batch_ids(worker: Worker) -> None:
    """Not every language has such numbers."""
    ids = (0, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, LARGEST_ID)
    async with worker.stream() as stream:
        asked = f"calls with the ids {', '.join(map(str, ids))}"
        await stream.send([(i, worker.policy) for i in ids], [pod()], asked=asked)
        await stream.verdicts(ids)


@BATCHES.rule("passes over fields that it does not know", section="Methods")
async def batch_unknown_fields(worker: Worker) -> None:
    """In the batch, its payloads and its calls."""
    call = pb.Call(id=1, policy=worker.policy, timeout_millis=20_000).SerializeToString() + UNKNOWN_FIELD
    payload = pb.Payload(admission_request=pod()).SerializeToString() + UNKNOWN_FIELD
    async with worker.stream() as stream:
        stream.expect_id(1, worker.policy)
        await stream.write(_field(1, payload) + _field(2, call) + UNKNOWN_FIELD)
        asked = "a batch with fields that are not in the contract"
        expect_usual(worker.facts, asked, await stream.verdict(1))


@BATCHES.rule(
    "gives a call for a payload that is not in the batch INVALID_ARGUMENT, and goes on", section=STATUSES
)
async def batch_payload_out_of_range(worker: Worker) -> None:
    """The other calls are answered."""
    async with worker.stream() as stream:
        calls = [(i, worker.policy, position) for i, position in enumerate((0, 1, 2**32 - 1, 0), 1)]
        await stream.send(calls, [pod()], asked="calls for payloads 0, 1, 2^32-1 and 0 of one")
        answers = await stream.verdicts(range(1, 5))
        for number in (2, 3):
            expect_kind(f"{stream.asked}: call {number}", answers[number], "INVALID_ARGUMENT")
        for number in (1, 4):
            expect_usual(worker.facts, f"{stream.asked}: call {number}", answers[number])


@BATCHES.rule("gives a call for a policy that it does not serve NOT_FOUND, and goes on", section=STATUSES)
async def batch_unknown_policy(worker: Worker) -> None:
    """The other calls are answered."""
    async with worker.stream() as stream:
        calls = [(1, worker.policy), (2, UNKNOWN), (3, worker.policy)]
        await stream.send(calls, [pod()], asked="three calls, the second for a policy that is not served")
        answers = await stream.verdicts((1, 2, 3))
        expect_kind(stream.asked, answers[2], "NOT_FOUND")
        for number in (1, 3):
            expect_usual(worker.facts, f"{stream.asked}: call {number}", answers[number])


@BATCHES.rule(
    "gives a call whose payload is not JSON INVALID_ARGUMENT, and goes on",
    section=STATUSES,
    samples=("deny-latest-tag",),
    asks_a_policy=False,
)
async def batch_not_json(worker: Worker) -> None:
    """The other calls are answered."""
    async with worker.stream() as stream:
        calls = [(1, "deny-latest-tag", 0), (2, "deny-latest-tag", 1)]
        await stream.send(calls, [NO_JSON, unlike(2)], asked="two calls, the first with what is no JSON")
        answers = await stream.verdicts((1, 2))
        expect_kind(stream.asked, answers[1], "INVALID_ARGUMENT")
        expect_own(stream.asked, 2, answers[2])


@BATCHES.rule("takes a batch of nothing for nothing")
async def batch_empty(worker: Worker) -> None:
    """And one with payloads alone."""
    async with worker.stream() as stream:
        await stream.send([], [])
        await stream.send([], [pod()])
        await stream.send([(1, worker.policy)], [pod()], asked="a call after batches of nothing")
        expect_usual(worker.facts, stream.asked, await stream.verdict(1))


def _shared(worker: Worker) -> tuple[Vector, list[Vector]]:
    """Return a vector whose payload many policies are asked about, and all vectors with that payload."""
    by_payload: dict[tuple[bytes, bytes], list[Vector]] = {}
    for vector in needed(worker):
        by_payload.setdefault((vector.request, vector.namespace), []).append(vector)
    own = max(by_payload.values(), key=lambda vectors: sum(bool(_patch(vector)) for vector in vectors))
    worker.need(
        sum(bool(_patch(vector)) for vector in own) > 1, "needs vectors in which policies share a payload"
    )
    return own[0], own


def _patch(vector: Vector) -> bytes:
    return b"" if isinstance(vector.answer, pb.Error) else vector.answer.patch


def _field(number: int, content: bytes) -> bytes:
    """Return *content* as an embedded message of protobuf."""
    length, size = bytearray(), len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, size]) + content

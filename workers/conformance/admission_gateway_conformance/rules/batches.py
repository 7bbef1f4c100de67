"""Rules of batches on the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import expect_kind, expect_same
from admission_gateway_conformance.requests import (
    INVALID_JSON,
    TRACEPARENTS,
    UNPRINTABLE_TRACEPARENTS,
    numbered_pod,
    pod,
)
from admission_gateway_conformance.rule import Group, expect
from admission_gateway_conformance.rules.unary import (
    STATUSES,
    UNKNOWN,
    UNKNOWN_FIELD,
    expect_own,
    expect_vectors,
    needed,
)
from admission_gateway_conformance.stream import CallSpec
from admission_gateway_conformance.worker import expect_baseline
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from admission_gateway_conformance.vectors import Vector
    from admission_gateway_conformance.worker import Worker

LARGEST_ID: Final = 2**64 - 1
_MANY: Final = 1000
_MAX_MESSAGES: Final = _MANY // 4
"""A worker that writes each verdict separately sends four times as many messages; a worker that collects
verdicts while it writes sends some dozens."""

BATCHES: Final = Group("Batches", "ReviewStream", "Batching")


@BATCHES.rule(
    "answers all vectors in one batch, with patches that lead to the same objects",
    needs_policy=False,
    timeout_s=20,
)
async def batch_vectors(worker: Worker) -> str:
    """Equal payloads are sent once."""
    vectors = needed(worker)
    async with worker.stream() as stream:
        payloads = list(dict.fromkeys((vector.request, vector.namespace) for vector in vectors))
        parameters = list(dict.fromkeys(vector.parameters for vector in vectors if vector.parameters))
        calls = [
            CallSpec(
                *(i, v.policy, payloads.index((v.request, v.namespace))),
                parameters=parameters.index(v.parameters) + 1 if v.parameters else 0,
            )
            for i, v in enumerate(vectors)
        ]
        sent = enumerate(parameters, 1)
        await stream.send(calls, payloads, parameters=sent, action="all vectors in one batch")
        answers = await stream.verdicts(range(len(vectors)), 10)
        expect_vectors(vectors, [answers[i] for i in range(len(vectors))])
    return f"{len(payloads)} payloads, {len(vectors)} calls"


@BATCHES.rule(
    "gives the same answers on the stream as by Review", section="Methods", needs_policy=False, timeout_s=30
)
async def batch_like_review(worker: Worker) -> None:
    """Including errors: code and message are those of the status."""
    reviews: list[tuple[str, bytes, bytes]] = [
        (vector.policy, vector.request, vector.namespace)
        for vector in needed(worker)
        if not vector.parameters
    ]
    reviews += [(policy, INVALID_JSON, INVALID_JSON) for policy in sorted(worker.facts.samples - {"sleeps"})]
    reviews.append((UNKNOWN, pod(), b""))
    async with worker.stream() as stream:
        calls = [(i, policy, i) for i, (policy, _, _) in enumerate(reviews)]
        await stream.send(calls, [(request, namespace) for _, request, namespace in reviews])
        answers = await stream.verdicts(range(len(reviews)), 10)
    for number, (policy, request, namespace) in enumerate(reviews):
        review = await worker.review(policy, request, namespace)
        expect_same(f"{policy} with {request[:60]!r}... on the stream", answers[number], review, request)


@BATCHES.rule(
    "isolates the changes of policies that share a payload",
    samples=("always-pull-images", "inject-sidecar", "default-resources"),
    needs_policy=False,
)
async def batch_shared_payload(worker: Worker) -> None:
    """Each call gets a separate copy."""
    shared, own = _shared(worker)
    async with worker.stream() as stream:
        payload = (shared.request, shared.namespace)
        calls = [(i, vector.policy) for i, vector in enumerate(3 * own)]
        await stream.send(calls, [payload], action=f"{len(calls)} calls on one payload, {shared.name}")
        answers = await stream.verdicts(range(len(calls)))
        expect_vectors(3 * own, [answers[i] for i in range(len(calls))])


@BATCHES.rule(f"answers each of {_MANY} calls of a batch once, by its id")
async def batch_many(worker: Worker) -> None:
    """The order of ids has no meaning."""
    async with worker.stream() as stream:
        ids = [(i * 7919 + 3) % 2**40 for i in range(_MANY)]
        await stream.send([(i, worker.policy) for i in ids], [pod()])
        for answer in (await stream.verdicts(ids)).values():
            expect_baseline(worker.facts, stream.action, answer)


@BATCHES.rule(
    f"answers {_MANY} calls with different payloads with their own answers",
    samples=("deny-latest-tag",),
    needs_policy=False,
)
async def batch_own_answers(worker: Worker) -> None:
    """A payload index refers to the same batch, not to an earlier batch."""
    async with worker.stream() as stream:
        for first in (0, _MANY):
            payloads = [numbered_pod(number) for number in range(first, first + _MANY)]
            calls = [(first + i, "deny-latest-tag", i) for i in range(_MANY)]
            await stream.send(calls, payloads)
            answers = await stream.verdicts(range(first, first + _MANY))
            for number in range(first, first + _MANY):
                expect_own(stream.action, number, answers[number])


@BATCHES.rule(
    f"sends the verdicts of {_MANY} calls in at most {_MAX_MESSAGES} messages",
    samples=("deny-latest-tag",),
    needs_policy=False,
)
async def batch_replies(worker: Worker) -> str:
    """Verdicts that become ready while a message is written are sent together in the next message."""
    async with worker.stream() as stream:
        await stream.send([(i, "deny-latest-tag") for i in range(_MANY)], [numbered_pod(1)])
        await stream.verdicts(range(_MANY))
        count = len([message for message in stream.messages if message.ids])
        expect(count <= _MAX_MESSAGES, stream.action, f"{count} messages", f"at most {_MAX_MESSAGES}")
    return f"{count} message{'s' if count > 1 else ''}"


@BATCHES.rule(
    "gives the same answer with and without a trace context, also an invalid one", section="The request"
)
async def batch_traceparent(worker: Worker) -> None:
    """Calls of one batch have different contexts."""
    async with worker.stream() as stream:
        values = ("", *TRACEPARENTS, *UNPRINTABLE_TRACEPARENTS)
        calls = [CallSpec(i, worker.policy, traceparent=value) for i, value in enumerate(values)]
        await stream.send(calls, [pod()], action="a batch of calls with different trace contexts")
        answers = await stream.verdicts(range(len(values)))
        for number, value in enumerate(values):
            expect_same(f"a call with the traceparent {value[:80]!r}", answers[number], answers[0], pod())


@BATCHES.rule("accepts every 64-bit id, including 0 and 2^64-1")
async def batch_ids(worker: Worker) -> None:
    """Some languages have no unsigned 64-bit integers."""
    ids = (0, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, LARGEST_ID)
    async with worker.stream() as stream:
        action = f"calls with the ids {', '.join(map(str, ids))}"
        await stream.send([(i, worker.policy) for i in ids], [pod()], action=action)
        await stream.verdicts(ids)


@BATCHES.rule("ignores unknown fields", section="Methods")
async def batch_unknown_fields(worker: Worker) -> None:
    """In the batch, in payloads and in calls."""
    call = pb.Call(id=1, policy=worker.policy, timeout_millis=20_000).SerializeToString() + UNKNOWN_FIELD
    payload = pb.Payload(admission_request=pod()).SerializeToString() + UNKNOWN_FIELD
    async with worker.stream() as stream:
        stream.expect_id(1, worker.policy)
        await stream.write(_field(1, payload) + _field(2, call) + UNKNOWN_FIELD)
        action = "a batch with fields that are not in the contract"
        expect_baseline(worker.facts, action, await stream.verdict(1))


@BATCHES.rule(
    "answers INVALID_ARGUMENT for a payload index out of range, and continues the stream", section=STATUSES
)
async def batch_payload_out_of_range(worker: Worker) -> None:
    """All other calls are answered."""
    async with worker.stream() as stream:
        calls = [(i, worker.policy, position) for i, position in enumerate((0, 1, 2**32 - 1, 0), 1)]
        await stream.send(calls, [pod()], action="calls for payloads 0, 1, 2^32-1 and 0 of one")
        answers = await stream.verdicts(range(1, 5))
        for number in (2, 3):
            expect_kind(f"{stream.action}: call {number}", answers[number], "INVALID_ARGUMENT")
        for number in (1, 4):
            expect_baseline(worker.facts, f"{stream.action}: call {number}", answers[number])


@BATCHES.rule("answers NOT_FOUND for an unknown policy, and continues the stream", section=STATUSES)
async def batch_unknown_policy(worker: Worker) -> None:
    """All other calls are answered."""
    async with worker.stream() as stream:
        calls = [(1, worker.policy), (2, UNKNOWN), (3, worker.policy)]
        await stream.send(calls, [pod()], action="three calls, the second for a policy that is not served")
        answers = await stream.verdicts((1, 2, 3))
        expect_kind(stream.action, answers[2], "NOT_FOUND")
        for number in (1, 3):
            expect_baseline(worker.facts, f"{stream.action}: call {number}", answers[number])


@BATCHES.rule(
    "answers INVALID_ARGUMENT for an invalid payload, and continues the stream",
    section=STATUSES,
    samples=("deny-latest-tag",),
    needs_policy=False,
)
async def batch_not_json(worker: Worker) -> None:
    """All other calls are answered."""
    async with worker.stream() as stream:
        calls = [(1, "deny-latest-tag", 0), (2, "deny-latest-tag", 1)]
        await stream.send(calls, [INVALID_JSON, numbered_pod(2)], action="two calls, the first invalid")
        answers = await stream.verdicts((1, 2))
        expect_kind(stream.action, answers[1], "INVALID_ARGUMENT")
        expect_own(stream.action, 2, answers[2])


@BATCHES.rule("ignores an empty batch")
async def batch_empty(worker: Worker) -> None:
    """Also a batch with payloads only."""
    async with worker.stream() as stream:
        await stream.send([], [])
        await stream.send([], [pod()])
        await stream.send([(1, worker.policy)], [pod()], action="a call after empty batches")
        expect_baseline(worker.facts, stream.action, await stream.verdict(1))


def _shared(worker: Worker) -> tuple[Vector, list[Vector]]:
    """Return the payload that most mutating vectors share, as a vector, and all vectors with that payload."""
    by_payload: dict[tuple[bytes, bytes], list[Vector]] = {}
    for vector in needed(worker):
        if vector.parameters:
            continue
        by_payload.setdefault((vector.request, vector.namespace), []).append(vector)
    own = max(by_payload.values(), key=lambda vectors: sum(bool(_patch(vector)) for vector in vectors))
    worker.need(
        sum(bool(_patch(vector)) for vector in own) > 1, "needs vectors in which policies share a payload"
    )
    return own[0], own


def _patch(vector: Vector) -> bytes:
    return b"" if isinstance(vector.answer, pb.Error) else vector.answer.patch


def _field(number: int, content: bytes) -> bytes:
    """Return *content* encoded as an embedded message with field number *number*."""
    length, size = bytearray(), len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, size]) + content

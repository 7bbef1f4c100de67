"""Rules of chains: calls that are evaluated on the object that an earlier call of their batch leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import orjson

from admission_gateway_conformance.answers import expect_kind, expect_same, object_after
from admission_gateway_conformance.requests import numbered_pod, pod
from admission_gateway_conformance.rule import ANSWER_S, Group, Violation, expect
from admission_gateway_conformance.rules.calls import cancelled_before, expect_silence
from admission_gateway_conformance.rules.unary import STATUSES, UNKNOWN, expect_own, needed
from admission_gateway_conformance.stream import CallSpec
from admission_gateway_conformance.worker import CHAINS as FEATURE
from admission_gateway_conformance.worker import expect_baseline
from admission_gateway_worker.json_patch.patch import PatchConflict, PatchSyntaxError
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission_gateway_conformance.answers import Answer
    from admission_gateway_conformance.stream import Stream
    from admission_gateway_conformance.worker import Worker

_TIMEOUT_MS: Final = 500
"""Timeout of the calls that are to expire."""
_EARLY_MS: Final = 20
"""Tolerance for clocks of millisecond resolution."""
_LONGEST: Final = 64
"""As many calls as the gateway sends in a group."""
_MAX_IN_FLIGHT: Final = 4096

_CHANGES: Final = ("inject-sidecar", "default-resources", "always-pull-images")
"""Sample policies that change an ordinary Pod, each of them in a container that another one adds too."""

CHAINS: Final = Group("Chains", FEATURE, "Chains")


@CHAINS.rule(
    "answers a chain of all sample policies like Reviews of the changed objects",
    needs_policy=False,
    timeout_s=60,
)
async def chain_like_review(worker: Worker) -> str:
    """For each payload of the vectors, and each policy twice."""
    payloads = dict.fromkeys((vector.request, vector.namespace) for vector in needed(worker))
    policies = 2 * sorted(worker.facts.samples - {"sleeps"})
    calls = [CallSpec(i, policy, after=i - 1) for i, policy in enumerate(policies, 1)]
    for request, namespace in payloads:
        await _expect_like_review(worker, calls, request, namespace)
    return f"{len(payloads)} chains of {len(calls)} calls"


@CHAINS.rule(
    "answers several calls after one, each on its own copy of the object",
    samples=_CHANGES,
    needs_policy=False,
)
async def chain_branches(worker: Worker) -> None:
    """Also beside calls on the payload itself."""
    first, second, third = _CHANGES
    calls = [
        CallSpec(1, first),
        CallSpec(2, second, after=1),
        CallSpec(3, third, after=1),
        CallSpec(4, third, after=2),
        CallSpec(5, second, after=3),
        CallSpec(6, second),
        CallSpec(7, first, after=6),
        CallSpec(8, third, after=1),
    ]
    await _expect_like_review(worker, calls, pod())


@CHAINS.rule(
    f"answers a chain of {_LONGEST} calls", samples=("deny-latest-tag", *_CHANGES), needs_policy=False
)
async def chain_longest(worker: Worker) -> None:
    """The ids do not have to increase, and other calls may lie between them."""
    policies = [*("deny-latest-tag",) * (_LONGEST - 2), "inject-sidecar", "default-resources"]
    ids = [2**64 - 1 - 3 * i for i in range(_LONGEST)]
    calls = []
    for number, after, policy in zip(ids, [0, *ids], policies, strict=False):
        calls += [CallSpec(number, policy, after=after), CallSpec(number - 1, "default-resources")]
    await _expect_like_review(worker, calls, pod())


@CHAINS.rule(
    "evaluates a call after a denial or a failure on the unchanged object",
    samples=("deny-latest-tag", "fails", "sleeps", "inject-sidecar"),
    needs_policy=False,
)
async def chain_after_failure(worker: Worker) -> None:
    """A failure of the policy, an unknown policy, and a timeout."""
    expected = await worker.review("inject-sidecar", numbered_pod(1))
    async with worker.stream() as stream:
        calls = [
            CallSpec(1, "deny-latest-tag"),
            CallSpec(2, "inject-sidecar", after=1),
            CallSpec(3, "fails"),
            CallSpec(4, "inject-sidecar", after=3),
            CallSpec(5, UNKNOWN),
            CallSpec(6, "inject-sidecar", after=5),
            CallSpec(7, "sleeps", timeout_ms=_TIMEOUT_MS),
            CallSpec(8, "inject-sidecar", after=7),
        ]
        action = "calls of inject-sidecar, each after a call that denies or fails"
        await stream.send(calls, [numbered_pod(1)], action=action)
        answers = await _verdicts(stream, range(1, 9))
        expect_own(action, 1, answers[1])
        kinds = {3: "INTERNAL", 5: "NOT_FOUND", 7: "DEADLINE_EXCEEDED"}
        for number, wanted in kinds.items():
            expect_kind(f"{action}: call {number}", answers[number], wanted)
        for number in (2, 4, 6, 8):
            expect_same(f"{action}: call {number}", answers[number], expected, numbered_pod(1))


@CHAINS.rule(
    "sends each verdict when it is ready, and begins no call before the call it follows has ended",
    samples=("inject-sidecar", "sleeps", "deny-latest-tag"),
    needs_policy=False,
)
async def chain_order(worker: Worker) -> None:
    """A waiting chain delays no other call."""
    async with worker.stream() as stream:
        calls = [
            CallSpec(1, "inject-sidecar"),
            CallSpec(2, "sleeps", after=1),
            CallSpec(3, "deny-latest-tag", after=2),
        ]
        action = "deny-latest-tag after sleeps after inject-sidecar"
        await stream.send(calls, [numbered_pod(1)], action=action)
        await _verdicts(stream, [1])
        await stream.send([(4, "deny-latest-tag")], [numbered_pod(4)], action="a call beside a waiting chain")
        expect_own(stream.action, 4, await stream.verdict(4))
        stream.action = action
        await expect_silence(stream, 2, 3)


@CHAINS.rule(
    "counts the timeout from the verdict of the call it follows",
    samples=("sleeps", "deny-latest-tag"),
    needs_policy=False,
)
async def chain_timeout(worker: Worker) -> str:
    """A call that waits has its whole timeout left."""
    loop = asyncio.get_running_loop()
    async with worker.stream() as stream:
        calls = [
            CallSpec(1, "sleeps", timeout_ms=_TIMEOUT_MS),
            CallSpec(2, "sleeps", timeout_ms=_TIMEOUT_MS, after=1),
            CallSpec(3, "deny-latest-tag", after=2),
        ]
        action = f"deny-latest-tag after sleeps after sleeps, both with timeout_millis {_TIMEOUT_MS}"
        began = loop.time()
        await stream.send(calls, [numbered_pod(1)], action=action)
        answers = await _verdicts(stream, (1, 2, 3))
        for number in (1, 2):
            expect_kind(f"{action}: call {number}", answers[number], "DEADLINE_EXCEEDED")
        expect_own(action, 1, answers[3])
        # From the begin: the kit may get verdict 1 late.
        took_ms = (stream.came_at[2] - began) * 1000
        found = f"verdict 2 is sent after {took_ms:.0f} ms"
        expect(took_ms > 2 * _TIMEOUT_MS - _EARLY_MS, action, found, "not before both timeouts")
    return f"after {took_ms:.0f} ms"


@CHAINS.rule(
    "sends no verdict for a call whose preceding call is cancelled",
    samples=("sleeps", "deny-latest-tag"),
    needs_policy=False,
)
async def chain_cancelled(worker: Worker) -> None:
    """A cancelled call cancels those after it, not the one before it."""
    timeout_ms = _TIMEOUT_MS
    while not await _expect_cancelled(worker, timeout_ms):
        timeout_ms *= 2


@CHAINS.rule("sends no verdict for a call whose preceding call is cancelled in the same batch")
async def chain_cancelled_at_once(worker: Worker) -> None:
    """The policies do not run."""
    async with worker.stream() as stream:
        calls = [
            CallSpec(1, worker.policy),
            CallSpec(2, worker.policy, after=1),
            CallSpec(3, worker.policy, after=2),
            CallSpec(4, worker.policy),
        ]
        action = "a chain whose first call is cancelled in the same batch"
        await stream.send(calls, [pod()], cancelled=[1], action=action)
        expect_baseline(worker.facts, action, (await _verdicts(stream, [4]))[4])
        await expect_silence(stream, 1, 2, 3)


@CHAINS.rule(
    "answers INVALID_ARGUMENT for a call after no earlier call of its batch and payload, "
    "and continues the stream",
    section=STATUSES,
)
async def chain_unknown(worker: Worker) -> None:
    """A later call, the call itself, a call on another payload, and a call of another batch."""
    async with worker.stream() as stream:
        await stream.send([(1, worker.policy)], [pod()])
        await stream.verdict(1)
        sleeps = "sleeps" in worker.facts.samples
        await stream.send([(2, "sleeps" if sleeps else worker.policy)], [pod()])
        calls = [
            CallSpec(11, worker.policy, after=1),
            CallSpec(12, worker.policy, after=2),
            CallSpec(13, worker.policy, after=13),
            CallSpec(14, worker.policy, after=15),
            CallSpec(15, worker.policy),
            CallSpec(16, worker.policy, 1, after=15),
            CallSpec(17, worker.policy, after=15),
            CallSpec(18, worker.policy, after=2**64 - 1),
        ]
        action = "calls after an unknown call, after a later call, and after a call on another payload"
        # Equal payloads, but not the same one.
        await stream.send(calls, [pod(), pod()], action=action)
        answers = await stream.verdicts(range(11, 19))
        for number in (11, 12, 13, 14, 16, 18):
            expect_kind(f"{action}: call {number}", answers[number], "INVALID_ARGUMENT")
        for number in (15, 17):
            expect_baseline(worker.facts, f"{action}: call {number}", answers[number])
        if sleeps:
            await stream.send([], [], cancelled=[2])


@CHAINS.rule("accepts an id again after the verdict of its call", section="Batching")
async def chain_id_again(worker: Worker) -> None:
    """`after` names a call of the same batch, also if earlier batches used the id."""
    async with worker.stream() as stream:
        for turn in range(3):
            calls = [CallSpec(1 + turn % 2, worker.policy), CallSpec(2 - turn % 2, worker.policy)]
            calls[1] = calls[1]._replace(after=calls[0].number)
            await stream.send(calls, [pod()], action=f"a chain with the ids 1 and 2, use {turn + 1}")
            for answer in (await _verdicts(stream, (1, 2))).values():
                expect_baseline(worker.facts, stream.action, answer)
            stream.forget(1, 2)


@CHAINS.rule(
    "ends only the stream with INVALID_ARGUMENT after a duplicate id of a call that waits",
    section="Batching",
    samples=("sleeps",),
)
async def chain_duplicate_id(worker: Worker) -> None:
    """A call that waits is in flight."""
    async with worker.stream() as stream:
        calls = [CallSpec(1, "sleeps"), CallSpec(2, worker.policy, after=1)]
        await stream.send(calls, [pod()])
        await stream.send([(2, worker.policy)], [pod()], action="a call with the id of a call that waits")
        expect_kind(stream.action, await stream.end(), "INVALID_ARGUMENT")
    await worker.expect_baseline("the end of a stream with a duplicate id")


@CHAINS.rule(
    f"rejects calls that wait, as others, above {_MAX_IN_FLIGHT} with RESOURCE_EXHAUSTED",
    section="Sizes and connections",
    samples=("sleeps", "deny-latest-tag"),
    needs_policy=False,
)
async def chain_too_many(worker: Worker) -> None:
    """And continues the stream."""
    count = _MAX_IN_FLIGHT + 10
    async with worker.stream() as stream:
        calls = [CallSpec(1, "sleeps"), *(CallSpec(2 + i, "deny-latest-tag", after=1) for i in range(count))]
        action = f"{count} calls of deny-latest-tag after sleeps"
        await stream.send(calls, [numbered_pod(1)], action=action)
        if not await stream.until(lambda: len(stream.answers) >= count - _MAX_IN_FLIGHT, ANSWER_S):
            expected = f"at least {count - _MAX_IN_FLIGHT} rejected"
            found = f"{len(stream.answers)} verdicts after {worker.within(ANSWER_S):g} s"
            raise Violation(action, found, expected)
        for number, answer in stream.answers.items():
            expect_kind(f"{action}: number {number}", answer, "RESOURCE_EXHAUSTED")
        await stream.send([], [], cancelled=[1])
        again = [(2 * count, "deny-latest-tag")]
        await stream.send(again, [numbered_pod(2)], action="a call after the cancellation of all others")
        expect_own(stream.action, 2, await stream.verdict(2 * count))


@CHAINS.rule(
    "answers all calls of a chain after a half-close, then ends the stream with OK",
    section="Batching",
    samples=("sleeps", "deny-latest-tag"),
    needs_policy=False,
)
async def chain_half_close(worker: Worker) -> None:
    """A call that waits is in flight."""
    async with worker.stream() as stream:
        calls = [
            CallSpec(1, "sleeps", timeout_ms=_TIMEOUT_MS),
            CallSpec(2, "deny-latest-tag", after=1),
            CallSpec(3, "sleeps", timeout_ms=_TIMEOUT_MS, after=2),
            CallSpec(4, "deny-latest-tag", after=3),
        ]
        action = "a chain, and a half-close"
        await stream.send(calls, [numbered_pod(1)], action=action)
        await stream.half_close()
        answers = await _verdicts(stream, (1, 2, 3, 4))
        for number in (2, 4):
            expect_own(f"{action}: call {number}", 1, answers[number])
        status = await stream.end()
        expect(status.code == 0, action, stream.describe_end(), "OK")


async def _expect_cancelled(worker: Worker, timeout_ms: int) -> bool:
    """Check chains with cancelled calls; return False if the machine was too slow for *timeout_ms*."""
    loop = asyncio.get_running_loop()
    async with worker.stream() as stream:
        calls = [
            CallSpec(1, "sleeps", timeout_ms=timeout_ms),
            CallSpec(2, "deny-latest-tag", after=1),
            CallSpec(3, "deny-latest-tag", after=2),
            CallSpec(4, "sleeps", timeout_ms=timeout_ms),
            CallSpec(5, "deny-latest-tag", after=4),
            CallSpec(6, "deny-latest-tag", after=5),
            CallSpec(7, "deny-latest-tag", after=4),
        ]
        ends_at = loop.time() + timeout_ms / 1000
        await stream.send(calls, [numbered_pod(1)])
        action = "a chain of which the first call is cancelled, and one of which a later call is"
        if not await cancelled_before(ends_at, stream, 1, 5, action=action):
            return False
        answers = await _verdicts(stream, (4, 7))
        expect_kind(f"{action}: call 4", answers[4], "DEADLINE_EXCEEDED")
        expect_own(f"{action}: call 7", 1, answers[7])
        await expect_silence(stream, 1, 2, 3, 5, 6)
        # Their ids are free again.
        calls = [CallSpec(1, "deny-latest-tag"), CallSpec(3, "deny-latest-tag", after=1)]
        await stream.send(calls, [numbered_pod(1)], action="calls with the ids of cancelled calls")
        await _verdicts(stream, (1, 3))
    return True


async def _expect_like_review(
    worker: Worker, calls: Sequence[CallSpec], request: bytes, namespace: bytes = b""
) -> None:
    """Raise a Violation unless each call is answered like a Review on the object that it is to get."""
    async with worker.stream() as stream:
        action = f"a chain of {len(calls)} calls with {request[:60]!r}..."
        await stream.send(calls, [(request, namespace)], action=action)
        answers = await _verdicts(stream, [call.number for call in calls])
    requests = {0: request}
    """By the id of the call that leaves the object."""
    reviews: dict[tuple[str, bytes], Answer] = {}
    for call in calls:
        present = requests[call.after]
        expected = reviews.get((call.policy, present))
        if expected is None:
            expected = await worker.review(call.policy, present, namespace)
            reviews[call.policy, present] = expected
        what = f"{action}: {call.policy}, call {call.number} after {call.after}"
        expect_same(what, answers[call.number], expected, present)
        requests[call.number] = _after(what, present, expected)


def _after(action: str, request: bytes, answer: Answer) -> bytes:
    """Return *request* with the object that a call with *answer* leaves."""
    if isinstance(answer, pb.Error) or not answer.allowed or not answer.patch:
        return request
    try:
        after = object_after(answer, request)
    except (PatchSyntaxError, PatchConflict) as error:
        raise Violation(action, f"a patch that does not apply: {error}", "a patch of the object") from None
    return orjson.dumps({**orjson.loads(request), "object": after})


async def _verdicts(stream: Stream, numbers: Iterable[int]) -> dict[int, Answer]:
    """Wait for the verdicts of calls of a chain, and return all received verdicts.

    Raises:
        Violation: a verdict is missing, or a call with `after` has one that is not marked as chained.
    """
    numbers = list(numbers)
    answers = await stream.verdicts(numbers)
    for number in numbers:
        holds = number in stream.chained or not stream.after[number]
        found = f"a verdict without chained for call {number} after {stream.after[number]}"
        expect(holds, stream.action, found, "chained: true, whatever the outcome")
    return answers

"""Rules of parameters, on the stream and by Review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.pb import worker_pb2 as pb
from gateway.conformance.answers import describe, expect_kind
from gateway.conformance.requests import numbered_pod, replicas
from gateway.conformance.rule import Group, expect
from gateway.conformance.rules.unary import STATUSES
from gateway.conformance.stream import CallSpec

if TYPE_CHECKING:
    from gateway.conformance.answers import Answer
    from gateway.conformance.worker import Worker

_SAMPLE: Final = "limit-replicas"
_DEFAULT_MAX: Final = 10
_COUNT: Final = 20
"""Replicas, more than every limit of these rules."""
_MAX_ID: Final = 256
_MAX_BYTES: Final = 64 * 1024

PARAMETERS: Final = Group("Parameters", "ReviewStream", "Parameters")


@PARAMETERS.rule(
    "evaluates a Review with its parameters", method="Review", samples=(_SAMPLE,), needs_policy=False
)
async def parameters_of_a_review(worker: Worker) -> None:
    """Without parameters the policy gets an empty object."""
    for limit in (5, None, 6):
        parameters = b"" if limit is None else _limit(limit)
        action = f"a Review of {_SAMPLE} with {parameters.decode() or 'no parameters'}"
        _expect_limit(action, await worker.review(_SAMPLE, replicas(_COUNT), parameters=parameters), limit)
        allowed = await worker.review(_SAMPLE, replicas(1), parameters=parameters)
        expect_kind(action, allowed, "allowed")
        _expect_applied(action, allowed, has_parameters=limit is not None)


@PARAMETERS.rule(
    "evaluates each call with the parameters of its id, which hold for the rest of the stream",
    samples=(_SAMPLE,),
    needs_policy=False,
)
async def parameters_by_id(worker: Worker) -> None:
    """A later value replaces that of its id; calls of earlier batches keep theirs."""
    async with worker.stream() as stream:
        sent = [(1, _limit(1)), (2, _limit(2)), (_MAX_ID, _limit(3))]
        calls = [CallSpec(1, _SAMPLE, parameters=1), CallSpec(2, _SAMPLE, parameters=_MAX_ID)]
        await stream.send(calls, [replicas(_COUNT)], parameters=sent, action="calls with parameters")
        later = [CallSpec(3, _SAMPLE, parameters=2), CallSpec(4, _SAMPLE)]
        await stream.send(later, [replicas(_COUNT)], action="a later batch, without parameters of its own")
        again = [CallSpec(5, _SAMPLE, parameters=1), CallSpec(6, _SAMPLE, parameters=2)]
        action = "a batch that replaces the parameters with the id 1"
        await stream.send(again, [replicas(_COUNT)], parameters=[(1, _limit(4))], action=action)
        answers = await stream.verdicts(range(1, 7))
        for number, limit in ((1, 1), (2, 3), (3, 2), (4, None), (5, 4), (6, 2)):
            _expect_limit(f"{stream.action}: call {number}", answers[number], limit)


@PARAMETERS.rule(
    "answers INVALID_ARGUMENT for an id without parameters, and continues the stream",
    section=STATUSES,
    samples=(_SAMPLE,),
    needs_policy=False,
)
async def parameters_unknown_id(worker: Worker) -> None:
    """A stream does not have the parameters of another one."""
    async with worker.stream() as other:
        first = [CallSpec(1, _SAMPLE, parameters=7)]
        await other.send(first, [replicas(_COUNT)], parameters=[(7, _limit(7))], action="another stream")
        _expect_limit(other.action, await other.verdict(1), 7)
        async with worker.stream() as stream:
            calls = [CallSpec(1, _SAMPLE, parameters=7), CallSpec(2, _SAMPLE)]
            await stream.send(calls, [replicas(_COUNT)], action="a call with an id of parameters not sent")
            answers = await stream.verdicts((1, 2))
            expect_kind(stream.action, answers[1], "INVALID_ARGUMENT")
            _expect_limit(stream.action, answers[2], None)


@PARAMETERS.rule(
    "answers INVALID_ARGUMENT for parameters that are not a JSON object, or that the policy cannot use",
    section=STATUSES,
    samples=(_SAMPLE,),
    needs_policy=False,
)
async def parameters_unusable(worker: Worker) -> None:
    """Other calls are answered."""
    for json in (b"{", b"[]", b"null", b'{"max":"many"}'):
        async with worker.stream() as stream:
            calls = [CallSpec(1, _SAMPLE, parameters=1), CallSpec(2, _SAMPLE, parameters=2)]
            sent = [(1, json), (2, _limit(2))]
            await stream.send(calls, [replicas(1)], parameters=sent, action=f"the parameters {json.decode()}")
            answers = await stream.verdicts((1, 2))
            expect_kind(stream.action, answers[1], "INVALID_ARGUMENT")
            expect_kind(stream.action, answers[2], "allowed")
        answer = await worker.review(_SAMPLE, replicas(1), parameters=json)
        expect_kind(f"a Review with the parameters {json.decode()}", answer, "INVALID_ARGUMENT")


@PARAMETERS.rule(
    "answers INVALID_ARGUMENT for parameters of a policy that takes none",
    section=STATUSES,
    samples=(_SAMPLE, "deny-latest-tag"),
    needs_policy=False,
)
async def parameters_not_taken(worker: Worker) -> None:
    """Else the policy would not do what its configuration says."""
    async with worker.stream() as stream:
        calls = [CallSpec(1, "deny-latest-tag", parameters=1)]
        action = "a call of deny-latest-tag with parameters"
        await stream.send(calls, [numbered_pod(1)], parameters=[(1, _limit(1))], action=action)
        expect_kind(action, await stream.verdict(1), "INVALID_ARGUMENT")
    answer = await worker.review("deny-latest-tag", numbered_pod(1), parameters=_limit(1))
    expect_kind("a Review of deny-latest-tag with parameters", answer, "INVALID_ARGUMENT")


@PARAMETERS.rule(
    f"ends only the stream with INVALID_ARGUMENT for an id above {_MAX_ID} or a value above 64 KiB",
    samples=(_SAMPLE,),
    needs_policy=False,
)
async def parameters_bounds(worker: Worker) -> None:
    """And for the id 0, which means none."""
    longest = _limit(8).ljust(_MAX_BYTES)
    async with worker.stream() as stream:
        calls = [CallSpec(1, _SAMPLE, parameters=1)]
        await stream.send(calls, [replicas(_COUNT)], parameters=[(1, longest)], action="parameters of 64 KiB")
        _expect_limit(stream.action, await stream.verdict(1), 8)
    for number, json in ((0, b"{}"), (_MAX_ID + 1, b"{}"), (1, longest + b" ")):
        async with worker.stream() as stream:
            action = f"parameters of {len(json)} bytes with the id {number}"
            await stream.send([], [], parameters=[(number, json)], action=action)
            expect_kind(action, await stream.end(), "INVALID_ARGUMENT")
    _expect_limit("a Review after that", await worker.review(_SAMPLE, replicas(_COUNT)), None)


def _limit(number: int) -> bytes:
    return b'{"max":%d}' % number


def _expect_limit(action: str, answer: Answer, limit: int | None) -> None:
    """Raise a Violation unless *answer* denies by *limit*; None: the default, without parameters."""
    expected = f"{_COUNT} replicas, at most {_DEFAULT_MAX if limit is None else limit} are allowed"
    holds = isinstance(answer, pb.ReviewResponse) and not answer.allowed and answer.status.message == expected
    expect(holds, action, describe(answer), f"denied, {expected}")
    _expect_applied(action, answer, has_parameters=limit is not None)


def _expect_applied(action: str, answer: Answer, *, has_parameters: bool) -> None:
    applied = isinstance(answer, pb.ReviewResponse) and answer.parameters_applied
    expect(
        applied == has_parameters,
        action,
        f"parameters_applied: {str(applied).lower()}",
        f"parameters_applied: {str(has_parameters).lower()}",
    )

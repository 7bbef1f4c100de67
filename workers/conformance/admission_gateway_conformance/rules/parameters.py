"""Rules of parameters, on the stream, by Review and by CheckParameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from admission_gateway_conformance.answers import describe, expect_kind, kind
from admission_gateway_conformance.requests import numbered_pod, replicas
from admission_gateway_conformance.rule import Group, Violation, expect
from admission_gateway_conformance.rules.unary import STATUSES, UNKNOWN
from admission_gateway_conformance.stream import CallSpec
from admission_gateway_conformance.worker import CHECK_PARAMETERS
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from admission_gateway_conformance.answers import Answer
    from admission_gateway_conformance.worker import Worker

_SAMPLE: Final = "limit-replicas"
_DEFAULT_MAX: Final = 10
_COUNT: Final = 20
"""Replicas, more than every limit of these rules."""
_MAX_ID: Final = 256
_MAX_BYTES: Final = 64 * 1024

_SHOWN_BYTES: Final = 80
_CHECK: Final = "CheckParameters"
_UNUSABLE: Final = (b"{", b"[]", b"null", b'{"max":"many"}')

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
    for json in _UNUSABLE:
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


@PARAMETERS.rule(
    "finds no problem in parameters that a policy can use",
    method=_CHECK,
    samples=(_SAMPLE, "deny-latest-tag"),
    needs_policy=False,
)
async def check_parameters_usable(worker: Worker) -> None:
    """Empty parameters are those of a call without any."""
    longest = _limit(1).ljust(_MAX_BYTES)
    for policy, json in ((_SAMPLE, _limit(5)), (_SAMPLE, longest), (_SAMPLE, b""), ("deny-latest-tag", b"")):
        action = _checking(policy, json)
        problem = await _problem(worker, policy, json)
        expect(not problem, action, problem, "no problem")


@PARAMETERS.rule(
    "tells the problem of parameters that the policy cannot use with the text of a call",
    method=_CHECK,
    samples=(_SAMPLE, "deny-latest-tag"),
    needs_policy=False,
)
async def check_parameters_unusable(worker: Worker) -> None:
    """A policy that takes no parameters cannot use any."""
    for policy, json in (*((_SAMPLE, json) for json in _UNUSABLE), ("deny-latest-tag", _limit(1))):
        problem = await _problem(worker, policy, json)
        answer = await worker.review(policy, replicas(1), parameters=json)
        text = answer.message if isinstance(answer, pb.Error) else describe(answer)
        expect(problem == text, _checking(policy, json), problem or "no problem", text)


@PARAMETERS.rule(
    "tells the problem of parameters above 64 KiB", method=_CHECK, samples=(_SAMPLE,), needs_policy=False
)
async def check_parameters_too_long(worker: Worker) -> None:
    """It is an answer as well, and no status."""
    json = _limit(1).ljust(_MAX_BYTES + 1)
    problem = await _problem(worker, _SAMPLE, json)
    expect(bool(problem), _checking(_SAMPLE, json), "no problem", "a problem")


@PARAMETERS.rule("answers NOT_FOUND for an unknown policy", method=_CHECK, needs_policy=False)
async def check_parameters_unknown_policy(worker: Worker) -> None:
    """Without parameters too."""
    for json in (b"", b"{}"):
        message = pb.CheckParametersRequest(policy=UNKNOWN, parameters=json).SerializeToString()
        answer = await worker.call(CHECK_PARAMETERS, message)
        found = kind(answer) if isinstance(answer, pb.Error) else f"an answer of {len(answer)} bytes"
        expect(found == "NOT_FOUND", _checking(UNKNOWN, json), found, "NOT_FOUND")


async def _problem(worker: Worker, policy: str, json: bytes) -> str:
    """Return the answer of CheckParameters.

    Raises:
        Violation: an error, or a malformed answer.
    """
    message = pb.CheckParametersRequest(policy=policy, parameters=json).SerializeToString()
    answer, action = await worker.call(CHECK_PARAMETERS, message), _checking(policy, json)
    if isinstance(answer, pb.Error):
        raise Violation(action, describe(answer), "a CheckParametersResponse")
    try:
        return pb.CheckParametersResponse.FromString(answer).problem
    except DecodeError as error:
        raise Violation(action, f"{len(answer)} bytes: {error}", "a CheckParametersResponse") from None


def _checking(policy: str, json: bytes) -> str:
    text = json.decode() if len(json) <= _SHOWN_BYTES else f"{len(json)} bytes"
    return f"CheckParameters of {policy} with {text or 'no parameters'}"


def _limit(number: int) -> bytes:
    return b'{"max":%d}' % number


def _expect_limit(action: str, answer: Answer, limit: int | None) -> None:
    """Raise a Violation unless *answer* denies by *limit*, or by the default if that is None."""
    most = _DEFAULT_MAX if limit is None else limit
    expected = f"spec.replicas: {_COUNT} is more than the maximum of {most}: lower it"
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

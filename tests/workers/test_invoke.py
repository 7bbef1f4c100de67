"""Results of policies that allow, deny or fail: laws 1 to 3 of ``admission_gateway_worker.answer``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from admission_gateway_worker import Cause, Denied, PolicyServer, Review
from admission_gateway_worker.answer import ALLOWED, MAX_ERROR_BYTES, MAX_RESPONSE_BYTES, error
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.invoke import never_suspends, run
from admission_gateway_worker.pb import worker_pb2 as pb

Code = Callable[[Any], grpc.StatusCode]


def outcome(function: Any, *, mutating: bool = False, request: bytes = b'{"object": {"a": 1}}') -> Any:
    server = PolicyServer()
    server.policy("p", mutating=mutating)(function)
    return run(server.policies["p"], Review(request, mutating=mutating))


def raises(problem: BaseException) -> Callable[[Review], None]:
    def function(review: Review) -> None:
        raise problem

    return function


def test_returning_none_allows() -> None:
    assert outcome(lambda review: None) is ALLOWED
    assert outcome(lambda review: review.object, mutating=False) is not ALLOWED


@pytest.mark.parametrize("result", [False, True, "denied", 0, {}])
def test_returning_anything_else_is_an_error_and_never_an_allow(result: object, code_of: Code) -> None:
    found = outcome(lambda review: result)
    assert code_of(found) is grpc.StatusCode.INTERNAL
    assert f"TypeError: the policy returned {type(result).__name__}" in found.message


def test_a_denial_has_all_its_fields() -> None:
    def function(review: Review) -> None:
        review.warn("w")
        review.annotate("k", "v")
        raise Denied(
            "no",
            code=422,
            reason="Invalid",
            field="spec",
            causes=[Cause("m", "f", "r")],
            retry_after_seconds=30,
            name="web",
            group="apps",
            kind="Deployment",
            uid="u-2",
        )

    assert outcome(function) == pb.ReviewResponse(
        status=pb.Status(
            code=422,
            reason="Invalid",
            message="no",
            causes=[
                pb.StatusCause(reason="FieldValueForbidden", message="no", field="spec"),
                pb.StatusCause(reason="r", message="m", field="f"),
            ],
            retry_after_seconds=30,
            name="web",
            group="apps",
            kind="Deployment",
            uid="u-2",
        ),
        warnings=["w"],
        audit_annotations={"k": "v"},
    )


@pytest.mark.parametrize("code", [0, 200, 399, 600, -1, 2**40, "403", None])
def test_a_denial_with_an_odd_code_stays_a_denial(code: Any) -> None:
    found = outcome(raises(Denied("no", code=code)))
    assert (found.allowed, found.status.code) == (False, 400)


@pytest.mark.parametrize("seconds", [-1, 2**31, 1.5, "30", None])
def test_an_invalid_retry_delay_is_ignored(seconds: Any) -> None:
    found = outcome(raises(Denied("no", retry_after_seconds=seconds)))
    assert (found.allowed, found.status.code, found.status.retry_after_seconds) == (False, 403, 0)


@pytest.mark.parametrize("text", ["\ud800", 7, None, b"x"])
def test_a_denial_with_an_odd_text_stays_a_denial(text: Any) -> None:
    odd = Denied(text, field=text, reason=text, name=text, group=text, kind=text, uid=text)
    found = outcome(raises(odd))
    assert isinstance(found, pb.ReviewResponse)
    assert not found.allowed


def test_a_denial_from_a_task_group_is_a_denial() -> None:
    group = BaseExceptionGroup(
        "g", [ValueError("x"), ExceptionGroup("h", [Denied("first"), Denied("second")])]
    )
    assert outcome(raises(group)).status.message == "first"


def test_a_denial_too_large_to_send_is_cut_and_stays_a_denial() -> None:
    found = outcome(raises(Denied("x" * MAX_RESPONSE_BYTES, retry_after_seconds=30)))
    assert not found.allowed
    assert (found.status.code, found.status.retry_after_seconds) == (403, 30)
    assert 0 < found.ByteSize() < 10_000


@pytest.mark.parametrize(
    "problem",
    [ValueError("it broke"), SystemExit(3), asyncio.CancelledError("x"), ExceptionGroup("g", [OSError()])],
)
def test_an_exception_is_internal_with_its_type_and_text(
    problem: BaseException, code_of: Code, caplog: pytest.LogCaptureFixture
) -> None:
    found = outcome(raises(problem))
    assert code_of(found) is grpc.StatusCode.INTERNAL
    assert found.message == f"{type(problem).__name__}: {problem}"
    assert "Traceback" not in found.message
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is problem
    assert record.getMessage().startswith('policy failed: policy="p" error="')


@pytest.mark.parametrize("problem", [RuntimeError("it broke"), Exception("it broke")])
def test_a_generic_exception_type_is_omitted(problem: Exception) -> None:
    assert outcome(raises(problem)).message == "it broke"


def test_an_exception_without_text_is_its_type(code_of: Code) -> None:
    assert outcome(raises(KeyError())).message == "KeyError"


def test_a_policy_that_keeps_failing_fills_no_logs(caplog: pytest.LogCaptureFixture) -> None:
    server = PolicyServer()
    server.policy("p")(raises(ValueError("x")))
    policy = server.policies["p"]
    for _ in range(50):
        run(policy, Review(b"{}"))
    assert len(caplog.records) == 1
    policy.no_failure_until = 0.0
    run(policy, Review(b"{}"))
    assert caplog.records[1].getMessage() == 'policy failed: policy="p" error="ValueError: x" dropped=49'


def test_a_malformed_request_is_the_callers_fault(code_of: Code, caplog: pytest.LogCaptureFixture) -> None:
    found = outcome(lambda review: review.operation and None, request=b"{nope")
    assert code_of(found) is grpc.StatusCode.INVALID_ARGUMENT
    assert found.message.startswith("admission_request is not JSON")
    assert not caplog.records


def test_a_policy_that_does_not_look_at_the_request_costs_no_parsing() -> None:
    assert outcome(lambda review: None, request=b"{nope", mutating=True) is ALLOWED


def test_a_changed_object_becomes_a_patch_for_mutating_policies_only() -> None:
    def function(review: Review) -> None:
        review.object["b"] = 2

    assert outcome(function, mutating=True).patch == b'[{"op":"add","path":"/b","value":2}]'
    assert outcome(function) is ALLOWED


def test_a_denial_carries_no_patch() -> None:
    def function(review: Review) -> None:
        review.object["b"] = 2
        raise Denied("no")

    assert outcome(function, mutating=True).patch == b""


def test_an_object_that_cannot_be_sent_is_internal(code_of: Code) -> None:
    def function(review: Review) -> None:
        review.object["b"] = {1, 2}

    found = outcome(function, mutating=True)
    assert code_of(found) is grpc.StatusCode.INTERNAL
    assert "cannot be written as JSON" in found.message


def test_a_patch_too_large_to_send_is_resource_exhausted(code_of: Code) -> None:
    def function(review: Review) -> None:
        review.object["b"] = "x" * MAX_RESPONSE_BYTES

    found = outcome(function, mutating=True)
    assert code_of(found) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_RESPONSE_BYTES) in found.message


@pytest.mark.parametrize("text", ["x" * 10_000, "é" * 10_000, "\U0001f600" * 10_000, "\ud800" * 3000])
def test_the_text_of_an_error_is_cut(text: str) -> None:
    found = error(StatusCode.INTERNAL, text)
    assert len(found.message.encode()) <= MAX_ERROR_BYTES
    assert found.code == StatusCode.INTERNAL


async def no_await(review: Review) -> None:
    if review.operation == "DELETE":
        raise Denied("no")


async def with_await(review: Review) -> None:
    await asyncio.sleep(0)


async def with_async_with(review: Review) -> None:
    async with asyncio.Lock():
        pass


async def with_async_for(review: Review) -> None:
    async for _ in asyncio.StreamReader():
        pass


def test_only_a_coroutine_without_any_await_never_suspends() -> None:
    assert never_suspends(no_await.__code__)
    for function in (with_await, with_async_with, with_async_for):
        assert not never_suspends(function.__code__)


def test_an_async_policy_that_cannot_suspend_needs_no_task() -> None:
    assert outcome(no_await) is ALLOWED
    assert not outcome(no_await, request=b'{"operation": "DELETE"}').allowed


def test_a_plain_function_that_gives_a_coroutine_back_counts_as_async() -> None:
    def wrapper(review: Review) -> object:
        return with_await(review) if review.object else no_await(review)

    assert outcome(wrapper, request=b"{}") is ALLOWED
    unfinished = outcome(wrapper)
    assert asyncio.iscoroutine(unfinished)
    unfinished.close()


def test_the_log_of_a_failure_is_at_error_level(caplog: pytest.LogCaptureFixture) -> None:
    outcome(raises(ValueError("x")))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]

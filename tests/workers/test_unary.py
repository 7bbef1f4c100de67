"""The unary methods, and that they answer as the stream does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import orjson
import pytest
import uvloop
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admission_gateway_worker import Cause, Denied, PolicyServer, Review
from admission_gateway_worker.pb import worker_pb2 as pb
from tests.kit import PATIENCE_S

EVENT_LOOPS = ("uvloop",)

Code = Callable[[Any], grpc.StatusCode]
SETTINGS = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

TEXT = st.text(max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("warn"), TEXT),
        st.tuples(st.just("annotate"), TEXT, TEXT),
        st.tuples(st.just("set"), TEXT, st.none() | st.booleans() | st.integers(0, 9) | TEXT),
        st.tuples(st.just("patch"), TEXT),
        st.tuples(st.just("deny"), TEXT, st.integers(0, 700)),
        st.tuples(st.just("raise"), TEXT),
        st.tuples(st.just("return"), st.booleans()),
        st.tuples(st.just("await")),
        st.tuples(st.just("cancel")),
    ),
    max_size=4,
)
REQUESTS = st.sampled_from([b'{"object": {"a": 1}}', b'{"object": null}', b"{}", b"[]", b"{", b""])


async def play(steps: list[tuple[Any, ...]], review: Review) -> Any:
    for step, *values in steps:
        match step:
            case "warn":
                review.warn(values[0])
            case "annotate":
                review.annotate(values[0], values[1])
            case "set":
                review.object[values[0]] = values[1]
            case "patch":
                review.patch = [{"op": "add", "path": "/" + values[0], "value": 1}]
            case "deny":
                raise Denied(values[0], code=values[1], causes=[Cause(values[0])])
            case "raise":
                raise LookupError(values[0])
            case "return":
                return values[0]
            case "await":
                await asyncio.sleep(0)
            case "cancel":
                raise asyncio.CancelledError
    return None


def served(steps: list[tuple[Any, ...]]) -> PolicyServer:
    """Return a server whose policies run the same steps in different ways."""
    server = PolicyServer()

    def plain(review: Review) -> Any:
        coroutine = play([step for step in steps if step[0] != "await"], review)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value

    async def waiting(review: Review) -> None:
        await asyncio.sleep(0)
        return await play(steps, review)  # type: ignore[no-any-return]

    for mutating in (False, True):
        server.policy(f"plain {mutating}", mutating=mutating)(plain)
        server.policy(f"thread {mutating}", mutating=mutating, blocking=True)(plain)
        server.policy(f"async {mutating}", mutating=mutating)(waiting)
    return server


@SETTINGS
@given(steps=STEPS, request_=REQUESTS)
def test_stream_and_unary_give_the_same_answers(serve: Any, steps: list[Any], request_: bytes) -> None:
    async def scenario() -> None:
        async with serve(served(steps)) as worker:
            stream = worker.stream()
            for mutating in (False, True):
                names = [f"{way} {mutating}" for way in ("plain", "thread", "async")]
                await stream.send(pb.Payload(admission_request=request_), list(enumerate(names)))
                streamed = await stream.verdicts(len(names))
                for i, name in enumerate(names):
                    assert streamed[i] == await worker.unary(name, request_), name
                # Where it runs makes no difference either, save for how a cancellation of itself reads.
                if not any(step[0] == "cancel" for step in steps):
                    assert streamed[0] == streamed[1] == streamed[2]
            await stream.close()

    uvloop.run(scenario())


async def test_the_error_for_an_unknown_policy_lists_the_served_ones(serve: Any, code_of: Code) -> None:
    server = PolicyServer()
    server.policy("b")(lambda review: None)
    server.policy("a")(lambda review: None)
    async with serve(server) as worker:
        for answer in (await worker.unary("c"), await worker.streamed("c")):
            assert code_of(answer) is grpc.StatusCode.NOT_FOUND
            assert answer.message == 'policy "c" is not served here; served are: a, b'


async def test_list_policies_names_them_in_order_of_registration(serve: Any) -> None:
    server = PolicyServer()
    server.policy("b", description="second letter", mutating=True, version="3")(lambda review: None)
    server.policy("a")(lambda review: None)
    async with serve(server) as worker:
        answer = await worker.list_policies(b"")
        assert list(answer.policies) == [
            pb.Policy(name="b", description="second letter", mutating=True, version="3"),
            pb.Policy(name="a"),
        ]


async def test_bytes_that_are_no_review_request_are_the_callers_fault(serve: Any) -> None:
    async with serve(PolicyServer()) as worker:
        with pytest.raises(aio.AioRpcError, match="not a ReviewRequest") as caught:
            await worker.review(b"\xff\xff", timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_cancelled_call_cancels_its_policy(serve: Any) -> None:
    server = PolicyServer()
    started, cancelled = asyncio.Event(), asyncio.Event()

    @server.policy("waits")
    async def waits(review: Review) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serve(server) as worker:
        call = worker.review(pb.ReviewRequest(policy="waits", admission_request=b"{}").SerializeToString())
        async with asyncio.timeout(PATIENCE_S):
            await started.wait()
            call.cancel()
            await cancelled.wait()


async def test_the_calls_deadline_is_the_policys(serve: Any, code_of: Code) -> None:
    server = PolicyServer()
    seen: list[float] = []

    @server.policy("looks")
    def looks(review: Review) -> None:
        seen.append(review.remaining_s)

    @server.policy("waits")
    async def waits(review: Review) -> None:
        await asyncio.Event().wait()

    async with serve(server) as worker:
        await worker.unary("looks", timeout_s=50)
        answer = await worker.unary("waits", timeout_s=0.03)
        assert code_of(answer) is grpc.StatusCode.DEADLINE_EXCEEDED
    # gRPC rounds a deadline on its way, by some milliseconds.
    assert 0 < seen[0] < 51


async def test_a_review_of_seven_mebibytes_goes_both_ways(serve: Any) -> None:
    server = PolicyServer()

    @server.policy("echo", mutating=True)
    def echo(review: Review) -> None:
        review.object["copy"] = review.object["text"]

    request = orjson.dumps({"object": {"text": "x" * (7 * 1024 * 1024)}})
    async with serve(server) as worker:
        unary = await worker.unary("echo", request)
        assert len(unary.patch) > len(request)
        assert unary == await worker.streamed("echo", request)

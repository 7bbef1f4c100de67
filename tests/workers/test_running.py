"""Deadlines, threads and tasks: where a policy runs and how it is stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from admission_gateway_worker import Denied, PolicyServer, Review
from admission_gateway_worker.evaluation import THREAD_REVIEW_BYTES, THREADS, Evaluator, Running
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.slowness import LONG_RUNS, LoopWatch
from tests.kit import PATIENCE_S
from tests.simulation.loop import VirtualLoop
from tests.workers.conftest import POD, make_calls

EVENT_LOOPS = ("uvloop",)

Code = Callable[[Any], grpc.StatusCode]


class Waiting:
    """Serves a policy that waits forever, and counts its starts and cancellations."""

    def __init__(self) -> None:
        self.server = PolicyServer()
        self.server.policy("wait")(self.wait)
        self.started = self.cancelled = 0

    async def wait(self, review: Review) -> None:
        self.started += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def test_at_its_deadline_an_async_policy_is_cancelled(code_of: Code) -> None:
    async def scenario() -> None:
        probe, evaluator, outcomes = Waiting(), Evaluator(), list[Any]()
        calls, _ = make_calls(probe.server, evaluator, lambda _, outcome, __: outcomes.append(outcome))
        batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=POD)])
        batch.calls.add(id=1, policy="wait", timeout_millis=3_600_000)
        calls.accept(batch, time.monotonic())
        while calls.is_busy:
            calls.go_on(0.0)
        await asyncio.sleep(3000)
        assert (probe.started, probe.cancelled, outcomes) == (1, 0, [])
        await asyncio.sleep(601)
        assert probe.cancelled == 1
        assert [code_of(outcome) for outcome in outcomes] == [grpc.StatusCode.DEADLINE_EXCEEDED]

    VirtualLoop().run(scenario())


async def test_without_any_time_left_a_policy_is_not_run(serve: Any, code_of: Code) -> None:
    probe = Waiting()
    async with serve(probe.server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "wait"), (2, "wait")], timeout_ms=0)
        answers = await stream.verdicts(2)
        assert {code_of(answer) for answer in answers.values()} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert probe.started == 0
        await stream.close()


async def test_at_its_deadline_a_thread_is_given_up(serve: Any, code_of: Code) -> None:
    server = PolicyServer()
    let_go = threading.Event()

    @server.policy("blocks", blocking=True)
    def blocks(review: Review) -> None:
        let_go.wait(PATIENCE_S)

    async with serve(server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "blocks")], timeout_ms=20)
        assert code_of((await stream.verdicts(1))[1]) is grpc.StatusCode.DEADLINE_EXCEEDED
        let_go.set()
        await stream.close()


def test_a_call_that_ends_before_a_thread_is_free_stores_no_review() -> None:
    server = PolicyServer()
    let_go = threading.Event()

    @server.policy("blocks", blocking=True)
    def blocks(review: Review) -> None:
        let_go.wait(PATIENCE_S)

    async def scenario() -> None:
        evaluator, policy = Evaluator(), server.policies["blocks"]
        kept = [evaluator.begin(policy, Review(b"{}"), lambda _: None) for _ in range(THREADS)]
        reviews = [Review(b"{}"), Review(b"{}", deadline=time.monotonic() + 0.001)]
        ended = asyncio.Event()
        cancelled, _ = [evaluator.begin(policy, review, lambda _: ended.set()) for review in reviews]
        assert isinstance(cancelled, Running)
        cancelled.cancel()
        await ended.wait()
        assert not [
            holder
            for review in reviews
            for holder in gc.get_referrers(review)
            if isinstance(holder, Running) and holder not in kept
        ]
        let_go.set()
        await evaluator.close()

    asyncio.run(scenario())


async def test_a_plain_function_that_blocks_moves_to_a_thread(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = PolicyServer()
    threads = []

    @server.policy("blocks")
    def blocks(review: Review) -> None:
        threads.append(threading.current_thread().name)
        time.sleep(0.006)

    @server.policy("async")
    async def also_blocks(review: Review) -> None:
        time.sleep(0.006)  # noqa: ASYNC251

    caplog.set_level(logging.WARNING)
    async with serve(server) as worker:
        stream = worker.stream()
        for i in range(LONG_RUNS + 2):
            await stream.send(calls=[(i, "blocks"), (i + 100, "async")])
            await stream.verdicts(2)
        await stream.close()
    assert threads[:LONG_RUNS] == [threading.main_thread().name] * LONG_RUNS
    assert all(name.startswith("policy") for name in threads[LONG_RUNS:])
    assert [record.getMessage() for record in caplog.records] == [
        'policy "blocks" blocked the event loop for more than 5 ms; it will run in a thread',
        'policy "async" blocked the event loop for more than 5 ms; async policies must not block',
    ]


async def test_asyncio_timeout_works_inside_a_policy(serve: Any) -> None:
    server = PolicyServer()

    @server.policy("times-out")
    async def times_out(review: Review) -> None:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            raise Denied("the registry did not answer") from None

    async with serve(server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "times-out"), (2, "times-out")])
        verdicts = await stream.verdicts(2)
        assert {answer.status.message for answer in verdicts.values()} == {"the registry did not answer"}
        await stream.close()


@pytest.mark.parametrize(
    ("wall_ms", "cpu_ms", "yields", "cause"),
    [
        (20, 0, 0, None),
        (20, 4, 0, None),
        (20, 6, 0, "computed"),
        (20, 0, 1, "blocked"),
        (20, 20, 3, "computed"),
    ],
)
def test_waiting_for_a_cpu_is_not_the_policys_fault(
    monkeypatch: pytest.MonkeyPatch, wall_ms: int, cpu_ms: int, yields: int, cause: str | None
) -> None:
    usage = SimpleNamespace(ru_utime=1.0, ru_stime=0.5, ru_nvcsw=7)
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    watch = LoopWatch()
    # Earlier runs of the same batch used CPU time too.
    clock.now += 0.05
    usage.ru_utime += 0.05
    started = clock.now
    clock.now += wall_ms / 1000
    usage.ru_utime += cpu_ms / 1000
    usage.ru_nvcsw += yields
    assert watch.cause(started) == cause
    assert watch.cause(clock.now) is None


async def test_a_function_in_a_thread_may_give_a_coroutine_back(serve: Any, code_of: Code) -> None:
    server = PolicyServer()

    async def decide(review: Review) -> None:
        await asyncio.sleep(0)
        raise Denied(threading.current_thread().name)

    @server.policy("both", blocking=True)
    def both(review: Review) -> Any:
        return decide(review)

    async with serve(server) as worker:
        answer = await worker.unary("both")
        assert answer.status.message == threading.main_thread().name
        assert answer == await worker.streamed("both")


@pytest.mark.parametrize("mutating", [False, True])
async def test_a_large_review_runs_beside_others(serve: Any, *, mutating: bool) -> None:
    server = PolicyServer()
    threads: list[str] = []

    @server.policy("look", mutating=mutating)
    def look(review: Review) -> None:
        threads.append(threading.current_thread().name)
        review.object["new"] = 1

    async with serve(server) as worker:
        small = b'{"object":{"a":"%s"}}' % (b"x" * 1000)
        large = small[:-2] + b',"b":"%s"}}' % (b"x" * THREAD_REVIEW_BYTES)
        answers = [await worker.unary("look", request) for request in (small, large)]
        answers += [await worker.streamed("look", request) for request in (small, large)]
        assert all(answer == answers[0] for answer in answers)
        assert bool(answers[0].patch) == mutating
        main = threading.main_thread().name
        assert [name == main for name in threads] == [True, False, True, False]

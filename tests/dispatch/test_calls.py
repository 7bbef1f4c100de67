"""Answers of workers by stream and by unary call, and the verdicts they become."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch import stream
from gateway.engine.dispatch.verdicts import verdict_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Details, Failed, FailureReason
from tests.world import in_world, simulated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tests.worker.server import StartWorker
    from tests.world import SimulatedWorld, World

    OnEachLoop = Callable[[Callable[[World], Awaitable[None]]], None]

EVENT_LOOPS = ("asyncio", "uvloop")

DENIAL = {
    "code": 422,
    "reason": "Invalid",
    "message": "no",
    "causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.x"}],
}
ABOUT = {"name": "web", "group": "apps", "kind": "Deployment", "uid": "u-2"}
ANSWERS: list[tuple[dict[str, Any], object]] = [
    ({}, ALLOWED),
    ({"deny": DENIAL}, Denied(422, "Invalid", "no", (Cause("FieldValueInvalid", "bad", "spec.x"),))),
    (
        {"deny": {"code": 429, "retry_after_seconds": 30, **ABOUT}},
        Denied(429, details=Details("web", "apps", "Deployment", "u-2", 30)),
    ),
    ({"deny": {}}, Denied(400)),
    ({"deny": {"code": 399}}, Denied(400)),
    ({"deny": {"code": 600}}, Denied(400)),
    ({"deny": {"code": 599}}, Denied(599)),
    (
        {"warnings": ["w"], "annotations": {"b": "2", "a": "1"}},
        Allowed(warnings=("w",), audit_annotations=(("a", "1"), ("b", "2"))),
    ),
    ({"patch": "[]"}, Allowed(b"[]")),
    (
        {"status": "UNAVAILABLE", "details": "gone\nfishing"},
        Failed(FailureReason.STATUS, "UNAVAILABLE: gone fishing", 503),
    ),
    (
        {"status": "NOT_FOUND", "details": "no policy"},
        Failed(FailureReason.STATUS, "NOT_FOUND: no policy", 404),
    ),
    (
        {"status": "DEADLINE_EXCEEDED", "details": "the worker's own clock"},
        Failed(FailureReason.DEADLINE, "DEADLINE_EXCEEDED: no answer within 10s", 504),
    ),
    ({"status": "INTERNAL"}, Failed(FailureReason.STATUS, "INTERNAL", 500)),
    (
        {"status": "UNKNOWN", "details": "x" * 5000},
        Failed(FailureReason.STATUS, "UNKNOWN: " + "x" * 1000, 500),
    ),
]


@pytest.mark.parametrize("transport", ["Stream", "Unary", "Auto"])
@in_world
async def test_every_answer_has_the_same_verdict_by_stream_and_unary_call(
    world: World, start_worker: StartWorker, transport: str
) -> None:
    worker = start_worker()
    pool = await world.add_pool(worker.target, transport=transport)
    assert await pool.wait_until_ready(30)
    evaluation = await world.settle(*(script for script, _ in ANSWERS))
    for outcome, (script, expected) in zip(evaluation.outcomes, ANSWERS, strict=True):
        assert outcome.call is not None
        assert outcome.call.verdict == expected, script
    report = await world.report()
    assert report.get("unary", 0) == (len(ANSWERS) + 1 if transport == "Unary" else 0)
    assert world.is_clean()


@simulated
async def test_calls_of_one_review_share_a_batch_and_the_payload(world: SimulatedWorld) -> None:
    await world.ready_pool()
    await world.settle(*[{}] * 8)
    report = await world.report()
    assert (report["calls"], report["batches"], report["payloads"]) == (9, 2, 2)


@simulated
async def test_a_batch_has_no_more_calls_than_workers_accept(
    world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_BATCH_CALLS", 8)
    await world.ready_pool()
    await asyncio.gather(*(world.settle(*[{}] * 8) for _ in range(3)))
    report = await world.report()
    assert (report["calls"], report["batches"]) == (25, 4)


def test_cancelled_ids_are_sent_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_BATCH_CALLS", 8)

    async def scenario() -> None:
        nothing: Any = None
        never: Any = lambda _: asyncio.Event().wait()  # noqa: E731
        found = stream.ReviewStream(never, nothing, nothing, nothing, lambda: 0.0)
        found._cancelled = list(range(20))
        batches = [worker_pb2.ReviewBatch.FromString(b"".join(found._next_batch())) for _ in range(3)]
        assert [list(batch.cancelled) for batch in batches] == [
            list(range(8)),
            list(range(8, 16)),
            list(range(16, 20)),
        ]
        assert not found._cancelled
        found._dialing.cancel()

    asyncio.run(scenario())


@in_world
async def test_a_worker_without_streams_is_called_by_unary_calls(
    world: World, start_worker: StartWorker
) -> None:
    worker = start_worker(None, "--no-stream")
    await world.add_pool(worker.target, name="auto")
    await world.add_pool(worker.target, name="stream", transport="Stream")
    assert await world.ask({"pool": "auto"}) is ALLOWED
    refused = await world.ask({"pool": "stream"})
    assert isinstance(refused, Failed)
    assert refused.cause == "UNIMPLEMENTED: the method is not served"
    assert await world.pools["auto"].wait_until_ready(30)
    assert await world.ask({"pool": "auto"}) is ALLOWED


@simulated
async def test_large_requests_are_unary_calls(world: SimulatedWorld) -> None:
    await world.ready_pool()
    head = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",'
    kind = b'"operation":"CREATE","kind":{"group":"","version":"v1","kind":"ConfigMap"},'
    resource = b'"resource":{"group":"","version":"v1","resource":"configmaps"},'
    review = head + kind + resource + b'"object":{"data":"' + b"x" * 6_000_000 + b'"}}}'
    assert await world.ask({}, body=review) is ALLOWED
    report = await world.report()
    assert report["unary"] == 1


@in_world
async def test_an_answer_over_the_limit_fails_that_call_alone(
    world: World, start_worker: StartWorker
) -> None:
    worker = start_worker()
    await world.add_pool(worker.target, transport="Unary")
    big, fine = (await world.settle({"big": 9_000_000}, {})).outcomes
    assert isinstance(big.verdict, Failed)
    assert big.verdict.cause.startswith("RESOURCE_EXHAUSTED")
    assert fine.verdict is ALLOWED


@pytest.mark.parametrize("transport", ["Stream", "Auto"])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"garbage": True}, "malformed answer: no ReviewResponse"),
        ({"big": 9_000_000}, "RESOURCE_EXHAUSTED: .*larger than max.*"),
    ],
)
@in_world
async def test_an_answer_that_breaks_the_stream_fails_that_call_alone(
    world: World,
    start_worker: StartWorker,
    fault: dict[str, Any],
    cause: str,
    transport: str,
) -> None:
    worker = start_worker()
    await world.all_ready(await world.add_pool(worker.target, transport=transport))
    other = {"delay_ms": 50}
    outcomes = (await world.settle(other, fault, other)).outcomes
    assert [outcome.verdict is ALLOWED for outcome in outcomes] == [True, False, True]
    failed = outcomes[1].verdict
    assert isinstance(failed, Failed)
    assert re.fullmatch(cause, failed.cause)
    # At once, without waiting for the connection to have recovered.
    assert await world.ask({}) is ALLOWED


@simulated
async def test_an_unreadable_answer_of_a_webhook_with_side_effects_is_not_retried(
    world: SimulatedWorld,
) -> None:
    worker = world.start_worker()
    await world.ready_pool(worker)
    failed = await world.ask({"garbage": True, "side_effects": "NoneOnDryRun"})
    assert isinstance(failed, Failed)
    assert "VerdictBatch" in failed.cause
    assert await world.ask({}) is ALLOWED
    await world.add_pool(worker.target, name="unary", transport="Unary")
    failed = await world.ask({"garbage": True, "pool": "unary"})
    assert failed == Failed(FailureReason.MALFORMED, "malformed answer: no ReviewResponse")


@simulated
async def test_workers_get_the_namespace_and_the_unchanged_request(world: SimulatedWorld) -> None:
    worker = world.start_worker()
    world.namespaces["default"] = Namespace("default", {}, b'{"kind":"Namespace"}')
    for transport in ("Stream", "Unary"):
        await world.add_pool(worker.target, transport=transport, name=transport)
        verdict = await world.ask({"report": True, "pool": transport})
        assert isinstance(verdict, Denied)
        assert '"namespace": "{\\"kind\\":\\"Namespace\\"}"' in verdict.message
        assert '"uid": "d6ac54b0-7080-491f-884c-e236f7528ce0"' in verdict.message


@simulated
async def test_a_large_namespace_does_not_make_a_batch_too_large_to_send(world: SimulatedWorld) -> None:
    annotation = b"x" * 60_000
    world.namespaces["default"] = Namespace("default", {}, b'{"a":"' + annotation + b'"}')
    await world.ready_pool()
    answered = await asyncio.gather(*(world.ask({}) for _ in range(200)))
    assert answered == [ALLOWED] * 200


@simulated
async def test_a_refused_stream_fails_no_call(world: SimulatedWorld) -> None:
    worker = world.start_worker(streams=False)
    pool = await world.add_pool(worker.target)
    # Submitted before the connection is open, and so on the stream that will be refused.
    evaluation = world.settle({}, {"side_effects": "NoneOnDryRun"})
    assert [outcome.verdict for outcome in (await evaluation).outcomes] == [ALLOWED, ALLOWED]
    assert repr(pool.endpoints[0]).split()[3] == "unary,"
    assert await world.ask({}) is ALLOWED


@given(
    patch=st.one_of(st.binary(max_size=40), st.sampled_from((127, 128, 16_383, 16_384)).map(bytes)),
    warnings=st.lists(st.text(max_size=3), max_size=2),
    annotations=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    has_parameters=st.booleans(),
)
def test_an_answer_that_allows_is_read_in_full(
    patch: bytes, warnings: Sequence[str], annotations: Mapping[str, str], *, has_parameters: bool
) -> None:
    answer = worker_pb2.ReviewResponse(
        allowed=True,
        patch=patch,
        warnings=warnings,
        audit_annotations=annotations,
        parameters_applied=has_parameters,
    )
    verdict = verdict_of(answer, has_parameters=has_parameters)
    assert verdict == Allowed(patch, tuple(warnings), tuple(sorted(annotations.items())))

"""Messages of a stream: the same bytes as those of protobuf, and each payload encoded once for a review."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.pb import worker_pb2
from gateway.config.kinds.worker_pool import Hedge
from gateway.engine.dispatch import review_batch
from gateway.engine.dispatch.calls import CallGroup
from gateway.engine.dispatch.review_batch import (
    MAX_CALLS,
    GroupEncoder,
    encoded_allows,
    encoded_cancelled,
    encoded_parameters,
    encoded_payload,
    group_of_first_verdict,
)
from gateway.engine.dispatch.stream import ReviewStream
from gateway.pure.core.call import Payload
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.review import decode
from tests.world import POD, simulated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.world import SimulatedWorld

lengths = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 70_000])
texts = st.text(max_size=200)
ids = st.integers(0, 2**64 - 1)
numbers = st.integers(0, 2**32 - 1)


@given(
    number=st.integers(1, 2**58 - 1) | st.integers(1, 300),
    index=st.integers(0, MAX_CALLS - 1),
    payload=numbers,
    policy=texts,
    timeout_ms=st.integers(1, 2**32 - 1),
    after=ids,
    traceparent=texts,
    parameters=numbers,
)
def test_a_call_has_the_bytes_of_protobuf(
    number: int,
    index: int,
    payload: int,
    policy: str,
    timeout_ms: int,
    after: int,
    traceparent: str,
    parameters: int,
) -> None:
    encoded: list[bytes] = []
    GroupEncoder(number, payload, timeout_ms, after).add(encoded, index, policy, traceparent, parameters)
    call = worker_pb2.Call(
        id=number * MAX_CALLS + index,
        payload=payload,
        policy=policy,
        timeout_millis=timeout_ms,
        after=after,
        traceparent=traceparent,
        parameters=parameters,
    )
    assert b"".join(encoded) == worker_pb2.ReviewBatch(calls=[call]).SerializeToString()


@given(st.lists(ids), st.integers(1, 256), lengths)
def test_cancelled_ids_and_parameters_have_the_bytes_of_protobuf(
    cancelled: list[int], number: int, length: int
) -> None:
    parameters = [worker_pb2.Parameters(id=number, json=bytes(length))]
    expected = worker_pb2.ReviewBatch(cancelled=cancelled, parameters=parameters).SerializeToString()
    assert encoded_cancelled(cancelled) + encoded_parameters(number, bytes(length)) == expected


@given(lengths, lengths)
def test_a_payload_has_the_bytes_of_protobuf(length: int, namespace_length: int) -> None:
    payload, namespace_json = Payload(decode(POD)), bytes(namespace_length)
    payload.request.json = payload._json = bytes(length + 1)
    expected = worker_pb2.Payload(admission_request=payload.json, namespace_object=namespace_json)
    encoded = encoded_payload(payload, namespace_json)
    assert b"".join(encoded) == worker_pb2.ReviewBatch(payloads=[expected]).SerializeToString()
    assert encoded[1] is payload.json


@given(st.integers(1, 2**58 - 1) | st.integers(1, 300), st.integers(1, MAX_CALLS), st.binary(max_size=30))
def test_verdicts_that_allow_all_calls_have_the_bytes_of_protobuf(
    number: int, calls: int, before: bytes
) -> None:
    batch = worker_pb2.VerdictBatch()
    for index in range(calls):
        batch.verdicts.add(id=number * MAX_CALLS + index).response.allowed = True
    encoded = encoded_allows(number, calls)
    assert encoded == batch.SerializeToString()
    assert group_of_first_verdict(before + encoded, len(before)) == number


@given(st.binary(max_size=30), st.integers(0, 30))
def test_any_bytes_may_be_in_the_place_of_a_verdict(message: bytes, position: int) -> None:
    assert group_of_first_verdict(message, position) >= 0


@simulated
async def test_workers_a_retry_and_a_hedge_share_the_encoded_payload(
    world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, encode = 0, review_batch._encoded

    def counted(json: bytes, namespace_json: bytes) -> tuple[bytes, ...]:
        nonlocal count
        count += 1
        return encode(json, namespace_json)

    monkeypatch.setattr(review_batch, "_encoded", counted)
    hanging = [world.start_worker(override={"hang": True}) for _ in range(2)]
    answering = [world.start_worker() for _ in range(4)]
    for name, workers, settings in (
        ("first", answering[:1], {}),
        ("second", answering[1:2], {}),
        ("hedged", [hanging[0], answering[2]], {"hedge": Hedge(0.1, 50.0, 50.0)}),
        ("retried", [hanging[1], answering[3]], {}),
    ):
        await world.all_ready(await world.add_pool(*(w.target for w in workers), name=name, **settings))
    names = ("first", "second", "hedged", "retried")
    review = asyncio.create_task(world.settle(*({"pool": name} for name in names)))
    await asyncio.sleep(0.05)
    hanging[1].crash(delivers_written=True)
    await review
    assert [worker.seen["payloads"] for worker in (*hanging, *answering)] == [1] * 6
    assert (world.metrics.pool("hedged").hedges, world.metrics.pool("retried").retries) == (1, 1)
    assert count == 1


def read_answer(*, calls: int, groups: int, withdraws: bool, is_compared: bool) -> tuple[object, ...]:
    """Return what a stream makes of an answer that allows all calls of several groups.

    With *withdraws* the first verdicts that are taken make a call of another group unwanted.
    """
    nothing: Any = None
    written = {}
    for number in range(1, groups + 1):
        group = written[number] = CallGroup(
            cast("Any", object()), nothing, b"", 0.0, Deadline.after(10.0, 0.0)
        )
        group.number, group.open_count = number, calls
        group.calls = [cast("Any", SimpleNamespace(parameters=b"")) for _ in range(calls)]
    counted, finished = Counter[str](), set[object]()

    def finish(answers: Mapping[CallGroup, Mapping[int, tuple[Any, object]]]) -> None:
        for group, answered in answers.items():
            finish_one(group, answered)

    def finish_one(group: CallGroup, answered: Mapping[int, tuple[Any, object]]) -> None:
        finished.update((group.number, index, verdict) for index, (_, verdict) in answered.items())
        for index in answered:
            group.calls[index] = None
        group.open_count -= len(answered)
        if withdraws and written[1].calls[0] is not None and group.number != 1:
            streams[0].withdraw(written[1], 0)
            written[1].calls[0] = None
            written[1].open_count -= 1

    async def scenario() -> tuple[object, ...]:
        never: Any = lambda _: asyncio.Event().wait()  # noqa: E731
        sink: Any = SimpleNamespace(
            finish_calls=finish, count=lambda code, number: counted.update({code: number})
        )
        found = streams[0] = ReviewStream(never, sink, nothing, nothing, lambda: 0.0)
        found._written.update(written)
        if not is_compared:
            cast("Any", found)._allowed_groups = lambda _: []
        taken = found.received(b"".join(encoded_allows(number, calls) for number in written))
        used = taken if isinstance(taken, int) else sum(taken)
        found._dialing.cancel()
        late = [found._unsolicited.is_late(number * MAX_CALLS) for number in written]
        return used, dict(counted), finished, set(found._written), late

    streams: dict[int, ReviewStream] = {}
    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("calls", "groups", "withdraws"),
    [(1, 1, False), (4, 2, False), (4, 2, True), (4, 20, False), (64, 3, False)],
)
def test_an_answer_that_allows_all_calls_is_taken_as_if_it_were_parsed(
    calls: int, groups: int, withdraws: bool
) -> None:
    compared, parsed = (
        read_answer(calls=calls, groups=groups, withdraws=withdraws, is_compared=is_compared)
        for is_compared in (True, False)
    )
    assert compared == parsed
    assert compared[:2] == (calls * groups, {"OK": calls * groups - (withdraws and groups > 1)})

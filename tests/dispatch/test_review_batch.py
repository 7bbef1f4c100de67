"""Messages of a stream: the same bytes as those of protobuf, and each payload encoded once for a review."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.pb import worker_pb2
from gateway.config.kinds.worker_pool import Hedge
from gateway.engine.dispatch import review_batch
from gateway.engine.dispatch.review_batch import (
    MAX_CALLS,
    GroupEncoder,
    encoded_cancelled,
    encoded_parameters,
    encoded_payload,
)
from gateway.pure.core.call import Payload
from gateway.pure.core.review import decode
from tests.world import POD, simulated

if TYPE_CHECKING:
    import pytest

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

"""Calls of a worker on gRPC's own server. Most other tests have one on the SDK's, as the gateway's client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.unary import SERVICE
from gateway.pure.core.verdict import ALLOWED, Failed
from tests.world import in_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.world import World

    OnEachLoop = Callable[[Callable[[World], Awaitable[None]]], None]

EVENT_LOOPS = ("asyncio", "uvloop")


async def review(message: bytes, context: Any) -> bytes:
    if pb.ReviewRequest.FromString(message).policy != "{}":
        await context.abort(grpc.StatusCode.NOT_FOUND, "not served: 100 % é")
    return pb.ReviewResponse(allowed=True).SerializeToString()


async def review_stream(messages: Any, context: Any) -> None:
    async for message in messages:
        batch = pb.VerdictBatch()
        for call in pb.ReviewBatch.FromString(message).calls:
            verdict = batch.verdicts.add(id=call.id)
            if call.policy == "{}":
                verdict.response.allowed = True
            else:
                verdict.error.MergeFrom(pb.Error(code=5, message="not served: 100 % é"))
        await context.write(batch.SerializeToString())


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@in_world
async def test_a_worker_on_grpcs_own_server_is_called(world: World, tmp_path: Path, transport: str) -> None:
    server = grpc.aio.server()
    methods: dict[str, Any] = {
        "Review": grpc.unary_unary_rpc_method_handler(review),
        "ReviewStream": grpc.stream_stream_rpc_method_handler(review_stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()
    try:
        pool = await world.add_pool(f"unix:{tmp_path}/s", transport=transport)
        await world.all_ready(pool)
        for _ in range(3):
            assert await world.ask({}) is ALLOWED
        failed = await world.ask({"other": 1})
        assert isinstance(failed, Failed)
        assert failed.cause == "NOT_FOUND: not served: 100 % é"
        await pool.close(0.0)
    finally:
        await server.stop(None)

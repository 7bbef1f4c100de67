"""A control: the simplest gateway with grpc.aio, one unary call and one task for each policy.

The front end is the gateway's own. A review is parsed with orjson and sent to each policy of a fixed list. It
is allowed if all policies allow it. There are no rules, patches, metrics or retries.

``python -m loadtest.grpc_aio_gateway WORKER… --state DIR`` logs its address and serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import uvloop

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc

from admission_gateway_worker.pb.worker_pb2 import ReviewRequest, ReviewResponse
from gateway.engine.dispatch.unary import REVIEW
from loadtest.floor import serve
from loadtest.gateways import COUNTS, pool_of
from loadtest.worker import validating_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.core.deadline import Deadline
    from gateway.server.serving.message import Exchange

TIMEOUT_S: Final = 10.0
MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024

Policy = tuple[str, "grpc.aio.UnaryUnaryMultiCallable[ReviewRequest, ReviewResponse]"]
"""The name of a policy, and the call to the worker that serves it."""


class GrpcAioGateway:
    """Answers reviews; created inside a running event loop."""

    def __init__(self, worker_addresses: Sequence[str]) -> None:
        limits = [("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]
        self._channels = [grpc.aio.insecure_channel(address, options=limits) for address in worker_addresses]
        calls: list[grpc.aio.UnaryUnaryMultiCallable[ReviewRequest, ReviewResponse]] = [
            channel.unary_unary(
                REVIEW,
                request_serializer=ReviewRequest.SerializeToString,
                response_deserializer=ReviewResponse.FromString,
            )
            for channel in self._channels
        ]
        names = [validating_name(number) for number in range(max(COUNTS))]
        policies: list[Policy] = [(name, calls[pool_of(number)]) for number, name in enumerate(names)]
        self.paths: Mapping[str, Sequence[Policy]] = {
            f"/validate/policies-{count}": policies[:count] for count in COUNTS
        }
        """The policies of each path."""
        self._tasks: set[asyncio.Task[None]] = set()

    def review(self, exchange: Exchange, policies: Sequence[Policy], _: Deadline) -> None:
        """Answer when all *policies* have answered."""
        task = asyncio.create_task(self._answer(exchange, policies))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, exchange: Exchange, policies: Sequence[Policy]) -> None:
        admission_request: dict[str, Any] = orjson.loads(exchange.request.body)["request"]
        content = orjson.dumps(admission_request)
        verdicts = await asyncio.gather(
            *(
                asyncio.create_task(_call(call, ReviewRequest(policy=name, admission_request=content)))
                for name, call in policies
            )
        )
        response = {"uid": admission_request["uid"], "allowed": all(verdict.allowed for verdict in verdicts)}
        answer = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
        exchange.respond(200, orjson.dumps(answer))


async def _call(
    call: grpc.aio.UnaryUnaryMultiCallable[ReviewRequest, ReviewResponse], request: ReviewRequest
) -> ReviewResponse:
    try:
        return await call(request, timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return ReviewResponse(allowed=False)


async def _run(worker_addresses: Sequence[str], state: Path) -> None:
    gateway = GrpcAioGateway(worker_addresses)
    await serve(gateway.review, gateway.paths, state)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="A gateway with one unary call and one task for each policy."
    )
    parser.add_argument("workers", nargs="+", metavar="WORKER", help="HOST:PORT of four workers")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="folder for the certificate")
    arguments = parser.parse_args()
    uvloop.run(_run(arguments.workers, arguments.state))


if __name__ == "__main__":
    main()

"""A worker without SDK that serves only ``Review``, the minimum of the contract.

``python tests/conformance/review_only_worker.py [--list] --listen ADDRESS``. ``--list`` adds ListPolicies.
Its two policies are not samples.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import grpc

from admission_gateway_worker.pb import worker_pb2 as pb

SERVICE = "admissiongateway.worker.v1.PolicyWorker"
POLICIES = ("team-is-named", "anything-goes")
OPTIONS = [("grpc.max_receive_message_length", 8 << 20), ("grpc.max_send_message_length", 8 << 20)]


async def review(data: bytes, context: Any) -> bytes:
    request = pb.ReviewRequest.FromString(data)
    if request.policy not in POLICIES:
        text = f'policy "{request.policy}" is not served here; served are: {", ".join(POLICIES)}'
        await context.abort(grpc.StatusCode.NOT_FOUND, text)
    labels = (json.loads(request.admission_request).get("object") or {}).get("metadata", {}).get("labels", {})
    if request.policy == "team-is-named" and "team" not in labels:
        return pb.ReviewResponse(status=pb.Status(code=403, message="which team?")).SerializeToString()
    return pb.ReviewResponse(allowed=True).SerializeToString()


async def list_policies(data: bytes, context: Any) -> bytes:
    return pb.ListPoliciesResponse(policies=[pb.Policy(name=name) for name in POLICIES]).SerializeToString()


async def main() -> None:
    handlers: dict[str, Any] = {"Review": grpc.unary_unary_rpc_method_handler(review)}
    if "--list" in sys.argv:
        handlers["ListPolicies"] = grpc.unary_unary_rpc_method_handler(list_policies)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(sys.argv[-1])
    await server.start()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    await server.stop(5)


if __name__ == "__main__":
    asyncio.run(main())

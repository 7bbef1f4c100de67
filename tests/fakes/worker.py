"""A worker whose policies are their own script: the policy's name is a JSON object that says what to do.

It speaks gRPC with nothing of the SDK, so that tests of the gateway do not lean on it. Members of a script,
all optional:

- ``delay_ms`` before answering (``[low, high]`` draws one), ``hang`` (never answers), ``exit`` (dies)
- ``deny`` with ``code``, ``message``, ``reason``, ``causes``, and only ``when`` there is this label;
  ``warnings``; ``annotations``
- ``patch`` (a list of operations, or text to be sent as it is), ``label`` (adds it where it is missing)
- ``status`` and ``details`` (a gRPC status), ``empty`` (a verdict without an outcome), ``garbage`` (bytes),
  ``twice``, ``wrong_id``, ``big`` (so many bytes), ``drain``
- ``report`` (denies, with what the worker has seen so far)
- ``record`` (an audit annotation, with the request, for each different object that it is shown), ``count``
  (an annotation of the object that counts the calls), ``echo`` (one that names the labels and containers)
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import grpc

from gateway.pb import worker_pb2

SERVICE = "admissiongateway.worker.v1.PolicyWorker"
SEEN: Counter[str] = Counter()


def respond(script: dict[str, Any], payload: bytes, namespace: bytes) -> worker_pb2.ReviewResponse:
    response = worker_pb2.ReviewResponse(allowed=True, warnings=script.get("warnings", []))
    for key, value in script.get("annotations", {}).items():
        response.audit_annotations[key] = value
    if script.get("report"):
        report = {**SEEN, "request": json.loads(payload), "namespace": namespace.decode()}
        script = {**script, "deny": {"message": json.dumps(report)}}
    if "deny" in script and ("when" not in script or script["when"] in labels(json.loads(payload))):
        response.allowed = False
        response.status.CopyFrom(worker_pb2.Status(**script["deny"]))
    if "patch" in script:
        patch = script["patch"]
        response.patch = patch.encode() if isinstance(patch, str) else json.dumps(patch).encode()
    if "label" in script:
        obj = json.loads(payload)["object"]
        if script["label"] not in (obj["metadata"].get("labels") or {}):
            operation = {"op": "add", "path": f"/metadata/labels/{script['label']}", "value": "set"}
            missing = [{"op": "add", "path": "/metadata/labels", "value": {}}]
            prefix = [] if obj["metadata"].get("labels") is not None else missing
            response.patch = json.dumps([*prefix, operation]).encode()
    if {"count", "echo", "record"} & script.keys():
        tell(script, json.loads(payload), response)
    if "big" in script:
        response.warnings.append("x" * script["big"])
    return response


def labels(request: dict[str, Any]) -> dict[str, str]:
    """Return the labels of the object, or of the one that is deleted."""
    obj = request["object"] or request["oldObject"] or {}
    return obj.get("metadata", {}).get("labels") or {}


def tell(script: dict[str, Any], request: dict[str, Any], response: worker_pb2.ReviewResponse) -> None:
    """Have the object, or the audit log, say what the policy was shown."""
    obj = request["object"]
    operations: list[dict[str, Any]] = []
    if obj is not None and {"count", "echo"} & script.keys():
        annotations = obj["metadata"].get("annotations")
        if annotations is None:
            operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        if "count" in script:
            seen = str(int((annotations or {}).get(script["count"], "0")) + 1)
            operations.append(
                {"op": "add", "path": f"/metadata/annotations/{script['count']}", "value": seen}
            )
        if "echo" in script:
            names = [container["name"] for container in obj.get("spec", {}).get("containers", [])]
            shown = " ".join([*sorted(obj["metadata"].get("labels") or {}), *names])
            operations.append(
                {"op": "add", "path": f"/metadata/annotations/{script['echo']}", "value": shown}
            )
        response.patch = json.dumps(operations).encode()
    if script.get("record"):
        # A second call for the same object, as for a reinvocation that changes nothing, is the same key.
        shown = json.loads(json.dumps(obj or request["oldObject"] or {}))
        for member in ("creationTimestamp", "managedFields", "namespace", "resourceVersion", "uid"):
            shown.get("metadata", {}).pop(member, None)
        digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:8]
        response.audit_annotations[f"saw-{digest}"] = json.dumps(request)


async def wait(script: dict[str, Any]) -> None:
    delay = script.get("delay_ms", 0)
    if isinstance(delay, list):
        delay = random.uniform(*delay)
    if script.get("hang"):
        delay = 3_600_000
    if script.get("exit"):
        os._exit(1)
    if delay:
        await asyncio.sleep(delay / 1000)


class Worker:
    def __init__(self) -> None:
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.writing = asyncio.Lock()

    async def review(self, data: bytes, context: Any) -> bytes:
        SEEN["unary"] += 1
        request = worker_pb2.ReviewRequest.FromString(data)
        script = json.loads(request.policy)
        try:
            await wait(script)
        except asyncio.CancelledError:
            SEEN["cancelled"] += 1
            raise
        if "status" in script:
            await context.abort(grpc.StatusCode[script["status"]], script.get("details", ""))
        if script.get("garbage"):
            return b"\xff\xff\xff"
        answer = respond(script, request.admission_request, request.namespace_object)
        return answer.SerializeToString()

    async def review_stream(self, messages: Any, context: Any) -> None:
        SEEN["streams"] += 1
        async for data in messages:
            batch = worker_pb2.ReviewBatch.FromString(data)
            SEEN["batches"] += bool(batch.calls)
            SEEN["payloads"] += len(batch.payloads)
            for number in batch.cancelled:
                SEEN["cancelled"] += 1
                task = self.tasks.pop(number, None)
                if task is not None:
                    task.cancel()
            for call in batch.calls:
                SEEN["calls"] += 1
                payload = batch.payloads[call.payload]
                self.tasks[call.id] = asyncio.create_task(self.answer(call, payload, context))

    async def answer(self, call: worker_pb2.Call, payload: worker_pb2.Payload, context: Any) -> None:
        script = json.loads(call.policy)
        await wait(script)
        if script.get("garbage"):
            async with self.writing:
                await context.write(b"\xff\xff\xff")
            return
        verdict = worker_pb2.Verdict(id=call.id + 1_000_000 if script.get("wrong_id") else call.id)
        if "status" in script:
            verdict.error.code = grpc.StatusCode[script["status"]].value[0]
            verdict.error.message = script.get("details", "")
        elif not script.get("empty"):
            verdict.response.CopyFrom(respond(script, payload.admission_request, payload.namespace_object))
        reply = worker_pb2.VerdictBatch(verdicts=[verdict], draining=bool(script.get("drain")))
        self.tasks.pop(call.id, None)
        for _ in range(2 if script.get("twice") else 1):
            async with self.writing:
                await context.write(reply.SerializeToString())


async def serve(listen: str, tls: list[bytes] | None, *, stream: bool) -> None:
    worker = Worker()
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", 8 << 20),
            ("grpc.max_send_message_length", 32 << 20),
            ("grpc.so_reuseport", 0),
        ]
    )
    handlers: dict[str, Any] = {"Review": grpc.unary_unary_rpc_method_handler(worker.review)}
    if stream:
        handlers["ReviewStream"] = grpc.stream_stream_rpc_method_handler(worker.review_stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    if tls is None:
        port = server.add_insecure_port(listen)
    else:
        key, chain, ca = tls
        credentials = grpc.ssl_server_credentials([(key, chain)], ca, require_client_auth=True)
        port = server.add_secure_port(listen, credentials)
    await server.start()
    print(port, flush=True)  # noqa: T201
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--no-stream", action="store_true")
    parser.add_argument("--tls", nargs=3, metavar=("KEY", "CERT", "CLIENT_CA"))
    parsed = parser.parse_args()
    tls = [Path(file).read_bytes() for file in parsed.tls] if parsed.tls else None
    asyncio.run(serve(parsed.listen, tls, stream=not parsed.no_stream))


if __name__ == "__main__":
    main()

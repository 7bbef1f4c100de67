"""A worker with scripted policies: the name of the policy is its script, a JSON object.

It does not use the SDK, so that tests of the gateway do not depend on it. Members of a script,
all optional:

- ``delay_ms`` before answering (``[low, high]`` draws one), ``until`` (answers once that file exists),
  ``hang`` (never answers), ``exit`` (dies)
- ``deny`` with ``code``, ``message``, ``reason``, ``causes``, and only ``when`` there is this label;
  ``warnings``; ``annotations``
- ``patch`` (a list of operations, or text to be sent as it is), ``label`` (adds it where it is missing)
- ``status`` and ``details`` (a gRPC status), ``empty`` (a verdict without an outcome), ``garbage`` (bytes),
  ``twice``, ``wrong_id``, ``big`` (so many bytes), ``drain``
- on a stream: ``stubborn`` (answers even after the call is cancelled), ``others_id``
  (answers under the id of another call in flight, if any), ``flood`` (then sends unsolicited
  verdicts until the stream ends), ``end`` (ends the stream, with OK, instead of answering)
- ``by_user`` (members for a user's requests, by the user's name)
- ``raw`` (denies, with the request as it came, in base64)
- ``report`` (denies, with counts of the calls so far)
- ``trace`` (an audit annotation with the ``traceparent`` of the call)
- ``record`` (an audit annotation, with the request, for each different object), ``count``
  (an annotation of the object that counts the calls), ``echo`` (one that names the labels and containers)

Flags for a worker that differs from others with the same policies:

- ``--override JSON``: members that replace those of every script except ``report``; with ``--every N`` only
  in each Nth call
- ``--log FILE``: a line for each call as it comes in, with the review's uid and the policy, which outlives a
  worker that is killed
- ``--chains``: evaluates a call with ``after`` on the object that the earlier call leaves
- ``--declare FILE``: serves ListPolicies, with the policies that are the members of the JSON object in FILE,
  and CheckParameters if one of them has ``problem``. A policy may have ``schema``, ``mutating`` and
  ``problem``, the judgement of all its parameters. FILE is read again for each call
- ``--health``: serves grpc.health.v1; SIGUSR1 turns SERVING into NOT_SERVING and back
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import jsonpatch
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from admission_gateway_worker.pb import worker_pb2

SERVICE = "admissiongateway.worker.v1.PolicyWorker"
SEEN: Counter[str] = Counter()


def respond(script: dict[str, Any], payload: bytes, namespace: bytes) -> worker_pb2.ReviewResponse:
    if "by_user" in script:
        script = {**script, **script["by_user"].get(json.loads(payload)["userInfo"].get("username"), {})}
    response = worker_pb2.ReviewResponse(allowed=True, warnings=script.get("warnings", []))
    for key, value in script.get("annotations", {}).items():
        response.audit_annotations[key] = value
    if script.get("raw"):
        script = {**script, "deny": {"message": base64.b64encode(payload).decode()}}
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
        show_input(script, json.loads(payload), response)
    if "big" in script:
        response.warnings.append("x" * script["big"])
    return response


def patched(request: bytes, response: worker_pb2.ReviewResponse) -> bytes:
    """Return *request* with the object that a call with *response* leaves."""
    if response.allowed and response.patch:
        # A patch may be invalid, or be no JSON.
        with contextlib.suppress(Exception):
            document = json.loads(request)
            document["object"] = jsonpatch.apply_patch(document["object"], json.loads(response.patch))
            return json.dumps(document).encode()
    return request


def labels(request: dict[str, Any]) -> dict[str, str]:
    """Return the labels of the object, or of the deleted object."""
    obj = request["object"] or request["oldObject"] or {}
    return obj.get("metadata", {}).get("labels") or {}


def show_input(script: dict[str, Any], request: dict[str, Any], response: worker_pb2.ReviewResponse) -> None:
    """Show the policy's input in the object or in the audit log."""
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
        # A second call for the same object, such as a reinvocation, has the same key.
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
    while "until" in script and not os.path.exists(script["until"]):  # noqa: ASYNC240, PTH110
        await asyncio.sleep(0.01)


@dataclass(eq=False)
class Stream:
    """One ReviewStream, and the calls on it."""

    context: Any
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    """Calls that can be cancelled, by id."""
    stubborn: set[asyncio.Task[None]] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def write(self, message: bytes) -> None:
        async with self.writing:
            await self.context.write(message)


class Worker:
    def __init__(
        self,
        override: dict[str, Any],
        every: int,
        log: Path | None,
        *,
        has_chains: bool = False,
        declared: Path | None = None,
    ) -> None:
        self.declared = declared
        self.has_chains = has_chains
        self.override = override
        self.every = every
        self.log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def script(self, policy: str, payload: bytes, traceparent: str) -> dict[str, Any]:
        """Return the script of a new call."""
        SEEN["scripts"] += 1
        if self.log is not None:
            os.write(self.log, f"{json.loads(payload)['uid']} {policy}\n".encode())
        script: dict[str, Any] = json.loads(policy)
        if script.get("trace"):
            script["annotations"] = {"traceparent": traceparent}
        if self.override and not script.get("report") and SEEN["scripts"] % self.every == 0:
            return {**script, **self.override}
        return script

    async def list_policies(self, _: bytes, __: Any) -> bytes:
        assert self.declared is not None
        policies = [
            worker_pb2.Policy(
                name=name,
                mutating=one.get("mutating", False),
                parameters_schema=json.dumps(one["schema"]) if "schema" in one else "",
            )
            for name, one in json.loads(self.declared.read_bytes()).items()
        ]
        return worker_pb2.ListPoliciesResponse(policies=policies).SerializeToString()

    async def check_parameters(self, data: bytes, context: Any) -> bytes:
        request = worker_pb2.CheckParametersRequest.FromString(data)
        declared = {} if self.declared is None else json.loads(self.declared.read_bytes())
        if not any("problem" in one for one in declared.values()):
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not declared")
        if request.policy not in declared:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such policy")
        problem = declared[request.policy].get("problem", "")
        return worker_pb2.CheckParametersResponse(problem=problem).SerializeToString()

    async def review(self, data: bytes, context: Any) -> bytes:
        SEEN["unary"] += 1
        request = worker_pb2.ReviewRequest.FromString(data)
        metadata = dict(context.invocation_metadata())
        script = self.script(request.policy, request.admission_request, metadata.get("traceparent", ""))
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
        stream = Stream(context)
        reading = asyncio.create_task(self.read(messages, stream))
        ending = asyncio.create_task(stream.ended.wait())
        try:
            done, _ = await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if reading in done:
                reading.result()
        finally:
            for task in (reading, ending, *stream.tasks.values(), *stream.stubborn):
                task.cancel()

    async def read(self, messages: Any, stream: Stream) -> None:
        async for data in messages:
            batch = worker_pb2.ReviewBatch.FromString(data)
            SEEN["batches"] += bool(batch.calls)
            SEEN["payloads"] += len(batch.payloads)
            for number in batch.cancelled:
                SEEN["cancelled"] += 1
                task = stream.tasks.pop(number, None)
                if task is not None:
                    task.cancel()
            left: dict[int, asyncio.Future[bytes]] = {}
            for call in batch.calls:
                SEEN["calls"] += 1
                SEEN["chained"] += call.after != 0
                payload = batch.payloads[call.payload]
                script = self.script(call.policy, payload.admission_request, call.traceparent)
                before = left[call.after] if call.after and self.has_chains else None
                left[call.id] = asyncio.get_running_loop().create_future()
                answering = self.answer(script, call.id, payload, stream, left[call.id], before)
                task = asyncio.create_task(answering)
                if script.get("stubborn"):
                    stream.stubborn.add(task)
                    task.add_done_callback(stream.stubborn.discard)
                else:
                    stream.tasks[call.id] = task

    async def answer(
        self,
        script: dict[str, Any],
        number: int,
        payload: worker_pb2.Payload,
        stream: Stream,
        left: asyncio.Future[bytes],
        before: asyncio.Future[bytes] | None,
    ) -> None:
        """Send the verdict of a call, and the object that it leaves to *left*; *before* has its object."""
        request = payload.admission_request if before is None else await asyncio.shield(before)
        await wait(script)
        if script.get("garbage"):
            await stream.write(b"\xff\xff\xff")
            return
        if script.get("end"):
            stream.ended.set()
            return
        verdict = worker_pb2.Verdict(id=number + 1_000_000 if script.get("wrong_id") else number)
        verdict.chained = before is not None
        if script.get("others_id"):
            verdict.id = next((other for other in stream.tasks if other != number), number)
        if "status" in script:
            verdict.error.code = grpc.StatusCode[script["status"]].value[0]
            verdict.error.message = script.get("details", "")
        elif not script.get("empty"):
            verdict.response.CopyFrom(respond(script, request, payload.namespace_object))
        left.set_result(patched(request, verdict.response))
        reply = worker_pb2.VerdictBatch(verdicts=[verdict], draining=bool(script.get("drain")))
        stream.tasks.pop(number, None)
        for _ in range(2 if script.get("twice") else 1):
            await stream.write(reply.SerializeToString())
        if script.get("flood"):
            unsolicited = worker_pb2.VerdictBatch()
            for unknown in range(1000):
                unsolicited.verdicts.add(id=(1 << 40) + unknown).response.allowed = True
            flood = unsolicited.SerializeToString()
            with contextlib.suppress(Exception):
                while True:
                    await stream.write(flood)
                    SEEN["flooded"] += 1000


async def add_health(server: grpc.aio.Server) -> None:
    """Serve grpc.health.v1, for the worker and for its service, as SERVING until the first SIGUSR1."""
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    tasks: set[asyncio.Task[None]] = set()
    states = itertools.cycle(("SERVING", "NOT_SERVING"))

    async def toggle() -> None:
        state = health_pb2.HealthCheckResponse.ServingStatus.Value(next(states))
        for name in ("", SERVICE):
            await servicer.set(name, state)

    await toggle()
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGUSR1, lambda: tasks.add(asyncio.create_task(toggle()))
    )


async def serve(worker: Worker, parsed: argparse.Namespace) -> None:
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", 8 << 20),
            ("grpc.max_send_message_length", 32 << 20),
            ("grpc.so_reuseport", 0),
        ]
    )
    handlers: dict[str, Any] = {"Review": grpc.unary_unary_rpc_method_handler(worker.review)}
    if worker.declared is not None:
        handlers["ListPolicies"] = grpc.unary_unary_rpc_method_handler(worker.list_policies)
        handlers["CheckParameters"] = grpc.unary_unary_rpc_method_handler(worker.check_parameters)
    if not parsed.no_stream:
        handlers["ReviewStream"] = grpc.stream_stream_rpc_method_handler(worker.review_stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    if parsed.health:
        await add_health(server)
    if parsed.tls is None:
        port = server.add_insecure_port(parsed.listen)
    else:
        key, chain, ca = parsed.tls
        credentials = grpc.ssl_server_credentials([(key, chain)], ca, require_client_auth=True)
        port = server.add_secure_port(parsed.listen, credentials)
    await server.start()
    print(port, flush=True)  # noqa: T201
    await server.wait_for_termination()


def read(file: str) -> bytes:
    return Path(file).read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--no-stream", action="store_true")
    parser.add_argument("--tls", nargs=3, type=read, metavar=("KEY", "CERT", "CLIENT_CA"))
    parser.add_argument("--override", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--log", type=Path, metavar="FILE")
    parser.add_argument("--declare", type=Path, metavar="FILE")
    parser.add_argument("--health", action="store_true")
    parser.add_argument("--chains", action="store_true")
    parsed = parser.parse_args()
    worker = Worker(
        parsed.override, parsed.every, parsed.log, has_chains=parsed.chains, declared=parsed.declare
    )
    asyncio.run(serve(worker, parsed))


if __name__ == "__main__":
    main()

"""What scripts say, as functions without a server: workers on sockets and in the simulation share them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import jsonpatch

from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.pb import worker_pb2

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping


GARBAGE: Final = b"\xff\xff\xff"


def script_of(policy: str, seen: Counter[str], override: dict[str, Any], every: int) -> dict[str, Any]:
    """Return the script of a new call, of which each *every*th has the members of *override*."""
    seen["scripts"] += 1
    script: dict[str, Any] = json.loads(policy)
    if override and not script.get("report") and seen["scripts"] % every == 0:
        return {**script, **override}
    return script


def count(batch: worker_pb2.ReviewBatch, seen: Counter[str]) -> None:
    """Count a batch in *seen*."""
    seen["batches"] += bool(batch.calls)
    seen["payloads"] += len(batch.payloads)
    seen["cancelled"] += len(batch.cancelled)
    seen["calls"] += len(batch.calls)
    seen["chained"] += sum(call.after != 0 for call in batch.calls)


def verdict_of(
    script: dict[str, Any],
    number: int,
    others: Iterable[int],
    answer: Callable[[], worker_pb2.ReviewResponse],
    *,
    is_chained: bool,
) -> worker_pb2.Verdict:
    """Return the verdict of call *number*, with its *answer* or a failure; *others* are in flight."""
    verdict = worker_pb2.Verdict(id=number + 1_000_000 if script.get("wrong_id") else number)
    verdict.chained = is_chained
    if script.get("others_id"):
        verdict.id = next((other for other in others if other != number), number)
    if "status" in script:
        verdict.error.code = StatusCode[script["status"]]
        verdict.error.message = script.get("details", "")
    elif not script.get("empty"):
        verdict.response.CopyFrom(answer())
    return verdict


def unsolicited(how_many: int) -> bytes:
    """Return a message with so many verdicts that nobody waits for."""
    batch = worker_pb2.VerdictBatch()
    for unknown in range(how_many):
        batch.verdicts.add(id=(1 << 40) + unknown).response.allowed = True
    return batch.SerializeToString()


def respond(
    script: dict[str, Any],
    payload: bytes,
    namespace: bytes = b"",
    seen: Mapping[str, int] = MappingProxyType({}),
    traceparent: str = "",
) -> worker_pb2.ReviewResponse:
    """Return the answer of *script*; *seen* has the counts for ``report``."""
    if "by_user" in script:
        script = {**script, **script["by_user"].get(json.loads(payload)["userInfo"].get("username"), {})}
    response = worker_pb2.ReviewResponse(allowed=True, warnings=script.get("warnings", []))
    for key, value in script.get("annotations", {}).items():
        response.audit_annotations[key] = value
    if script.get("trace"):
        response.audit_annotations["traceparent"] = traceparent
    if script.get("raw"):
        script = {**script, "deny": {"message": base64.b64encode(payload).decode()}}
    if script.get("report"):
        report = {**seen, "request": json.loads(payload), "namespace": namespace.decode()}
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

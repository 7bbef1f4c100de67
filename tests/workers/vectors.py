"""``python -m tests.workers.vectors`` rewrites the vectors of the conformance kit.

The requests are chosen here; the answers are those of the Python SDK. test_samples.py checks its samples
independently, and tests/core compares its patches with jsonpatch.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker import Review
from admission_gateway_worker.answer import Outcome, error
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.invoke import outcome_of, run
from admission_gateway_worker.json_patch.diff import diff
from admission_gateway_worker.parameters import ParametersRefused
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.samples import server
from admission_gateway_worker.samples.validating import BUSY_ANNOTATION as BUSY

if TYPE_CHECKING:
    from admission_gateway_worker.policy import Policy

FOLDER: Final = Path(__file__).parents[2] / "workers" / "conformance" / "admission_gateway_conformance"
_REVIEWS: Final = Path(__file__).parents[1] / "reviews"

_WELL_BEHAVED: Final = tuple(name for name in server.policies if name not in ("sleeps", "fails"))
_FOR_ALL_POLICIES: Final = (
    "deployment-update",
    "pod-create-6kb",
    "pod-create-mutate",
    "pod-ephemeralcontainers-update-validate",
    "pod-update-mutate",
    "widget-create",
)
"""Recorded reviews for every policy."""

_FOR_ONE_POLICY: Final = (
    ("cronjob-create", "always-pull-images"),
    ("cronjob-create", "deny-latest-tag"),
    ("eviction-eviction-create", "deny-latest-tag"),
    ("namespace-create", "require-labels"),
    ("pod-delete-validate", "require-labels"),
    ("pod-status-update-validate", "deny-latest-tag"),
    ("podexecoptions-exec-connect", "deny-privileged"),
    ("scale-scale-update", "require-labels"),
)
"""Recorded reviews for one policy each."""

_ODD: Final = 'é中😀 <a>&"\\/\u2028\u2029\x7f'
_Question = tuple[str, str, dict[str, Any], dict[str, Any] | None]
"""The name of the vector, the policy, the AdmissionRequest, the Namespace."""
_WITH_PARAMETERS: Final[tuple[tuple[str, int, bytes], ...]] = (
    ("as many as the default", 10, b""),
    ("more than the default", 11, b""),
    ("the default, with no parameter", 11, b"{}"),
    ("as many as allowed", 3, b'{"max":3}'),
    ("more than allowed", 4, b'{"max":3}'),
    ("none", 0, b'{"max":0}'),
    ("a value of another type", 1, b'{"max":"3"}'),
    ("a negative value", 1, b'{"max":-1}'),
)
"""Vectors of limit-replicas: name, replicas, and parameters."""

_NAMESPACE: Final = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {"team": "checkout"}},
}


def _pod(spec: dict[str, Any], metadata: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "uid": "0b8a6f0e-9c1e-4b0c-8a57-3f5ad6a4b1c9",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web",
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"} if metadata is None else metadata,
            "spec": spec,
        },
        "oldObject": None,
        "dryRun": False,
        "options": None,
        **more,
    }


def _deleted(metadata: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    deployment = {"group": "apps", "version": "v1", "kind": "Deployment"}
    members = {"operation": "DELETE", "object": None, "kind": deployment, **more}
    return _pod({}, oldObject={"metadata": metadata}, **members)


_BUSY: Final = {
    "name": "web",
    "uid": "6f1d6f7e-0b67-4d0e-8f6f-1f4a4f9c2f55",
    "annotations": {BUSY: "a backup"},
}
_IMAGES: Final = (
    "nginx",
    "nginx:latest",
    "nginx:1.27",
    "registry.example:5000/nginx",
    "registry.example:5000/nginx:1.27",
    "nginx@sha256:" + "a" * 64,
    "nginx:latest@sha256:" + "a" * 64,
    "",
    f"shop/{_ODD}",
)
_UNFINISHED: Final = {
    "initContainers": [{"name": "limit", "resources": {"limits": {"memory": "1Gi", "cpu": "2"}}}],
    "containers": [
        {"name": "none"},
        {"name": "half", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}},
        {"name": "null", "resources": None, "imagePullPolicy": "Never"},
        {"name": _ODD},
    ],
    "ephemeralContainers": [{"name": "debug", "imagePullPolicy": "IfNotPresent"}],
}
_UNSAFE: Final = {
    "hostNetwork": True,
    "hostPID": False,
    "hostIPC": True,
    "containers": [
        {"name": "a", "securityContext": {"privileged": False}},
        {"name": "b", "securityContext": None},
        {"securityContext": {"privileged": True}},
    ],
    "initContainers": [{"name": _ODD, "securityContext": {"privileged": True}}],
}
_LEAVING: Final = {"name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z"}
_MADE: Final[tuple[_Question, ...]] = (
    ("images of all kinds", "deny-latest-tag", _pod({"containers": [{"image": i} for i in _IMAGES]}), None),
    ("texts that need care", "deny-privileged", _pod(_UNSAFE), None),
    ("limits that are missing", "warn-no-memory-limit", _pod(_UNFINISHED), None),
    ("requests that are missing", "default-resources", _pod(_UNFINISHED), None),
    ("all lists of containers", "always-pull-images", _pod(_UNFINISHED), None),
    ("a sidecar beside others", "inject-sidecar", _pod(_UNFINISHED), None),
    ("no containers", "inject-sidecar", _pod({"containers": []}), None),
    ("the sidecar is there", "inject-sidecar", _pod({"containers": [{"name": "log-shipper"}]}), None),
    (
        "a new ephemeral container",
        "always-pull-images",
        _pod(
            _UNFINISHED,
            operation="UPDATE",
            subResource="ephemeralcontainers",
            oldObject={"spec": {k: v for k, v in _UNFINISHED.items() if k != "ephemeralContainers"}},
        ),
        None,
    ),
    ("on its way out", "deny-privileged", _pod(_UNSAFE, _LEAVING, operation="UPDATE"), None),
    ("on its way out", "require-labels", _pod({}, _LEAVING, operation="UPDATE"), None),
    ("an empty label", "require-labels", _pod({}, {"labels": {"team": ""}}), None),
    ("a label", "require-labels", _pod({}, {"labels": {"team": "a"}}), None),
    ("no metadata", "require-labels", _pod({}, object={"spec": None}), None),
    ("null metadata", "team-from-namespace", _pod({}, object={"metadata": None}), _NAMESPACE),
    ("no labels yet", "team-from-namespace", _pod({}), _NAMESPACE),
    ("other labels", "team-from-namespace", _pod({}, {"labels": {"app": "web"}}), _NAMESPACE),
    ("an empty label", "team-from-namespace", _pod({}, {"labels": {"team": ""}}), _NAMESPACE),
    ("a label", "team-from-namespace", _pod({}, {"labels": {"team": "a"}}), _NAMESPACE),
    ("an update", "team-from-namespace", _pod({}, operation="UPDATE"), _NAMESPACE),
    ("a Namespace without the label", "team-from-namespace", _pod({}), {"metadata": {"name": "shop"}}),
    ("an unknown Namespace", "team-from-namespace", _pod({}), None),
    (
        "a text that needs care",
        "team-from-namespace",
        _pod({}),
        {"metadata": {"labels": {"team": _ODD + "\b\f\n\r\t\x01\x1f"}}},
    ),
    ("no object", "team-from-namespace", _pod({}, object=None), _NAMESPACE),
    ("a null list", "warn-no-memory-limit", _pod({"containers": None}), None),
    ("busy", "protect-busy", _deleted(_BUSY), None),
    ("busy, without name and uid", "protect-busy", _deleted({"annotations": _BUSY["annotations"]}), None),
    ("busy with a text that needs care", "protect-busy", _deleted({"annotations": {BUSY: _ODD}}), None),
    ("not busy", "protect-busy", _deleted({"name": "web", "annotations": {"busy": "x", BUSY: ""}}), None),
    ("no metadata", "protect-busy", _deleted(None), None),
    ("a part of it", "protect-busy", _deleted(_BUSY, subResource="status"), None),
    ("not deleted", "protect-busy", _deleted(_BUSY, operation="UPDATE"), None),
    ("any review", "fails", _pod({}), None),
)

_BIG: Final = 9007199254740993
_DIFFS: Final[tuple[tuple[str, Any, Any], ...]] = (
    ("equal", {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    ("order of keys is no difference", {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
    (
        "members added, removed and replaced",
        {"a": 1, "b": 2, "c": {"d": 3}},
        {"b": 3, "c": {"d": 3, "e": 4}, "f": {}},
    ),
    ("operations by key, not by kind", {"d": 1, "b": 1}, {"e": 1, "c": 1, "b": 2, "a": 1}),
    ("keys by code point", {}, {"z": 1, "a": 2, "Z": 3, "é": 4, "\uffff": 5, "😀": 6, "": 7, "a!": 8}),
    ("keys in values by code point", {"v": 0}, {"v": {"b": [{"😀": 1, "\uffff": 2}], "a": {"d": 1, "c": 2}}}),
    ("tokens that are escaped", {"a/b": 1, "m~n": {"x": 1}}, {"a/b": 2, "m~n": {"x": 2, "~1": 0}}),
    ("null is a value", {"a": None, "b": 1, "d": None}, {"a": 1, "b": None, "c": None}),
    (
        "types differ",
        {"a": 1, "b": "1", "c": True, "d": [], "e": {}, "f": 0, "g": ""},
        {"a": "1", "b": 1, "c": "true", "d": {}, "e": [], "f": False, "g": None},
    ),
    ("true is not one", {"a": [True, 1, 0]}, {"a": [1, True, False]}),
    ("an item at the end", {"a": [1, 2]}, {"a": [1, 2, {"z": 1, "y": 2}]}),
    ("an item at the head", {"a": [1, 2]}, {"a": [0, 1, 2]}),
    ("items in the middle", {"a": [1, 2, 3, 4]}, {"a": [1, 8, 9, 10, 4]}),
    ("fewer items in the middle", {"a": [1, 2, 3, 4, 5]}, {"a": [1, 9, 5]}),
    (
        "an item changed inside",
        {"a": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]},
        {"a": [{"n": "x", "v": 1}, {"n": "y", "v": 3}]},
    ),
    ("all items gone", {"a": [1, 2, 3]}, {"a": []}),
    ("equal items", {"a": [1, 1, 1]}, {"a": [1, 1, 1, 1, 1]}),
    ("head before tail", {"a": [1, 1, 2]}, {"a": [1, 2]}),
    ("lists in lists", {"a": [[1, 2], [3]]}, {"a": [[1, 2, 5], []]}),
    ("a list nine deep", {"a": [[[[[[[[[1]]]]]]]]]}, {"a": [[[[[[[[[2]]]]]]]]]}),
    ("the whole document", [1], {"a": 1}),
    ("texts that need care", {"a": ""}, {"a": _ODD + "\b\f\n\r\t\x00\x1f", _ODD: "\b"}),
    (
        "large whole numbers",
        {"a": [_BIG, 1], "b": {"c": _BIG, "d": 1}},
        {"a": [_BIG, 2], "b": {"c": _BIG, "d": 2}},
    ),
    (
        "large whole numbers that move",
        {"a": {"b": [{"n": _BIG}]}},
        {"c": {"b": [{"n": _BIG}, {"n": -_BIG - 2}, {"n": 2**63 - 1}]}},
    ),
    (
        "neighbours that a double cannot tell apart",
        {"a": _BIG, "b": _BIG - 1},
        {"a": _BIG + 1, "b": _BIG - 1},
    ),
    ("fractions", {"a": 0.5, "b": 1.25}, {"a": 0.25, "b": 1.25, "c": -0.125}),
    (
        "a container that was added",
        {"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 80}]}]}},
        {
            "spec": {
                "containers": [
                    {"name": "app", "ports": [{"containerPort": 80}, {"containerPort": 81}]},
                    {"name": "log", "env": [{"name": "A", "value": "1"}]},
                ]
            }
        },
    ),
    (
        "labels and annotations",
        {"metadata": {"annotations": {"example.com/a": "1"}, "name": "web"}},
        {
            "metadata": {
                "annotations": {"example.com/a": "2", "example.com/b~c": "3"},
                "labels": {"team": "a"},
                "name": "web",
            }
        },
    ),
)


def outcome(
    policy: str, request: dict[str, Any], namespace: dict[str, Any] | None, parameters: bytes = b""
) -> dict[str, Any]:
    """Return the answer of a sample in the form of a vector."""
    served = server.policies[policy]
    namespace_json = b"" if namespace is None else orjson.dumps(namespace)
    review = Review(orjson.dumps(request), namespace_json, mutating=served.mutating)
    answer = _answer(served, review, parameters)
    if isinstance(answer, pb.Error):
        return {"error": {"code": answer.code, "message": answer.message}}
    response: dict[str, Any] = {"allowed": answer.allowed}
    if not answer.allowed:
        causes = [{"reason": c.reason, "message": c.message, "field": c.field} for c in answer.status.causes]
        status = answer.status
        response["status"] = {
            "code": status.code,
            "reason": status.reason,
            "message": status.message,
            "causes": causes,
        }
        about = {
            "retryAfterSeconds": status.retry_after_seconds,
            "name": status.name,
            "group": status.group,
            "kind": status.kind,
            "uid": status.uid,
        }
        response["status"] |= {name: value for name, value in about.items() if value}
    if answer.patch:
        response["patch"] = orjson.loads(answer.patch)
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    if answer.audit_annotations:
        response["auditAnnotations"] = dict(answer.audit_annotations)
    return {"response": response}


def _answer(served: Policy, review: Review, parameters: bytes) -> Outcome:
    try:
        if served.parameters is not None:
            review.parameters = served.prepared.get(served, review, parameters)
    except ParametersRefused as refused:
        return error(StatusCode.INVALID_ARGUMENT, str(refused))
    result = run(served, review)
    if isinstance(result, pb.ReviewResponse | pb.Error):
        return result
    return asyncio.run(outcome_of(served, review, result))


def samples() -> list[dict[str, Any]]:
    """Return the content of samples.json."""
    recorded = {path.stem: orjson.loads(path.read_bytes())["request"] for path in _REVIEWS.glob("*.json")}
    questions: list[_Question] = [
        (name, policy, recorded[name], None) for name in _FOR_ALL_POLICIES for policy in _WELL_BEHAVED
    ]
    questions += [(name, policy, recorded[name], None) for name, policy in _FOR_ONE_POLICY]
    questions += _MADE
    found = []
    for name, policy, request, namespace in questions:
        vector: dict[str, Any] = {"name": f"{policy}: {name}", "policy": policy, "request": request}
        if namespace is not None:
            vector["namespaceObject"] = namespace
        found.append({**vector, "outcome": outcome(policy, request, namespace)})
    policy = "limit-replicas"
    for name, replicas, parameters in _WITH_PARAMETERS:
        request = _pod({"replicas": replicas})
        vector = {"name": f"{policy}: {name}", "policy": policy, "request": request}
        if parameters:
            vector["parameters"] = orjson.loads(parameters)
        found.append({**vector, "outcome": outcome(policy, request, None, parameters)})
    return found


def diffs() -> list[dict[str, Any]]:
    """Return the content of diff.json."""
    return [
        {"name": name, "before": before, "after": after, "patch": diff(before, after)}
        for name, before, after in _DIFFS
    ]


def text(vectors: list[dict[str, Any]]) -> bytes:
    """Return the file's contents: a JSON array, a vector a line."""
    return b"[\n" + b",\n".join(map(orjson.dumps, vectors)) + b"\n]\n"


if __name__ == "__main__":
    for file, vectors in (("samples.json", samples()), ("diff.json", diffs())):
        (FOLDER / file).write_bytes(text(vectors))

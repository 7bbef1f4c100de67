"""Recordings and configurations for tests of replays."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import orjson

from gateway.config.kinds.record_settings import RecordSettings
from gateway.observe.recording import lines
from gateway.observe.recording.redaction import Marks
from tests.core.build import document
from tests.kit import call_command, pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

HEADER = lines.header(RecordSettings(folder=None), Marks(b"k" * 16), 0.0, 1)  # type: ignore[arg-type]
ALLOWED = {"allowed": True, "code": 200, "reason": "", "message": ""}
NAMESPACE = {"metadata": {"name": "default", "labels": {"team": "a"}}}


def pod(**members: Any) -> dict[str, Any]:
    """An AdmissionRequest: the creation of a Pod."""
    found = {"metadata": {"name": "web", "namespace": "default", "labels": {}}, "spec": {"a": 1}}
    return document(**{"name": "web", "userInfo": {"username": "ann"}, "object": found, **members})


def review(
    request: dict[str, Any] | None = None, *webhooks: dict[str, Any], **members: Any
) -> dict[str, Any]:
    """The line of a review at ``/validate`` that was allowed."""
    return {
        "type": "review",
        "path": "/validate",
        "phase": "validate",
        "warnings": [],
        "namespace": NAMESPACE,
        "webhooks": list(webhooks),
        "request": pod() if request is None else request,
        **ALLOWED,
        **members,
    }


def recording(path: Path, *reviews: dict[str, Any]) -> Path:
    """Write a recording of *reviews*."""
    path.write_bytes(gzip.compress(HEADER + b"".join(orjson.dumps(one) + b"\n" for one in reviews)))
    return path


def configure(folder: Path, target: str, phase: str, *scripts: dict[str, Any], **fields: Any) -> Path:
    """Write a configuration with a webhook for each of *scripts*, and return its folder."""
    folder.mkdir(exist_ok=True)
    text = pool_document("pool", target) + webhook_document(
        phase, "v", "pool", *scripts, **{"timeoutSeconds": 30, **fields}
    )
    (folder / "c.yaml").write_text(text)
    return folder


def replay(*arguments: object, status: int = 0) -> dict[str, Any]:
    """Run the command, and return the report."""
    done = call_command("replay", *arguments, "--json")
    assert done.returncode == status, done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def policy(name: str, expression: str, resources: str = "*") -> str:
    """A ValidatingAdmissionPolicy that denies what *expression* is false of, and its binding, in YAML."""
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resources]}
    documents = [
        {
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression, "message": f"{name} says no"}],
            },
        },
        {
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    return "".join(f"---\n{json.dumps({**head, **one})}\n" for one in documents)


def owner(version: str, kind: str, name: str) -> dict[str, Any]:
    """An ownerReference of a controller."""
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}


def made_of(name: str, namespace: str, image: str, user: str = "ci", **annotations: str) -> list[Any]:
    """The requests by which a Deployment, its ReplicaSet and two Pods are created."""
    controllers = "system:serviceaccount:kube-system:"
    spec = {"containers": [{"name": "a", "image": image}]}
    template, digest = {"spec": {"template": {"spec": spec}}}, "5f4d"
    by_deployment, by_set = (
        owner("apps/v1", "Deployment", name),
        owner("apps/v1", "ReplicaSet", f"{name}-{digest}"),
    )
    pods = {"generateName": f"{name}-{digest}-", "labels": {"pod-template-hash": digest}}
    rows: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
        ("apps", "Deployment", user, {"name": name}, template),
        (
            "apps",
            "ReplicaSet",
            f"{controllers}deployment-controller",
            {"name": f"{name}-{digest}", "ownerReferences": [by_deployment]},
            template,
        ),
        *[
            (
                "",
                "Pod",
                f"{controllers}replicaset-controller",
                {**pods, "ownerReferences": [by_set]},
                {"spec": spec},
            )
        ]
        * 2,
    ]
    found = []
    for number, (group, kind, by, metadata, content) in enumerate(rows):
        of = {"group": group, "version": "v1"}
        found.append(
            document(
                uid=f"{namespace}-{name}-{number}",
                kind={**of, "kind": kind},
                resource={**of, "resource": f"{kind.lower()}s"},
                namespace=namespace,
                name=metadata.get("name", ""),
                userInfo={"username": by},
                object={
                    "apiVersion": f"{group}/v1".lstrip("/"),
                    "kind": kind,
                    "metadata": {**metadata, "namespace": namespace, "annotations": annotations},
                    **content,
                },
            )
        )
    return found

"""Requests to other policy engines, and how their answers are recorded.

A case is a set of policies and one request. It says which rule of the engine it shows. The files beside
this module have the answers of the engines' own code, one a line: the name of the case, a digest of what was
asked, and the answer as ``tests/kyverno/oracle`` and ``tests/gatekeeper/oracle`` write it.
``python -m tests.e2e.record`` with the file makes it anew, which takes a Go toolchain and some minutes at
first.

Kyverno is v1.19.1.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.recorded.recording import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    Json = dict[str, Any]

FOLDER: Final = Path(__file__).parent
KINDS: Final[dict[str, tuple[str, str, str]]] = {
    "Pod": ("", "v1", "pods"),
    "Namespace": ("", "v1", "namespaces"),
    "Node": ("", "v1", "nodes"),
    "ConfigMap": ("", "v1", "configmaps"),
    "Service": ("", "v1", "services"),
    "ReplicationController": ("", "v1", "replicationcontrollers"),
    "Deployment": ("apps", "v1", "deployments"),
    "StatefulSet": ("apps", "v1", "statefulsets"),
    "DaemonSet": ("apps", "v1", "daemonsets"),
    "ReplicaSet": ("apps", "v1", "replicasets"),
    "Job": ("batch", "v1", "jobs"),
    "CronJob": ("batch", "v1", "cronjobs"),
    "ClusterRole": ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    "Widget": ("example.io", "v1", "widgets"),
}
"""Group, version and resource of the kinds in cases."""
_CLUSTER_SCOPED: Final = ("Namespace", "Node", "ClusterRole")


@dataclass(frozen=True)
class Case:
    """One request to an engine with some policies."""

    name: str
    shows: str
    """The rule of the engine that decides."""
    question: Json = field(repr=False)
    """The line for the engine's program."""

    @property
    def digest(self) -> str:
        """What a recorded answer names its question by."""
        return hashlib.sha256(text_of(self.question).encode()).hexdigest()[:12]


def recorded(file: Path) -> dict[str, tuple[str, Json]]:
    """Return digest and answer of each case in *file*."""
    return {name: (digest, answer) for name, digest, answer in json.loads(file.read_text())["answers"]}


def written(engine: str, cases: Sequence[Case], answers: Sequence[Json]) -> str:
    """Return the content of the file with the *answers* of *engine* to *cases*."""
    lines = [text_of([case.name, case.digest, answer]) for case, answer in zip(cases, answers, strict=True)]
    return f'{{"engine": {text_of(engine)}, "answers": [\n' + ",\n".join(lines) + "\n]}\n"


# -- objects and requests -------------------------------------------------------------------------


def namespace(name: str, **labels: str) -> Json:
    """Return a Namespace as it is in a cluster."""
    labels = {"kubernetes.io/metadata.name": name, **labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


NAMESPACES: Final = [namespace("default", team="red"), namespace("prod", env="prod"), namespace("test-1")]


def thing(kind: str, spec: Json | None = None, **metadata: Any) -> Json:
    """Return an object of *kind*, in the namespace ``default`` if it has one."""
    group, version, _ = KINDS[kind]
    known: Json = {"name": "x"} if kind in _CLUSTER_SCOPED else {"name": "x", "namespace": "default"}
    known = {key: value for key, value in {**known, **metadata}.items() if value is not None}
    made: Json = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind, "metadata": known}
    return made if spec is None else {**made, "spec": spec}


def pod_spec(*images: str, **more: Any) -> Json:
    """Return the spec of a Pod with a container for each of *images*."""
    containers = [
        {"name": f"c{number}", "image": image} for number, image in enumerate(images or ("nginx:1",))
    ]
    return {"containers": containers, **more}


def pod(*images: str, spec: Json | None = None, **metadata: Any) -> Json:
    """Return a Pod."""
    return thing("Pod", pod_spec(*images, **(spec or {})), **metadata)


def workload(kind: str, spec: Json | None = None, *, template: Json | None = None, **metadata: Any) -> Json:
    """Return a workload with Pods of *spec*, whose template has the metadata *template*."""
    made = {"metadata": template or {"labels": {"app": "x"}}, "spec": spec or pod_spec()}
    if kind == "CronJob":
        return thing(kind, {"schedule": "@daily", "jobTemplate": {"spec": {"template": made}}}, **metadata)
    return thing(kind, {"template": made}, **metadata)


def request(operation: str, of: Json, subresource: str = "", user: Json | None = None, **more: Any) -> Json:
    """Return an AdmissionRequest about the object *of*."""
    group, version, resource = KINDS[of["kind"]]
    kind = {"group": group, "version": version, "kind": of["kind"]}
    plural = {"group": group, "version": version, "resource": resource}
    metadata = of["metadata"]
    inside = metadata["name"] if of["kind"] == "Namespace" else metadata.get("namespace", "")
    made = {
        "uid": "u",
        "kind": kind,
        "resource": plural,
        "requestKind": kind,
        "requestResource": plural,
        **({"name": metadata["name"]} if "name" in metadata else {}),
        **({"namespace": inside} if inside else {}),
        **({"subResource": subresource, "requestSubResource": subresource} if subresource else {}),
        "operation": operation,
        "userInfo": user or {"username": "jane", "groups": ["devs", "system:authenticated"]},
        "object": of,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
    }
    return {**made, **more}


def create(of: Json, **more: Any) -> Json:
    """Return a request that creates *of*."""
    return request("CREATE", of, **more)


def update(of: Json, old: Json, **more: Any) -> Json:
    """Return a request that changes *old* to *of*."""
    return request("UPDATE", of, oldObject=old, **more)


def delete(of: Json, **more: Any) -> Json:
    """Return a request that deletes *of*."""
    return {**request("DELETE", of, **more), "object": None, "oldObject": of}


# -- policies -------------------------------------------------------------------------------------


def rule(*resources: str, **more: Any) -> Json:
    """Return a rule for *resources*, each with its group unless that is the core's."""
    groups = sorted({each.rpartition(":")[0] for each in resources})
    plain = [each.rpartition(":")[2] for each in resources]
    known = {"apiGroups": groups, "apiVersions": ["v1"], "resources": plain}
    return {**known, "operations": ["CREATE", "UPDATE", "DELETE"], **more}


PODS: Final = rule("pods")


def matching(*rules: Json, **more: Any) -> Json:
    """Return matchConstraints."""
    return {"resourceRules": list(rules or [PODS]), **more}


def check(expression: str, message: str = "", by: str = "") -> Json:
    """Return a validation with a *message*, or one made *by* an expression."""
    made = {"expression": expression}
    return made | ({"message": message} if message else {}) | ({"messageExpression": by} if by else {})


def named(**expressions: str) -> list[Json]:
    """Return variables or matchConditions."""
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def validating(*validations: Json, name: str = "p", inside: str = "", **spec: Any) -> Json:
    """Return a ValidatingPolicy, or a namespaced one if it is *inside* a namespace."""
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": f"{'Namespaced' if inside else ''}ValidatingPolicy",
        "metadata": {"name": name, **({"namespace": inside} if inside else {})},
        "spec": {"matchConstraints": matching(), **spec, "validations": list(validations)},
    }


def mutating(*mutations: str, name: str = "p", inside: str = "", **spec: Any) -> Json:
    """Return a MutatingPolicy; a mutation that begins with ``[`` is a JSON Patch."""
    made = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
        if each.startswith("[")
        else {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}}
        for each in mutations
    ]
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": f"{'Namespaced' if inside else ''}MutatingPolicy",
        "metadata": {"name": name, **({"namespace": inside} if inside else {})},
        "spec": {"matchConstraints": matching(), **spec, "mutations": made},
    }


def exception(
    *conditions: str, of: str = "p", kind: str = "ValidatingPolicy", name: str = "e", **spec: Any
) -> Json:
    """Return a PolicyException of the policy *of*."""
    known: Json = {"policyRefs": [{"name": of, "kind": kind}]}
    if conditions:
        known["matchConditions"] = [
            {"name": f"c{number}", "expression": each} for number, each in enumerate(conditions)
        ]
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": name, "namespace": "exceptions"},
        "spec": {**known, **spec},
    }

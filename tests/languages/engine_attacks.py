"""Honest and hostile policies of other engines, with the reviews that they match.

Objects are ConfigMaps. A hostile policy matches those of the namespace with its own name, and honest ones
those of ``shop``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tests.gatekeeper.documents import constraint, expansion, mutator, rego_template
from tests.languages.kit import SOME_PORT
from tests.languages.toolchains import named

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Json = dict[str, Any]

_FAILED: Final = re.compile('failed calling webhook "([^"]*)"')
SHOP: Final = "shop"
MEMORY_LIMIT: Final = 256 << 20
"""``GOMEMLIMIT`` of workers in Go."""


def review(namespace: str, data: Json | None = None, kind: str = "ConfigMap", **spec: Any) -> bytes:
    """Return the review of the creation of an object."""
    group, plural = {
        "ConfigMap": ("", "configmaps"),
        "Pod": ("", "pods"),
        "Deployment": ("apps", "deployments"),
    }[kind]
    metadata = {"name": "x", "namespace": namespace}
    content = {"data": data} if data is not None else {"spec": spec}
    version = f"{group}/v1" if group else "v1"
    found = {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
    of_kind = {"group": group, "version": "v1", "kind": kind}
    of_resource = {"group": group, "version": "v1", "resource": plural}
    request = {
        "uid": "1",
        "kind": of_kind,
        "requestKind": of_kind,
        "resource": of_resource,
        "requestResource": of_resource,
        "name": "x",
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "u"},
        "object": found,
        "oldObject": None,
        "dryRun": False,
        "options": None,
    }
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(document).encode()


@dataclass(frozen=True)
class Question:
    """A review of honest policies, and what the answer has."""

    path: str
    body: bytes
    is_allowed: bool
    text: str = ""
    """The message of the denial."""
    has_patch: bool = False

    def problem(self, response: Json) -> str:
        """Return what is wrong with *response*; empty if nothing is."""
        is_right = (
            response["allowed"] is self.is_allowed
            and ("patch" in response) is self.has_patch
            and response.get("status", {}).get("message", "") == self.text
            and not failed_open(response)
        )
        return "" if is_right else f"{self.path}: {json.dumps(response)[:500]}"


def failed_open(response: Json) -> list[str]:
    """Return the entries that failed open in *response*."""
    annotations = response.get("auditAnnotations", {})
    return [value for key, value in annotations.items() if "failed-open." in key]


@dataclass(frozen=True)
class Attack:
    """A review that a hostile policy matches."""

    name: str
    """Of the entry."""
    body: bytes
    outcome: Literal["fails", "denies", "either", "any"] = "fails"
    """``fails``: its failurePolicy decides. ``any``: it may also be allowed."""
    text: str = ""
    """Is in the message of a failure or denial."""
    timeout_s: int = 2
    path: str = "/validate"

    def problems(self, policy: str, responses: Sequence[Json]) -> list[str]:
        """Return what is wrong with *responses* of a gateway whose failurePolicy is *policy*."""
        return [
            f"{policy}: {self.name}: {json.dumps(each)[:500]}"
            for each in responses
            if not self._is_right(policy, each)
        ]

    def _is_right(self, policy: str, response: Json) -> bool:
        message = response.get("status", {}).get("message", "")
        failed = failed_open(response) + _FAILED.findall(message)
        if failed:
            is_by_policy = response["allowed"] is (policy == "Ignore")
            is_told = response["allowed"] or self.text in message
            return is_by_policy and is_told and failed == [self.name] and self.outcome != "denies"
        if response["allowed"]:
            return self.outcome == "any"
        return self.outcome != "fails" and self.name in message


@dataclass(frozen=True)
class Engine:
    """The worker of an engine, and the documents for it."""

    name: str
    honest: Sequence[Json]
    hostile: Sequence[Json]
    attacks: Sequence[Attack]
    questions: Sequence[Question]
    memory_bytes: int
    """The most memory that the worker may have."""
    files: Sequence[tuple[str, str]] = ()
    """Name and content of further files."""

    def command(self, documents: Path) -> list[str]:
        """Return the command of the worker, which reads *documents*."""
        program = named(self.name).run
        return [
            "env",
            f"GOMEMLIMIT={MEMORY_LIMIT}",
            *program,
            "--policies",
            str(documents),
            "--listen",
            SOME_PORT,
        ]

    def write(self, folder: Path, *, hostile: bool) -> None:
        """Write the documents into *folder*, with the hostile ones or without."""
        for name, content in self.files:
            (folder / name).write_text(content)
        (folder / "honest.json").write_text(stream(self.honest))
        (folder / "hostile.json").write_text(stream(self.hostile if hostile else ()))


def stream(documents: Sequence[Json]) -> str:
    """Return *documents* as JSON, which is YAML."""
    return "\n---\n".join(map(json.dumps, documents))


def rego(kind: str, *rules: str, name: str = "", namespace: str = "", **spec: Any) -> list[Json]:
    """A template in Rego with its constraint for ConfigMaps of one namespace."""
    source = "\n".join((f"package {kind.lower()}", *rules))
    match = {
        "kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}],
        "namespaces": [namespace or name or kind.lower()],
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made = rego_template(kind, rego=source)
    made["spec"]["crd"]["spec"]["validation"] = {"openAPIV3Schema": schema}
    return [made, constraint(kind, name or kind.lower(), **{"match": match, **spec})]


def bombs(levels: int) -> list[Json]:
    """ExpansionTemplates of which each level makes two objects of each one of the level before."""
    kinds = ["Deployment", *(f"Level{each}" for each in range(1, levels + 1))]
    made = []
    for level in range(levels):
        for twin in "ab":
            one = expansion("Pod", kinds[level], name=f"bomb{level}{twin}")
            one["spec"]["generatedGVK"] = {"group": "batch", "version": "v1", "kind": kinds[level + 1]}
            one["spec"]["templateSource"] = "spec"
            made.append(one)
    return made


def nested(depth: int, key: str = "a") -> Json:
    """An object of this depth."""
    found: Json = {}
    for _ in range(depth):
        found = {key: found}
    return found


LONG: Final = 'long := sprintf("%1000000d", [1])'
GATEKEEPER: Final = Engine(
    "gatekeeper",
    honest=[
        *rego(
            "NeedsOwner",
            'violation[{"msg": msg}] { not input.review.object.data.owner; msg := "no owner" }',
            namespace=SHOP,
        ),
        *rego(
            "NoRoot",
            'violation[{"msg": sprintf("user %v", [user])}] { user := input.review.object.data.user; '
            're_match("^ro+t$", user) }',
            namespace=SHOP,
        ),
        mutator(
            "stamp",
            "AssignMetadata",
            match={"kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}], "namespaces": [SHOP]},
            location="metadata.labels.stamp",
            parameters={"assign": {"value": "here"}},
        ),
    ],
    hostile=[
        *rego(
            "Loops",
            'violation[{"msg": "done"}] { n := numbers.range(1, 10000); count([1 | n[_]; n[_]; n[_]]) == 0 }',
        ),
        *rego(
            "Patterns",
            'violation[{"msg": "done"}] { text := input.review.object.data.text; '
            'regex.match("^(([a-z]?){900}[a-z])*0$", text) }',
        ),
        *rego(
            "Grows",
            'violation[{"msg": "done"}] { n := numbers.range(1, 10000); '
            'count([sprintf("%d %d", [x, y]) | x := n[_]; y := n[_]]) == 0 }',
        ),
        *rego(
            "Doubles",
            'violation[{"msg": "done"}] { count([concat("", [long, sprintf("%d", [x])]) | '
            "x := numbers.range(1, 10000)[_]]) == 0 }",
            LONG,
        ),
        *rego(
            "Formats",
            'violation[{"msg": "done"}] { format := replace(sprintf("%1000d", [1]), " ", "%[1]s"); '
            'sprintf(format, [long]) == "" }',
            LONG,
        ),
        *rego("Shifts", 'violation[{"msg": "done"}] { bits.lsh(1, 100000000000000) == 0 }'),
        *rego("Floods", 'violation[{"msg": sprintf("%d", [x])}] { x := numbers.range(1, 1000000)[_] }'),
        *rego("Long", 'violation[{"msg": concat("", [long | numbers.range(1, 20)[_]])}] { true }', LONG),
        *rego(
            "Deep",
            'violation[{"msg": "found"}] { walk(input.parameters, [_, "x"]) }',
            parameters=nested(90),
        ),
        *(
            mutator(
                f"flood{each:02}",
                match={"namespaces": ["mutates"]},
                location=f"spec.containers[name: *].env[name: e{each}].value",
                parameters={"assign": {"value": "x"}},
            )
            for each in range(20)
        ),
        *bombs(25),
        constraint("Loops", "expands", match={"kinds": [{"apiGroups": ["batch"], "kinds": ["Level25"]}]}),
    ],
    attacks=[
        Attack("loops", review("loops", {})),
        # It may end in time.
        Attack("patterns", review("patterns", {"text": "a" * 50_000}), "any"),
        Attack("grows", review("grows", {})),
        Attack("doubles", review("doubles", {})),
        Attack("formats", review("formats", {})),
        Attack("shifts", review("shifts", {})),
        Attack("floods", review("floods", {}), "either"),
        Attack("long", review("long", {}), "either"),
        Attack("deep", review("deep", {}), "any"),
        Attack(
            "mutation.gatekeeper.sh",
            review("mutates", kind="Pod", containers=[{"name": f"c{each}"} for each in range(5000)]),
            "any",
            path="/mutate",
        ),
        Attack("expands", review("expands", kind="Deployment", **nested(25, "spec")["spec"])),
    ],
    questions=[
        Question("/validate", review(SHOP, {"owner": "me"}), is_allowed=True),
        Question(
            "/validate",
            review(SHOP, {"owner": "me", "user": "root"}),
            is_allowed=False,
            text="[noroot] user root",
        ),
        Question("/mutate", review(SHOP, {"owner": "me"}), is_allowed=True, has_patch=True),
    ],
    memory_bytes=MEMORY_LIMIT * 3 // 2,
)


def module(body: str, verdict: str = '{"accepted":true}', pages: int = 4) -> str:
    """A guest of waPC in WebAssembly's text format, whose ``validate`` does *body* and answers *verdict*."""
    quoted = "".join(f"\\{byte:02x}" for byte in verdict.encode())
    return f"""(module
      (import "wapc" "__guest_request" (func $request (param i32 i32)))
      (import "wapc" "__guest_response" (func $response (param i32 i32)))
      (import "wapc" "__console_log" (func $log (param i32 i32)))
      (memory (export "memory") {pages})
      (data (i32.const 0) "\\"v1\\"")
      (data (i32.const 16) "{{\\"valid\\":true}}")
      (data (i32.const 1024) "{quoted}")
      (func (export "__guest_call") (param $operation i32) (param $length i32) (result i32)
        (if (i32.eq (local.get $operation) (i32.const 16))
          (then (call $response (i32.const 0) (i32.const 4)) (return (i32.const 1))))
        (if (i32.eq (local.get $operation) (i32.const 17))
          (then (call $response (i32.const 16) (i32.const 14)) (return (i32.const 1))))
        {body}
        (call $response (i32.const 1024) (i32.const {len(verdict)}))
        (i32.const 1)))"""


def with_module(name: str, namespace: str) -> Json:
    """The policy of the module *name* for the objects of *namespace*."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}
    condition = {"name": "namespace", "expression": f"request.namespace == '{namespace}'"}
    return {
        "apiVersion": "policies.kubewarden.io/v1",
        "kind": "ClusterAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "module": f"file:{name}.wat",
            "mutating": False,
            "rules": [rule],
            "matchConditions": [condition],
            "timeoutEvalSeconds": 1,
            "settings": {},
        },
    }


MODULES: Final = {
    "accepts": module(""),
    "rejects": module("", '{"accepted":false,"message":"not here"}'),
    "loops": module("(loop $again (br $again))"),
    "logs": module("(loop $again (call $log (i32.const 0) (i32.const 65536)) (br $again))"),
    "grows": module(
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable"
    ),
    "floods": module("(call $response (i32.const 0) (i32.const 18000000))", pages=300),
}
NOT_HERE: Final = "market"
KUBEWARDEN: Final = Engine(
    "kubewarden",
    honest=[with_module("accepts", SHOP), with_module("rejects", NOT_HERE)],
    hostile=[with_module(name, name) for name in ("loops", "logs", "grows", "floods")],
    attacks=[Attack(name, review(name, {}), "either") for name in ("loops", "logs", "grows", "floods")],
    questions=[
        Question("/validate", review(SHOP, {}), is_allowed=True),
        Question("/validate", review(NOT_HERE, {}), is_allowed=False, text="rejects: not here"),
    ],
    memory_bytes=400 << 20,
    files=[(f"{name}.wat", text) for name, text in MODULES.items()],
)
"""Its worker makes a denial of what breaks, as Kubewarden does, and a failure of what waits for too long."""

ENGINES: Final = (GATEKEEPER, KUBEWARDEN)

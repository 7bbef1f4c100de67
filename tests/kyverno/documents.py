"""Documents of Kyverno in tests."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

ANYTHING: Final = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
PODS: Final = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
}


def kyverno(kind: str, name: str, spec: Json, *, namespace: str = "", **annotations: str) -> Json:
    """A document of ``policies.kyverno.io``."""
    metadata: Json = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if annotations:
        metadata["annotations"] = {key.replace("_", "/"): value for key, value in annotations.items()}
    return {"apiVersion": "policies.kyverno.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def validating(*validations: str | Json, name: str = "p", namespace: str = "", **spec: Any) -> Json:
    """A policy for everything; a text among its validations is an expression."""
    listed = [{"expression": each} if isinstance(each, str) else each for each in validations]
    spec = {"matchConstraints": {"resourceRules": [ANYTHING]}, "validations": listed, **spec}
    kind = "NamespacedValidatingPolicy" if namespace else "ValidatingPolicy"
    return kyverno(kind, name, spec, namespace=namespace)


def mutating(*mutations: str, name: str = "p", namespace: str = "", **spec: Any) -> Json:
    """A policy for everything; a mutation that begins with a bracket is a JSON Patch."""
    listed = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
        if each.startswith("[")
        else {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}}
        for each in mutations
    ]
    spec = {"matchConstraints": {"resourceRules": [ANYTHING]}, "mutations": listed, **spec}
    kind = "NamespacedMutatingPolicy" if namespace else "MutatingPolicy"
    return kyverno(kind, name, spec, namespace=namespace)


def exception(name: str = "e", *, of: str = "p", kind: str = "ValidatingPolicy", **spec: Any) -> Json:
    """A PolicyException of one policy."""
    spec = {"policyRefs": [{"name": of, "kind": kind}], **spec}
    return kyverno("PolicyException", name, spec, namespace="exceptions")


def condition(expression: str) -> list[Json]:
    """A list of one condition."""
    return [{"name": "c", "expression": expression}]

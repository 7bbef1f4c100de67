"""Documents of Gatekeeper, made for tests."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def template(kind: str = "NeedsLabels", *validations: Any, version: str = "v1", **more: Any) -> Json:
    """A template in CEL: a text among *validations* is an expression.

    *more* are members of the source; ``schema``, ``legacy`` and ``operations`` are those of the template.
    """
    listed = [{"expression": each} if isinstance(each, str) else each for each in validations]
    crd: Json = {"names": {"kind": kind}}
    validation: Json = {}
    if (schema := more.pop("schema", None)) is not None:
        validation["openAPIV3Schema"] = schema
    if (legacy := more.pop("legacy", None)) is not None:
        validation["legacySchema"] = legacy
    if validation:
        crd["validation"] = validation
    operations = more.pop("operations", None)
    target: Json = {
        "target": "admission.k8s.gatekeeper.sh",
        "code": [{"engine": "K8sNativeValidation", "source": {"validations": listed, **more}}],
    }
    if operations is not None:
        target["operations"] = operations
    return {
        "apiVersion": f"templates.gatekeeper.sh/{version}",
        "kind": "ConstraintTemplate",
        "metadata": {"name": kind.lower()},
        "spec": {"crd": {"spec": crd}, "targets": [target]},
    }


def rego_template(kind: str = "NeedsLabels", **more: Any) -> Json:
    """A template in Rego, which the gateway does not read. *more* are members of its target."""
    made = template(kind)
    target = {"target": "admission.k8s.gatekeeper.sh", "rego": "package x", **more}
    made["spec"]["targets"] = [target]
    return made


def mutator(name: str = "m", kind: str = "Assign", **spec: Any) -> Json:
    if kind != "AssignMetadata":
        spec.setdefault("applyTo", [{"groups": [""], "versions": ["v1"], "kinds": ["Pod"]}])
    return {
        "apiVersion": "mutations.gatekeeper.sh/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def expansion(generated: str, *of: str, name: str = "e") -> Json:
    """An ExpansionTemplate of the kinds *of*, of apps and batch, which generate *generated*."""
    return {
        "apiVersion": "expansion.gatekeeper.sh/v1beta1",
        "kind": "ExpansionTemplate",
        "metadata": {"name": name},
        "spec": {
            "applyTo": [{"groups": ["apps", "batch"], "versions": ["v1"], "kinds": list(of)}],
            "templateSource": "spec.template",
            "generatedGVK": {
                "group": "" if generated == "Pod" else "batch",
                "version": "v1",
                "kind": generated,
            },
        },
    }


def constraint(kind: str = "NeedsLabels", name: str = "c", mode: str = "", **spec: Any) -> Json:
    metadata: Json = {"name": name}
    if mode:
        metadata["annotations"] = {"admission-gateway.io/mode": mode}
    return {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def excluding(*names: str, processes: tuple[str, ...] = ("*",), **spec: Any) -> Json:
    """A Config that excludes namespaces."""
    match = [{"excludedNamespaces": list(names), "processes": list(processes)}]
    return {
        "apiVersion": "config.gatekeeper.sh/v1alpha1",
        "kind": "Config",
        "metadata": {"name": "config", "namespace": "gatekeeper-system"},
        "spec": {"match": match, **spec},
    }


def scoped(*actions: tuple[str, str]) -> Json:
    """The members of a constraint's spec for *actions*, each with its enforcement point."""
    listed = [{"action": action, "enforcementPoints": [{"name": point}]} for action, point in actions]
    return {"enforcementAction": "scoped", "scopedEnforcementActions": listed}

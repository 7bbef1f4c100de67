"""The policies for Gatekeeper: constraint templates in CEL and in Rego, their constraints, and mutations."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from loadtest.peers.labels import APPLIED, LABELS, LABELS_SET
from loadtest.policies import MUTATING, REQUESTS, SETS, TOLERATION
from loadtest.policies.cel import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

Engine = Literal["cel", "rego"]
Document = dict[str, Any]

_PODS: Final = [{"apiGroups": [""], "kinds": ["Pod"]}]
_CEL: Final[Mapping[str, str]] = {
    "label": "has(object.metadata.labels) && variables.params.label in object.metadata.labels",
    "privileged": EXPRESSIONS["deny-privileged"],
    "latest": EXPRESSIONS["deny-latest"],
    "limits": EXPRESSIONS["require-limits"],
}
_REGO: Final[Mapping[str, str]] = {
    "label": """\
violation[{"msg": msg}] {
    not input.review.object.metadata.labels[input.parameters.label]
    msg := sprintf("label %v is required", [input.parameters.label])
}
""",
    "privileged": """\
violation[{"msg": msg}] {
    container := input.review.object.spec.containers[_]
    container.securityContext.privileged
    msg := sprintf("container %v is privileged", [container.name])
}
""",
    "latest": """\
violation[{"msg": msg}] {
    container := input.review.object.spec.containers[_]
    endswith(container.image, ":latest")
    msg := sprintf("container %v has the tag latest", [container.name])
}
""",
    "limits": """\
violation[{"msg": msg}] {
    container := input.review.object.spec.containers[_]
    not is_limited(container)
    msg := sprintf("container %v has no limits", [container.name])
}

is_limited(container) {
    container.resources.limits.cpu
    container.resources.limits.memory
}
""",
}
"""By kind of policy."""


def templates() -> list[Document]:
    """Return a constraint template for each kind of policy and engine."""
    return [_template(kind, "cel", _validation(kind, expression)) for kind, expression in _CEL.items()] + [
        _template(kind, "rego", {"rego": f"package {kind}rego\n\n{text}"}) for kind, text in _REGO.items()
    ]


def definitions() -> list[str]:
    """Return the names of the CustomResourceDefinitions that Gatekeeper makes of the templates."""
    return [f"{kind}{engine}.constraints.gatekeeper.sh" for engine in ("cel", "rego") for kind in _CEL]


def documents(name: str, engine: Engine) -> list[Document]:
    """Return the constraints, or the mutations, of the set *name*."""
    if name == LABELS_SET:
        return [
            _mutation(label, f"metadata.labels.{label}", APPLIED, kind="AssignMetadata") for label in LABELS
        ]
    return _mutations() if name == MUTATING else [_constraint(policy, engine) for policy in SETS[name]]


def _template(kind: str, engine: Engine, rules: Mapping[str, Any]) -> Document:
    schema = {"type": "object", "properties": {"label": {"type": "string"}}}
    return {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": f"{kind}{engine}"},
        "spec": {
            "crd": {
                "spec": {
                    "names": {"kind": f"{kind.title()}{engine.title()}"},
                    "validation": {"openAPIV3Schema": schema},
                }
            },
            "targets": [{"target": "admission.k8s.gatekeeper.sh", **rules}],
        },
    }


def _validation(kind: str, expression: str) -> Document:
    source = {"validations": [{"expression": expression, "message": f"violates {kind}"}]}
    return {"code": [{"engine": "K8sNativeValidation", "source": source}]}


def _constraint(policy: str, engine: Engine) -> Document:
    last = policy.partition("-")[2]
    kind = last if last in _CEL else "label"
    return {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": f"{kind.title()}{engine.title()}",
        "metadata": {"name": policy},
        "spec": {"match": {"kinds": _PODS}, "parameters": {"label": last} if kind == "label" else {}},
    }


def _mutations() -> list[Document]:
    requests = "spec.containers[name: *].resources.requests"
    missing = {"pathTests": [{"subPath": requests, "condition": "MustNotExist"}]}
    return [
        _mutation("always-pull", "spec.containers[name: *].imagePullPolicy", "Always"),
        _mutation("add-label", "metadata.labels.managed", "true", kind="AssignMetadata"),
        _mutation("add-toleration", "spec.tolerations[key: dedicated]", dict(TOLERATION)),
        _mutation("default-requests", requests, dict(REQUESTS), missing),
    ]


def _mutation(
    name: str,
    location: str,
    value: object,
    tests: Mapping[str, object] = MappingProxyType({}),
    kind: str = "Assign",
) -> Document:
    to_pods = (
        {}
        if kind == "AssignMetadata"
        else {"applyTo": [{"groups": [""], "versions": ["v1"], "kinds": ["Pod"]}]}
    )
    return {
        "apiVersion": "mutations.gatekeeper.sh/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            **to_pods,
            "match": {"scope": "Namespaced", "kinds": _PODS},
            "location": location,
            "parameters": {"assign": {"value": value}, **tests},
        },
    }

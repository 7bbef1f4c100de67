"""Makes ``chart/files/crds.yaml``: the CustomResourceDefinitions of the gateway's kinds.

    python -m deploy.crds > deploy/chart/files/crds.yaml

The schema refuses as much as it can express at ``kubectl apply``; docs/install.md lists the errors that only
the gateway and ``admission-gateway check`` find. Every list and text has a bound: without it the API server
cannot estimate the cost of a validation rule, and refuses the rule.

Source: kubernetes.io "Extend the Kubernetes API with CustomResourceDefinitions" (structural schemas,
validation rules and their cost); k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.config.kinds import webhook_configuration
from gateway.config.kinds.mutating_policy import MutatingBindingSpec, MutatingPolicySpec
from gateway.config.kinds.names import SUBDOMAIN_LENGTH
from gateway.config.kinds.policy_exception import NAMESPACED, ClusterExceptionSpec, ExceptionSpec
from gateway.config.kinds.validating_policy import ValidatingBindingSpec, ValidatingPolicySpec
from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.custom_resource import PLURALS
from gateway.config.yaml.documents import GATEWAY_VERSION, PHASES, POLICY
from gateway.pure.admission_policies.expression_warnings import MAX_WARNING_CHARS, MAX_WARNINGS
from gateway.server.rollout.store import EVIDENCE, MAX_TEXT, STATE
from gateway.server.rollout.store import PLURALS as PLAN_PLURALS
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from gateway.config.kinds.declare import Declared

Schema = dict[str, Any]

GROUP, _, VERSION = GATEWAY_VERSION.partition("/")


class _Kind(NamedTuple):
    """What a definition has beside the declarations."""

    short_name: str
    about: str
    spec: type[Declared] | None = None
    """None: it has webhooks instead."""
    about_spec: str = ""
    columns: tuple[str, ...] = ()
    """Fields of the spec that kubectl prints."""


_AS_IN_KUBERNETES: Final = "field for field as in admissionregistration.k8s.io/v1."
_WEBHOOKS: Final = f"Webhooks behind the admission gateway, {_AS_IN_KUBERNETES}"
_POLICY: Final = (
    f"A policy of expressions behind the admission gateway, {_AS_IN_KUBERNETES}",
    "Expressions about requests. Bindings put the policy in force.",
)
_BINDING: Final = (
    f"Puts a policy of the admission gateway in force, {_AS_IN_KUBERNETES}",
    "Puts a policy of the cluster in force.",
)
_EXCEPTION: Final = "Webhooks of the admission gateway that are not called for some requests in"
_EXCEPTION_SPEC: Final = "Webhooks that are not called for some requests until a certain time."
_KINDS: Final = {
    "WorkerPool": _Kind(
        "agpool",
        "A set of interchangeable gRPC workers of the admission gateway.",
        WorkerPool,
        "Interchangeable workers that serve policies.",
        ("target",),
    ),
    "MutatingWebhookConfiguration": _Kind("agmutating", _WEBHOOKS),
    "ValidatingWebhookConfiguration": _Kind("agvalidating", _WEBHOOKS),
    "ValidatingAdmissionPolicy": _Kind("agvap", _POLICY[0], ValidatingPolicySpec, _POLICY[1]),
    "ValidatingAdmissionPolicyBinding": _Kind(
        "agvapbinding", _BINDING[0], ValidatingBindingSpec, _BINDING[1], ("policyName",)
    ),
    "MutatingAdmissionPolicy": _Kind("agmap", _POLICY[0], MutatingPolicySpec, _POLICY[1]),
    "MutatingAdmissionPolicyBinding": _Kind(
        "agmapbinding", _BINDING[0], MutatingBindingSpec, _BINDING[1], ("policyName",)
    ),
    "PolicyException": _Kind(
        "agexception",
        f"{_EXCEPTION} its namespace.",
        ExceptionSpec,
        _EXCEPTION_SPEC,
        ("expires", "owner"),
    ),
    "ClusterPolicyException": _Kind(
        "agclusterexception",
        f"{_EXCEPTION} the cluster.",
        ClusterExceptionSpec,
        _EXCEPTION_SPEC,
        ("expires", "owner"),
    ),
}
_OF_PLANS: Final = {
    STATE: (
        "agstate",
        "The state of a rollout plan of the admission gateway. To change it use `admission-gateway rollout`.",
        {
            "webhook": ("Webhook", "The webhook of the plan."),
            "stage": ("Stage", "The stage in force."),
            "phase": ("Phase", "Whether the plan progresses."),
            "reason": ("Reason", "Why it is in this stage and phase."),
            "next": ("Next", "What it waited for when this was written."),
        },
    ),
    EVIDENCE: (
        "agevidence",
        "What one process of the admission gateway has seen of webhooks with a rollout plan.",
        {"process": ("Process", "The process that writes it.")},
    ),
}
"""Short name, description, and the fields that kubectl prints, each with its title and meaning."""
_TITLES: Final = {"policyName": "Policy"}
"""Titles of columns that are not the name of the field."""
_RESERVED: Final = {
    "rule": "!self.metadata.name.endsWith('.static.k8s.io')",
    "message": "names in .static.k8s.io are reserved",
}

_HEADER: Final = """\
# The gateway's kinds as custom resources, for `kubernetes: {customResources: true}`. Made by
# deploy/crds.py: change that file. docs/install.md says how to use this one.
"""


def text(description: str, **more: object) -> Schema:
    """Return the schema of a text."""
    return {"description": description, "type": "string", **({"maxLength": SUBDOMAIN_LENGTH} | more)}


def listed(description: str, items: Schema, most: int, **more: object) -> Schema:
    """Return the schema of a list of at most *most* items."""
    return {"description": description, "type": "array", "maxItems": most, "items": items, **more}


def mapping(description: str, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Return the schema of a mapping with these fields."""
    schema: Schema = {"description": description, "type": "object"}
    if required:
        schema["required"] = list(required)
    return {**schema, "properties": properties}


def status(kind: str) -> Schema:
    """Return the schema of the status of *kind*."""
    condition = mapping(
        "metav1.Condition.",
        ("type", "status", "reason", "message", "lastTransitionTime"),
        type=text("Ready.", maxLength=316),
        status={
            "description": "True, False or Unknown.",
            "type": "string",
            "enum": ["True", "False", "Unknown"],
        },
        reason=text("Reason in one word, for programs.", maxLength=1024),
        message=text("Problems, with the path of each field.", maxLength=32768),
        observedGeneration={
            "description": "Generation that the condition is about.",
            "type": "integer",
            "format": "int64",
        },
        lastTransitionTime={
            "description": "Time of the last change.",
            "type": "string",
            "format": "date-time",
        },
    )
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return mapping(
        "Written by the gateway.",
        conditions=listed("Whether the object is in force, and why not.", condition, 8, **keys),
        **(_type_checking() if kind == POLICY else {}),
    )


def _type_checking() -> Schema:
    warning = mapping(
        "An expression that cannot succeed.",
        ("fieldRef", "warning"),
        fieldRef=text("The path of the expression.", maxLength=1024),
        warning=text("Kind and error, for each kind.", maxLength=MAX_WARNING_CHARS),
    )
    return {
        "observedGeneration": {
            "description": "Generation whose expressions were checked.",
            "type": "integer",
            "format": "int64",
        },
        "typeChecking": mapping(
            "The result of type checking the expressions.",
            expressionWarnings=listed("Expressions that cannot succeed.", warning, MAX_WARNINGS),
        ),
    }


def definition(kind: str) -> Schema:
    """Return the CustomResourceDefinition of *kind*."""
    plural, about = PLURALS[kind], _KINDS[kind]
    root: Schema = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    more: Schema = {}
    if about.spec is None:
        root["webhooks"] = webhook_configuration.schema(PHASES[kind])
        more["x-kubernetes-validations"] = [_RESERVED]
    else:
        root["spec"] = {"description": about.about_spec, **about.spec.schema(is_custom=True)}
        more["required"] = ["spec"]
    root["status"] = status(kind)
    ready = '.status.conditions[?(@.type=="Ready")]'
    columns = [
        *(
            {"name": _TITLES.get(name, name.capitalize()), "type": "string", "jsonPath": f".spec.{name}"}
            for name in about.columns
        ),
        {"name": "Ready", "type": "string", "jsonPath": f"{ready}.status"},
        {"name": "Reason", "type": "string", "jsonPath": f"{ready}.reason"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    schema: Schema = {"description": about.about, "type": "object", "properties": root, **more}
    scope = "Namespaced" if kind == NAMESPACED else "Cluster"
    served = {"subresources": {"status": {}}, "additionalPrinterColumns": columns}
    return _definition(kind, plural, scope, about.short_name, {**served, "schema": schema})


def plan_definition(kind: str) -> Schema:
    """Return the CustomResourceDefinition of *kind*, an object that the gateway writes for rollout plans.

    It has no subresource: nobody else writes it, and it is replaced as a whole.
    """
    short_name, about, columns = _OF_PLANS[kind]
    texts = {name: text(words, maxLength=MAX_TEXT) for name, (_, words) in columns.items()}
    content: Schema = {
        **mapping("Written by the gateway."),
        "properties": texts,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    schema = mapping(
        about,
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata={"type": "object"},
        status=content,
    )
    printed = [
        *(
            {"name": title, "type": "string", "jsonPath": f".status.{name}"}
            for name, (title, _) in columns.items()
        ),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    served = {"additionalPrinterColumns": printed, "schema": schema}
    return _definition(kind, PLAN_PLURALS[kind], "Namespaced", short_name, served)


def _definition(kind: str, plural: str, scope: str, short_name: str, served: Schema) -> Schema:
    schema = served.pop("schema")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "admission-gateway"}},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": ["admission-gateway"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    **served,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crds() -> str:
    """Return the content of ``crds.yaml``."""
    definitions = [*map(definition, PLURALS), *map(plan_definition, PLAN_PLURALS)]
    return _HEADER + "---\n".join(map(to_yaml, definitions))


if __name__ == "__main__":
    sys.stdout.write(crds())

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
from typing import TYPE_CHECKING, Any, Final

from gateway.config.kinds.client_config import ClientConfig
from gateway.config.kinds.declare import Groups
from gateway.config.kinds.matching import (
    CONDITIONS,
    FAILURE_POLICIES,
    MATCH_POLICIES,
    MAX_RULES,
    RuleEntry,
)
from gateway.config.kinds.metadata import LabelSelector
from gateway.config.kinds.mutating_policy import MutatingBindingSpec, MutatingPolicySpec
from gateway.config.kinds.names import LABEL, LABEL_LENGTH, SUBDOMAIN_LENGTH
from gateway.config.kinds.policy_exception import (
    CLUSTER_WIDE,
    NAMESPACED,
    ClusterExceptionSpec,
    ExceptionSpec,
)
from gateway.config.kinds.rollout import MODES
from gateway.config.kinds.validating_policy import ValidatingBindingSpec, ValidatingPolicySpec
from gateway.config.kinds.webhook_configuration import (
    DEFAULT_ENTRIES,
    LONGEST_TIMEOUT_S,
    LONGEST_TTL_S,
    MOST_ENTRIES,
    REINVOCATION_POLICIES,
    REVIEW_VERSIONS,
    V1,
)
from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.custom_resource import PLURALS
from gateway.config.yaml.documents import GATEWAY_VERSION, POLICY, POLICY_KINDS
from gateway.pure.admission_policies.expression_warnings import MAX_WARNING_CHARS, MAX_WARNINGS
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from gateway.config.kinds.declare import Declared

Schema = dict[str, Any]

GROUP, _, VERSION = GATEWAY_VERSION.partition("/")
SHORT_NAMES: Final = {
    "WorkerPool": "agpool",
    "MutatingWebhookConfiguration": "agmutating",
    "ValidatingWebhookConfiguration": "agvalidating",
    "ValidatingAdmissionPolicy": "agvap",
    "ValidatingAdmissionPolicyBinding": "agvapbinding",
    "MutatingAdmissionPolicy": "agmap",
    "MutatingAdmissionPolicyBinding": "agmapbinding",
    NAMESPACED: "agexception",
    CLUSTER_WIDE: "agclusterexception",
}
MAX_WEBHOOKS: Final = 100

_SPECS: Final[dict[str, type[Declared]]] = {
    "ValidatingAdmissionPolicy": ValidatingPolicySpec,
    "ValidatingAdmissionPolicyBinding": ValidatingBindingSpec,
    "MutatingAdmissionPolicy": MutatingPolicySpec,
    "MutatingAdmissionPolicyBinding": MutatingBindingSpec,
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


def rule(expression: str, message: str) -> dict[str, str]:
    """Return a validation rule, CEL that has to be true."""
    return {"rule": expression, "message": message}


def with_rules(schema: Schema, *rules: dict[str, str]) -> Schema:
    """Return *schema* with *rules*."""
    return {**schema, "x-kubernetes-validations": list(rules)}


def selector(description: str) -> Schema:
    """Return the schema of a LabelSelector."""
    return {"description": description, **LabelSelector().schema()}


def client_config() -> Schema:
    """Return the schema of a webhook's clientConfig."""
    about = "The backend of the webhook: exactly one of worker, url and service."
    return {"description": about, **ClientConfig.schema(is_custom=True)}


def cache() -> Schema:
    """Return the schema of a webhook's cache."""
    return mapping(
        "Verdicts that hold for other requests.",
        ("ttlSeconds", "key"),
        ttlSeconds=_integer("How long a verdict holds, in seconds.", LONGEST_TTL_S),
        key=text(
            "CEL expression: the part of the request that a verdict depends on.", minLength=1, maxLength=16384
        ),
        maxEntries={
            **_integer("Verdicts; above it the least recently used one goes.", MOST_ENTRIES),
            "default": DEFAULT_ENTRIES,
        },
    )


def _integer(description: str, most: int) -> Schema:
    return {"description": description, "type": "integer", "minimum": 1, "maximum": most}


def rollout() -> Schema:
    """Return the schema of a webhook's rollout."""
    enforce = mapping(
        "Where the webhook is enforced already; all conditions have to match.",
        (),
        namespaceSelector=selector("Labels of the namespace."),
        percentOfNamespaces={
            "description": "Share of the namespaces, by a hash of the names of webhook and namespace.",
            "type": "integer",
            "minimum": 0,
            "maximum": 100,
        },
        after=text("Time from which on, RFC 3339.", maxLength=40, format="date-time"),
    )
    candidate = mapping(
        "A backend that is called beside the one in force, compared with it, and never in force.",
        ("clientConfig",),
        clientConfig=client_config(),
        percentOfReviews={
            "description": "Share of the reviews, by a hash of their uid.",
            "type": "number",
            "minimum": 0,
            "maximum": 100,
            "default": 100,
        },
    )
    found = mapping(
        "How far the webhook is in force; absent: it is enforced.",
        (),
        # Without a default: beside enforce it is required.
        mode={
            "description": "The mode where enforce does not match; absent: Enforce.",
            "type": "string",
            "enum": list(MODES),
        },
        enforce=with_rules(
            enforce,
            rule(
                "has(self.namespaceSelector) || has(self.percentOfNamespaces) || has(self.after)",
                "at least one of namespaceSelector, percentOfNamespaces and after is required",
            ),
        ),
        candidate=candidate,
    )
    return with_rules(found, rule("!has(self.enforce) || has(self.mode)", "mode is required with enforce"))


def webhook(kind: str) -> Schema:
    """Return the schema of one webhook of a configuration of *kind*."""
    version = text("", maxLength=LABEL_LENGTH, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$")
    del version["description"]
    fields = {
        "name": text(
            "Fully qualified, such as images.policies.example.com.", pattern=rf"^{LABEL}(\.{LABEL}){{2,}}$"
        ),
        "clientConfig": client_config(),
        "rules": {
            "description": "The requests that the webhook is for; without a rule, none.",
            **Groups(RuleEntry, maxItems=MAX_RULES).schema(),
        },
        "failurePolicy": _choice(
            "Whether a failure of the webhook refuses the request (Fail) or is skipped (Ignore).",
            FAILURE_POLICIES,
            V1.failure_policy,
        ),
        "matchPolicy": _choice(
            "Whether rules also match other versions of a resource.", MATCH_POLICIES, V1.match_policy
        ),
        "namespaceSelector": selector("Labels of the namespace; absent: all."),
        "objectSelector": selector("Labels of the object; absent: all."),
        "sideEffects": {
            "description": "Whether a call has effects beside its answer.",
            "type": "string",
            "enum": list(V1.allowed_side_effects),
        },
        "timeoutSeconds": {
            "description": "Timeout of a call, in seconds.",
            "type": "integer",
            "minimum": 1,
            "maximum": LONGEST_TIMEOUT_S,
            "default": V1.timeout_s,
        },
        "admissionReviewVersions": with_rules(
            listed(
                "Versions of AdmissionReview that the webhook accepts.",
                version,
                16,
                minItems=1,
                **{"x-kubernetes-list-type": "set"},
            ),
            rule(
                f"self.exists(e, e in {list(REVIEW_VERSIONS)})",
                f"at least one of {' and '.join(REVIEW_VERSIONS)} is required",
            ),
        ),
        "matchConditions": {
            "description": "Conditions that all have to hold.",
            **CONDITIONS.schema(),
        },
        "rollout": rollout(),
        "cache": cache(),
    }
    if kind == "MutatingWebhookConfiguration":
        fields["reinvocationPolicy"] = _choice(
            "Whether the webhook is called again after a later one changed the object.",
            REINVOCATION_POLICIES,
            "Never",
        )
    required = ("name", "clientConfig", "sideEffects", "admissionReviewVersions")
    return with_rules(
        mapping("A webhook.", required, **fields),
        rule(
            "!has(self.rollout) || self.sideEffects == 'None' || (!has(self.rollout.candidate) && "
            "(!has(self.rollout.mode) || self.rollout.mode != 'Shadow'))",
            "the mode Shadow and a candidate require sideEffects None",
        ),
        rule("!has(self.cache) || self.sideEffects == 'None'", "cache requires sideEffects None"),
    )


def _choice(description: str, names: tuple[str, ...], default: str) -> Schema:
    return {"description": description, "type": "string", "enum": list(names), "default": default}


def _by_name(description: str, items: Schema, most: int) -> Schema:
    return listed(
        description, items, most, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )


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
    plural = PLURALS[kind]
    root: Schema = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    validations = []
    if kind == "WorkerPool":
        about = "A set of interchangeable gRPC workers of the admission gateway."
        about_spec = "Interchangeable workers that serve policies."
        root["spec"] = {"description": about_spec, **WorkerPool.schema(is_custom=True)}
        required = ["spec"]
        columns = [{"name": "Target", "type": "string", "jsonPath": ".spec.target"}]
    elif kind in POLICY_KINDS or kind in POLICY_KINDS.values():
        is_policy = kind in POLICY_KINDS
        about = (
            "A policy of expressions behind the admission gateway, field for field as in "
            "admissionregistration.k8s.io/v1."
            if is_policy
            else "Puts a policy of the admission gateway in force, field for field as in "
            "admissionregistration.k8s.io/v1."
        )
        about_spec = (
            "Expressions about requests. Bindings put the policy in force."
            if is_policy
            else "Puts a policy of the cluster in force."
        )
        root["spec"] = {"description": about_spec, **_SPECS[kind].schema(is_custom=True)}
        required = ["spec"]
        columns = [] if is_policy else [{"name": "Policy", "type": "string", "jsonPath": ".spec.policyName"}]
    elif kind in (NAMESPACED, CLUSTER_WIDE):
        covered = "its namespace" if kind == NAMESPACED else "the cluster"
        about = f"Webhooks of the admission gateway that are not called for some requests in {covered}."
        spec = ExceptionSpec if kind == NAMESPACED else ClusterExceptionSpec
        about_spec = "Webhooks that are not called for some requests until a certain time."
        root["spec"] = {"description": about_spec, **spec.schema(is_custom=True)}
        required = ["spec"]
        columns = [
            {"name": name, "type": "string", "jsonPath": f".spec.{name.lower()}"}
            for name in ("Expires", "Owner")
        ]
    else:
        about = (
            "Webhooks behind the admission gateway, field for field as in admissionregistration.k8s.io/v1."
        )
        root["webhooks"] = _by_name("In the order of calls.", webhook(kind), MAX_WEBHOOKS)
        required = []
        columns = []
        validations = [
            rule("!self.metadata.name.endsWith('.static.k8s.io')", "names in .static.k8s.io are reserved")
        ]
    root["status"] = status(kind)
    ready = '.status.conditions[?(@.type=="Ready")]'
    columns += [
        {"name": "Ready", "type": "string", "jsonPath": f"{ready}.status"},
        {"name": "Reason", "type": "string", "jsonPath": f"{ready}.reason"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    schema: Schema = {
        "description": about,
        "type": "object",
        **({"required": required} if required else {}),
        "properties": root,
        **({"x-kubernetes-validations": validations} if validations else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "admission-gateway"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind == NAMESPACED else "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [SHORT_NAMES[kind]],
                "categories": ["admission-gateway"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crds() -> str:
    """Return the content of ``crds.yaml``."""
    return _HEADER + "---\n".join(to_yaml(definition(kind)) for kind in PLURALS)


if __name__ == "__main__":
    sys.stdout.write(crds())

"""Makes ``crds.yaml``: the CustomResourceDefinitions, from the field tables that the gateway itself reads by.

    python -m deploy.crds > deploy/crds.yaml

A schema refuses at ``kubectl apply`` what it can say; what only ``admission-gateway check``, and the gateway,
can find out is listed in README.md beside this. Every list and text has a bound, without which the API server
has no estimate of what a rule costs, and takes none.

Source: kubernetes.io "Extend the Kubernetes API with CustomResourceDefinitions" (structural schemas,
validation rules and their cost); k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from gateway.config.client_config import PART_OF_HOST
from gateway.config.conditions import MAX_MATCH_CONDITIONS
from gateway.config.custom import PLURALS
from gateway.config.documents import GATEWAY_VERSION
from gateway.config.model import Hedge, WorkerPool
from gateway.config.names import LABEL_LENGTH, SUBDOMAIN_LENGTH
from gateway.config.resources import MOST_IN_FLIGHT, TRANSPORTS
from gateway.config.rules import SCOPES
from gateway.config.selectors import OPERATORS
from gateway.config.webhooks import (
    FAILURE_POLICIES,
    LONGEST_TIMEOUT_S,
    MATCH_POLICIES,
    REINVOCATION_POLICIES,
    REVIEW_VERSIONS,
    V1,
)
from gateway.core.webhook import OPERATIONS
from gateway.registration.yaml_output import to_yaml

Schema = dict[str, Any]

GROUP, _, VERSION = GATEWAY_VERSION.partition("/")
SHORT_NAMES: Final = {
    "WorkerPool": "agpool",
    "MutatingWebhookConfiguration": "agmutating",
    "ValidatingWebhookConfiguration": "agvalidating",
}
MOST_WEBHOOKS: Final = 100
MOST_RULES: Final = 50
MOST_ENTRIES: Final = 50
"""Of a list within a rule or a selector."""
MOST_TARGETS: Final = 64

_KEY_LENGTH: Final = SUBDOMAIN_LENGTH + 1 + LABEL_LENGTH
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_QUALIFIED = f"^({_SUBDOMAIN}/)?{_NAME_PART}$"
_HOST = r"([A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?\.?|\[[0-9a-fA-F:.]+\])"
_PORT = "[1-9][0-9]{0,4}"
_IPV4 = rf"[0-9.]+:{_PORT}"
_IPV6 = rf"\[[0-9a-fA-F:.]+\]:{_PORT}"
TARGET: Final = f"^((dns:(///)?)?{_HOST}:{_PORT}|ipv4:{_IPV4}(,{_IPV4})*|ipv6:{_IPV6}(,{_IPV6})*)$"
PERCENTILE: Final = r"p[5-9][0-9](\\.[0-9]{1,6})?"

_HEADER: Final = """\
# The gateway's kinds as custom resources, for `kubernetes: {customResources: true}`. Made by deploy/crds.py
# from the tables that the gateway reads configurations by: change it there. README.md says how to use it.
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


def lone_wildcard(schema: Schema, wildcard: str = "*") -> Schema:
    """Return the schema of a list in which *wildcard* stands alone."""
    return with_rules(
        schema,
        rule(f"self.size() < 2 || !self.exists(e, e == '{wildcard}')", f"{wildcard} covers all others"),
    )


def selector(description: str) -> Schema:
    """Return the schema of a LabelSelector."""
    value = text("", maxLength=LABEL_LENGTH, pattern=f"^({_NAME_PART})?$")
    del value["description"]
    labels: Schema = {
        "description": "Labels that have to be there, with these values.",
        "type": "object",
        "maxProperties": MOST_ENTRIES,
        "additionalProperties": value,
    }
    key_rule = rule(
        f"self.all(key, key.size() <= {_KEY_LENGTH} && key.matches('{_cel(_QUALIFIED)}'))",
        "a key is a name, perhaps with a DNS name and a slash before it",
    )
    expression = mapping(
        "One condition.",
        ("key", "operator"),
        key=text("The label.", maxLength=_KEY_LENGTH, pattern=_QUALIFIED),
        operator={"description": "How values count.", "type": "string", "enum": list(OPERATORS)},
        values=listed("With In and NotIn at least one, with the others none.", value, MOST_ENTRIES),
    )
    expression = with_rules(
        expression,
        rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "values are required with In and NotIn, and have to be left out with Exists and DoesNotExist",
        ),
    )
    return mapping(
        description,
        matchLabels=with_rules(labels, key_rule),
        matchExpressions=listed("Conditions that all have to hold.", expression, MOST_ENTRIES),
    )


def _cel(pattern: str) -> str:
    """Return *pattern* for a text in CEL."""
    return pattern.replace("\\", "\\\\")


def rules() -> Schema:
    """Return the schema of a webhook's rules."""
    entry = text("", minLength=1)
    group = text("")
    for one in (entry, group):
        del one["description"]
    operation = {"type": "string", "enum": [*OPERATIONS, "*"]}
    required = {"minItems": 1}
    one = mapping(
        "Requests: all of what is given has to match.",
        ("operations", "apiGroups", "apiVersions", "resources"),
        operations=lone_wildcard(listed("What is done.", operation, len(OPERATIONS) + 1, **required)),
        apiGroups=lone_wildcard(listed("API groups; the core is empty.", group, MOST_ENTRIES, **required)),
        apiVersions=lone_wildcard(listed("Their versions.", entry, MOST_ENTRIES, **required)),
        # What else covers what would be a hundred times beyond what a rule may cost.
        resources=lone_wildcard(
            listed("RESOURCE or RESOURCE/SUBRESOURCE.", entry, MOST_ENTRIES, **required), "*/*"
        ),
        scope={
            "description": "Whether objects are in a namespace.",
            "type": "string",
            "enum": list(SCOPES),
            "default": "*",
        },
    )
    return listed("Which requests the webhook is for; without one, for none.", one, MOST_RULES)


def client_config() -> Schema:
    """Return the schema of a webhook's clientConfig."""
    segment = rf"/{_SUBDOMAIN}"
    worker = mapping(
        "A gRPC worker of the gateway's.",
        ("pool", "policy"),
        pool=text("Name of a WorkerPool, of the cluster or of the gateway's files.", minLength=1),
        policy=text("What to ask it for.", minLength=1, maxLength=4096),
    )
    service = mapping(
        "A Service that speaks HTTPS.",
        ("namespace", "name"),
        namespace=text("Where it is.", pattern=f"^{PART_OF_HOST.pattern}$"),
        name=text("What it is called.", pattern=f"^{PART_OF_HOST.pattern}$"),
        port={"description": "Its port.", "type": "integer", "minimum": 1, "maximum": 65535, "default": 443},
        path=text("Where the webhook is.", maxLength=1024, pattern=f"^(/?|({segment})+/?)$"),
    )
    config = mapping(
        "Who is asked.",
        worker=worker,
        url=text(
            "https://HOST[:PORT][/PATH].", maxLength=2048, pattern=r"^(?i:https)://[^\s/?#@]+(/[^\s?#]*)?$"
        ),
        service=service,
        caBundle=text("Roots of url or service, PEM in base64.", maxLength=524288, format="byte"),
    )
    return with_rules(
        config,
        rule(
            "(has(self.worker) ? 1 : 0) + (has(self.url) ? 1 : 0) + (has(self.service) ? 1 : 0) == 1",
            "exactly one of worker, url and service is required",
        ),
        rule(
            "!has(self.worker) || !has(self.caBundle)",
            "caBundle has to be left out with a worker, whose roots are those of the WorkerPool",
        ),
        rule("!has(self.url) || isURL(self.url)", "url is no URL"),
    )


def webhook(kind: str) -> Schema:
    """Return the schema of one webhook of a configuration of *kind*."""
    version = text("", maxLength=LABEL_LENGTH, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$")
    del version["description"]
    conditions = mapping(
        "CEL that has to be true, with a name.",
        ("name", "expression"),
        name=text(
            "Of the condition.",
            minLength=1,
            maxLength=_KEY_LENGTH,
            pattern=_QUALIFIED,
        ),
        expression=text("CEL.", minLength=1, maxLength=16384, pattern=r"\S"),
    )
    fields = {
        "name": text(
            "Fully qualified, such as images.policies.example.com.", pattern=rf"^{_LABEL}(\.{_LABEL}){{2,}}$"
        ),
        "clientConfig": client_config(),
        "rules": rules(),
        "failurePolicy": _choice("What a failure means.", FAILURE_POLICIES, V1.failure_policy),
        "matchPolicy": _choice("Whether other versions count.", MATCH_POLICIES, V1.match_policy),
        "namespaceSelector": selector("Labels of the namespace."),
        "objectSelector": selector("Labels of the object."),
        "sideEffects": {
            "description": "Whether it changes anything but the answer.",
            "type": "string",
            "enum": list(V1.allowed_side_effects),
        },
        "timeoutSeconds": {
            "description": "How long it may take.",
            "type": "integer",
            "minimum": 1,
            "maximum": LONGEST_TIMEOUT_S,
            "default": V1.timeout_s,
        },
        "admissionReviewVersions": with_rules(
            listed(
                "Versions of AdmissionReview.", version, 16, minItems=1, **{"x-kubernetes-list-type": "set"}
            ),
            rule(
                f"self.exists(e, e in {list(REVIEW_VERSIONS)})",
                f"at least one of {' and '.join(REVIEW_VERSIONS)} is required",
            ),
        ),
        "matchConditions": _by_name("Conditions that all have to hold.", conditions, MAX_MATCH_CONDITIONS),
    }
    if kind == "MutatingWebhookConfiguration":
        fields["reinvocationPolicy"] = _choice("Whether it is called again.", REINVOCATION_POLICIES, "Never")
    required = ("name", "clientConfig", "sideEffects", "admissionReviewVersions")
    return mapping("A policy, and what it is for.", required, **fields)


def _choice(description: str, names: tuple[str, ...], default: str) -> Schema:
    return {"description": description, "type": "string", "enum": list(names), "default": default}


def _by_name(description: str, items: Schema, most: int) -> Schema:
    return listed(
        description, items, most, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )


def worker_pool() -> Schema:
    """Return the schema of a WorkerPool's spec."""
    target = text("dns:///HOST:PORT, HOST:PORT, ipv4:… or ipv6:….", pattern=TARGET, maxLength=1024)
    of_list = {name: value for name, value in target.items() if name != "description"}
    for_files = {"type": "string", "maxLength": 4096}
    not_here: dict[str, Schema] = {
        name: {"description": "Not here.", **for_files} for name in ("caFile", "certFile", "keyFile")
    }
    tls = mapping(
        "TLS to the workers; without it, plaintext.",
        (),
        caBundle=text("Roots, PEM in base64; without it, the system's.", maxLength=524288, format="byte"),
        serverName=text("What the certificate has to be for.", minLength=1),
        **not_here,
    )
    tls = with_rules(
        tls,
        rule(
            "!has(self.caFile) && !has(self.certFile) && !has(self.keyFile)",
            "caFile, certFile and keyFile are for files of the gateway: use caBundle",
        ),
    )
    hedge = mapping(
        "When a call is asked a second time; without it, never.",
        after=with_rules(
            text("A duration such as 20ms, or a percentile from p50 to p99.9.", maxLength=32, default="p95"),
            rule(
                f"self.matches('^{PERCENTILE}$') || "
                "(duration(self) > duration('0s') && duration(self) <= duration('30s'))",
                "after is a duration, more than 0 and at most 30s, or a percentile from p50 to p99.9",
            ),
        ),
        budgetPercent={
            "description": "Extra calls per hundred.",
            "type": "number",
            "minimum": 0,
            "exclusiveMinimum": True,
            "maximum": 100,
            "default": Hedge().budget_percent,
        },
    )
    spec = mapping(
        "Interchangeable workers that serve policies.",
        target=target,
        targets=listed(
            "Several of them.", of_list, MOST_TARGETS, minItems=1, **{"x-kubernetes-list-type": "set"}
        ),
        command={"description": "Not here.", "type": "array", "maxItems": 64, "items": for_files},
        transport=_choice("How they are called.", TRANSPORTS, WorkerPool("").transport),
        maxInFlight={
            "description": "Calls per endpoint.",
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_IN_FLIGHT,
            "default": WorkerPool("").max_in_flight,
        },
        tls=tls,
        hedge=hedge,
    )
    return with_rules(
        spec,
        rule(
            "!has(self.command)", "command is for files of the gateway: no custom resource starts a program"
        ),
        rule("has(self.target) != has(self.targets)", "exactly one of target and targets is required"),
    )


def status() -> Schema:
    """Return the schema of a status."""
    condition = mapping(
        "metav1.Condition.",
        ("type", "status", "reason", "message", "lastTransitionTime"),
        type=text("Ready.", maxLength=316),
        status={"description": "Whether it is so.", "type": "string", "enum": ["True", "False", "Unknown"]},
        reason=text("A word for programs.", maxLength=1024),
        message=text("What is wrong, with the path of each field.", maxLength=32768),
        observedGeneration={"description": "Of what it tells.", "type": "integer", "format": "int64"},
        lastTransitionTime={"description": "Since when.", "type": "string", "format": "date-time"},
    )
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return mapping(
        "Written by the gateway.", conditions=listed("What came of the object.", condition, 8, **keys)
    )


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
        about = "A set of interchangeable gRPC workers that the admission gateway asks."
        root["spec"] = worker_pool()
        required = ["spec"]
        columns = [{"name": "Target", "type": "string", "jsonPath": ".spec.target"}]
    else:
        about = (
            "Webhooks behind the admission gateway, field for field as in admissionregistration.k8s.io/v1."
        )
        root["webhooks"] = _by_name("In the order in which they count.", webhook(kind), MOST_WEBHOOKS)
        required = []
        columns = []
        validations = [
            rule("!self.metadata.name.endsWith('.static.k8s.io')", "names in .static.k8s.io are reserved")
        ]
    root["status"] = status()
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
            "scope": "Cluster",
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

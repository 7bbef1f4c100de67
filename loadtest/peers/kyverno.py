"""The policies for Kyverno: in CEL (ValidatingPolicy, MutatingPolicy) and as patterns (ClusterPolicy)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from loadtest.peers.labels import LABELS, LABELS_SET, expression
from loadtest.policies import MUTATING, REQUESTS, SETS, TOLERATION
from loadtest.policies.cel import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

Engine = Literal["cel", "pattern"]
Document = dict[str, Any]

_PATTERNS: Final[Mapping[str, Document]] = {
    "deny-privileged": {"=(securityContext)": {"=(privileged)": "false"}},
    "deny-latest": {"image": "!*:latest"},
    "require-limits": {"resources": {"limits": {"cpu": "?*", "memory": "?*"}}},
}
"""Of each container."""
_CONTAINERS: Final = (
    "Object{spec: Object.spec{containers: object.spec.containers%s.map(c, Object.spec.containers{%s})}}"
)
_MUTATIONS_CEL: Final[Mapping[str, str]] = {
    "always-pull": _CONTAINERS % ("", "name: c.name, imagePullPolicy: 'Always'"),
    "add-label": "Object{metadata: Object.metadata{labels: Object.metadata.labels{managed: 'true'}}}",
    "default-requests": _CONTAINERS
    % (
        ".filter(c, !has(c.resources) || !has(c.resources.requests))",
        f"name: c.name, resources: Object.spec.containers.resources{{requests: {json.dumps(REQUESTS)}}}",
    ),
}
_TOLERATION_CEL: Final = (
    "(has(object.spec.tolerations) ? [] : [JSONPatch{op: 'add', path: '/spec/tolerations', value: []}]) +"
    " [JSONPatch{op: 'add', path: '/spec/tolerations/-', value:"
    " Object.spec.tolerations{key: 'dedicated', operator: 'Exists', effect: 'NoSchedule'}}]"
)
_MUTATIONS: Final[Mapping[str, Document]] = {
    "always-pull": {
        "patchStrategicMerge": {"spec": {"containers": [{"(name)": "*", "imagePullPolicy": "Always"}]}}
    },
    "add-label": {"patchStrategicMerge": {"metadata": {"labels": {"managed": "true"}}}},
    "add-toleration": {
        "patchesJson6902": json.dumps([{"op": "add", "path": "/spec/tolerations/-", "value": TOLERATION}])
    },
    "default-requests": {
        "patchStrategicMerge": {
            "spec": {
                "containers": [
                    {
                        "(name)": "*",
                        "resources": {"requests": {f"+({name})": value for name, value in REQUESTS.items()}},
                    }
                ]
            }
        }
    },
}
_RULES: Final = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
}


def documents(name: str, engine: Engine) -> list[Document]:
    """Return the policies of the set *name*; those that set labels are in CEL."""
    if name == LABELS_SET:
        return [_applying(label, expression(label)) for label in LABELS]
    if engine == "pattern":
        return [_cluster_policy(policy) for policy in SETS[name]]
    return [(_mutating if name == MUTATING else _validating)(policy) for policy in SETS[name]]


def _validating(policy: str) -> Document:
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": policy},
        "spec": {
            "validationActions": ["Deny"],
            "evaluation": {"background": {"enabled": False}},
            "matchConstraints": _RULES,
            "validations": [{"expression": EXPRESSIONS[policy], "message": f"violates {policy}"}],
        },
    }


def _mutating(policy: str) -> Document:
    if policy in _MUTATIONS_CEL:
        return _applying(policy, _MUTATIONS_CEL[policy])
    return _mutating_policy(policy, {"patchType": "JSONPatch", "jsonPatch": {"expression": _TOLERATION_CEL}})


def _applying(policy: str, expression: str) -> Document:
    applied = {"expression": expression}
    return _mutating_policy(policy, {"patchType": "ApplyConfiguration", "applyConfiguration": applied})


def _mutating_policy(policy: str, mutation: Document) -> Document:
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "MutatingPolicy",
        "metadata": {"name": policy},
        "spec": {
            # By default it makes rules for Deployments too, for which an expression about Pods has no value.
            "autogen": {"podControllers": {"controllers": []}},
            "matchConstraints": _RULES,
            "mutations": [mutation],
        },
    }


def _cluster_policy(policy: str) -> Document:
    if policy in _MUTATIONS:
        action: Document = {"mutate": _MUTATIONS[policy]}
    else:
        label = {"metadata": {"labels": {policy.removeprefix("require-"): "?*"}}}
        found = _PATTERNS.get(policy)
        pattern = label if found is None else {"spec": {"containers": [found]}}
        message = f"violates {policy}"
        action = {"validate": {"failureAction": "Enforce", "message": message, "pattern": pattern}}
    rule = {"name": policy, "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, **action}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": policy},
        "spec": {"background": False, "rules": [rule]},
    }


_NAMESPACE: Final = "kyverno"
_EXCLUDED: Final = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", _NAMESPACE]}
    ]
}
_SETTINGS: Final = {
    "enableDefaultRegistryMutation": "true",
    "defaultRegistry": "docker.io",
    "generateSuccessEvents": "false",
    "excludeGroups": "system:nodes",
    "resourceFilters": "[Event,*,*] [*/*,kube-system,*] [*/*,kube-public,*] [*/*,kube-node-lease,*]"
    " [Node,*,*] [Node/*,*,*] [APIService,*,*] [TokenReview,*,*] [SubjectAccessReview,*,*]"
    " [SelfSubjectAccessReview,*,*] [Binding,*,*] [Pod/binding,*,*] [ReplicaSet,*,*]"
    " [ReplicaSet/*,*,*] [*/*,kyverno,*]",
    "webhooks": json.dumps({"namespaceSelector": _EXCLUDED}),
}
"""The ConfigMap of its chart."""
ENVIRONMENT: Final[Mapping[str, str]] = {
    "INIT_CONFIG": _NAMESPACE,
    "METRICS_CONFIG": "kyverno-metrics",
    "KYVERNO_NAMESPACE": _NAMESPACE,
    "KYVERNO_POD_NAME": "kyverno-0",
    "KYVERNO_SERVICEACCOUNT_NAME": "kyverno-admission-controller",
    "KYVERNO_ROLE_NAME": "kyverno:admission-controller",
    "KYVERNO_SVC": "kyverno-svc",
    "KYVERNO_DEPLOYMENT": "kyverno-admission-controller",
}
FLAGS: Final = (
    "--caSecretName=kyverno-svc.kyverno.svc.kyverno-tls-ca",
    "--tlsSecretName=kyverno-svc.kyverno.svc.kyverno-tls-pair",
    "--tlsKeyAlgorithm=RSA",
    "--backgroundServiceAccountName=system:serviceaccount:kyverno:kyverno-background-controller",
    "--reportsServiceAccountName=system:serviceaccount:kyverno:kyverno-reports-controller",
    "--webhookServerHost=127.0.0.1",
    "--metricsHost=127.0.0.1",
    "--resyncPeriod=15m",
    "--otelConfig=prometheus",
    "--admissionReports=false",
    "--autoUpdateWebhooks=true",
    "--enableConfigMapCaching=true",
    "--enableDeferredLoading=true",
    "--generateValidatingAdmissionPolicy=true",
    "--loggingFormat=text",
    "--v=0",
    "--omitEvents=PolicyApplied,PolicySkipped",
)


def installation() -> list[Document]:
    """Return the objects of its chart that the admission controller reads."""
    labels = {"app.kubernetes.io/component": "admission-controller"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "kyverno", "image": "kyverno"}]},
    }
    specs: list[tuple[str, str, str, Document]] = [
        ("v1", "Service", "kyverno-svc", {"spec": {"type": "ExternalName", "externalName": "localhost"}}),
        ("v1", "ConfigMap", "kyverno", {"data": _SETTINGS}),
        ("v1", "ConfigMap", "kyverno-metrics", {"data": {"metricsExposure": "{}"}}),
        (
            "apps/v1",
            "Deployment",
            "kyverno-admission-controller",
            {"spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}},
        ),
    ]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    return [namespace] + [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": _NAMESPACE}, **members}
        for version, kind, name, members in specs
    ]

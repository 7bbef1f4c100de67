"""Valid configuration documents for the seeds of a target."""

from __future__ import annotations

from typing import Any, Final

_GATEWAY: Final = "admission-gateway.io/v1alpha1"
_HOOK: Final[dict[str, Any]] = {
    "name": "a.policies.test",
    "clientConfig": {"worker": {"pool": "pods", "policy": "p"}},
    "rules": [
        {
            "operations": ["CREATE", "UPDATE"],
            "apiGroups": ["", "apps"],
            "apiVersions": ["v1"],
            "resources": ["pods", "pods/*"],
            "scope": "Namespaced",
        }
    ],
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a", "b"]}]},
    "objectSelector": {"matchLabels": {"example.com/app": "web"}},
    "failurePolicy": "Ignore",
    "matchPolicy": "Exact",
    "sideEffects": "None",
    "timeoutSeconds": 5,
    "admissionReviewVersions": ["v1"],
}
DOCUMENTS: Final[list[Any]] = [
    {
        "apiVersion": _GATEWAY,
        "kind": "WorkerPool",
        "metadata": {"name": "pods"},
        "spec": {
            "target": ["dns:///pods.svc:50051", "ipv4:10.0.0.1:1", "unix:/run/w"],
            "transport": "Auto",
            "maxInFlight": 64,
            "hedge": {"after": "p95", "budgetPercent": 5},
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "first", "labels": {"a": "b"}},
        "webhooks": [{**_HOOK, "reinvocationPolicy": "IfNeeded"}],
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1beta1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "second"},
        "webhooks": [{"name": "b.test", "clientConfig": _HOOK["clientConfig"], "rules": _HOOK["rules"]}],
    },
    {
        "apiVersion": _GATEWAY,
        "kind": "GatewayConfiguration",
        "listen": "0.0.0.0:8443",
        "adminListen": "127.0.0.1:9090",
        "processes": 2,
        "tls": {"certFile": "a.pem", "keyFile": "a.key", "clientCAFile": "ca.pem", "clientNames": ["api"]},
        "authentication": {"tokenFile": "tokens", "basicAuthFile": "users"},
        "limits": {"maxRequestBytes": 1_000_000, "maxConcurrentReviews": 10},
        "deadlineReserve": "100ms",
        "drainSeconds": 10,
        "auditLevel": "Request",
    },
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}},
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "listed"}}],
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "others"},
        "webhooks": [
            {
                "name": "c.policies.test",
                "clientConfig": {"service": {"namespace": "a", "name": "b", "path": "/c", "port": 443}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "matchConditions": [{"name": "m", "expression": "true"}],
            },
            {
                "name": "d.policies.test",
                "clientConfig": {"url": "https://a.b:443/c", "caBundle": "LS0tLS1CRUdJTg=="},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            },
        ],
    },
    {
        "apiVersion": _GATEWAY,
        "kind": "WorkerPool",
        "metadata": {"name": "local"},
        "spec": {"command": ["python", "-m", "admission_gateway_worker.samples"], "tls": {"serverName": "a"}},
    },
]
POOL: Final = (
    b'{"apiVersion":"%b","kind":"WorkerPool","metadata":{"name":"pods"},"spec":{"target":"a:1"}}'
    % (_GATEWAY.encode())
)

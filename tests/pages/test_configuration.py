"""The configuration in force as its page shows it: complete, and without secrets."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.client_config import ClientConfig
from gateway.config.kinds.worker_pool import Hedge
from gateway.config.merge.digest import digest
from gateway.config.merge.load import load
from gateway.config.yaml.fields import Fields, Problems
from gateway.server.pages import configuration
from gateway.server.pages.configuration import document
from gateway.server.pages.state import encoded
from tests.kit import pool_document, webhook_document
from tests.policies import documents

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

HIDDEN = ("hidden-argument", "hidden-token", "hidden-password", "hidden-annotation", "hidden-reader")


def test_it_has_the_effective_values_and_no_secret(tmp_path: Path, authority: trustme.CA) -> None:
    argument, token, password, annotation, reader = HIDDEN
    ca = authority.cert_pem.bytes()
    users = [
        {"name": "*.a.example", "user": {"token": token}},
        {"name": "b.example", "user": {"username": "ann", "password": password}},
    ]
    (tmp_path / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": users}))
    (tmp_path / "readers").write_text(f"ann:{reader}\n")
    settings = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "deadlineReserve": "250ms",
        "webhookKubeConfigFile": "kubeconfig",
        "pages": {"basicAuthFile": "readers"},
    }
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"a": "b"}, "annotations": {"c": annotation}},
    }
    pool = {"command": ["python", "-m", "admission_gateway_worker", argument]}
    https: dict[str, Any] = {
        "url": "https://c.a.example/x",
        "caBundle": base64.b64encode(ca).decode(),
    }
    secretive = {"worker": {"pool": "local", "policy": "{}", "parameters": {"password": password}}}
    conditions = [{"name": "not-nodes", "expression": "!('system:nodes' in request.userInfo.groups)"}]
    (tmp_path / "c.yaml").write_text(
        "\n---\n".join(map(json.dumps, (settings, namespace)))
        + "\n---\n"
        + pool_document("local").replace('"target": []', json.dumps(pool)[1:-1])
        + webhook_document("mutate", "m", "local", {"webhook": {"clientConfig": secretive}})
        + webhook_document(
            "validate", "v", "local", {"webhook": {"clientConfig": https}}, matchConditions=conditions
        )
    )
    state: Any = SimpleNamespace(
        config=load([tmp_path]), snapshot=SimpleNamespace(digest="d1"), loaded_at=0.0
    )
    found = document(state)
    text = encoded(found).decode()
    for value in (*HIDDEN, "BEGIN CERTIFICATE", ca.decode()[40:80]):
        assert value not in text
    assert found["digest"] == "d1"
    assert "redacted" in found["mutating"][0]["clientConfig"]["worker"]["parameters"]["password"]
    assert found["gateway"]["deadlineReserve"] == "250ms"
    assert found["gateway"]["limits"]["maxConcurrentReviews"] == 4096
    assert found["gateway"]["pages"]["basicAuthFile"].endswith("/readers")
    assert found["gateway"]["webhookKubeConfigFile"] == f"{tmp_path}/kubeconfig"
    assert found["pools"][0]["command"] == ["python", "(3 arguments)"]
    assert found["namespaces"][0]["name"] == "shop"
    (validating,) = found["validating"]
    assert validating["clientConfig"]["url"] == https["url"]
    assert validating["clientConfig"]["caBundle"] == f"sha256:{sha256(ca).hexdigest()}"
    assert validating["matchConditions"] == conditions
    assert validating["rules"][0]["apiGroups"] == ["*"]


def test_an_entry_of_a_policy_on_templates_says_so(tmp_path: Path) -> None:
    annotations = {"admission-gateway.io/applies-to-templates": "Warn"}
    documents.written(
        tmp_path,
        [{**documents.policy(), "metadata": {"name": "p", "annotations": annotations}}, documents.binding()],
    )
    state: Any = SimpleNamespace(config=load([tmp_path]), snapshot=SimpleNamespace(digest="d"), loaded_at=0.0)
    on_pods, on_templates = document(state)["validating"]
    assert "appliesToTemplates" not in on_pods
    assert (on_templates["appliesToTemplates"], on_templates["rollout"]) == (True, {"mode": "Warn"})


GATEWAY: dict[str, Any] = {
    "listen": "127.0.0.1:7443",
    "adminListen": "127.0.0.1:7090",
    "processes": 3,
    "tls": {"certFile": "tls.crt", "keyFile": "tls.key", "clientCAFile": "ca.crt", "clientNames": ["api"]},
    "authentication": {
        "tokenFile": "tokens",
        "webhookTokens": {
            "audiences": ["https://gateway.example"],
            "jwksFrom": "Issuer",
            "issuer": "https://issuer.example",
            "issuerCAFile": "ca.crt",
            "registrations": [{"kind": "ValidatingWebhookConfiguration", "name": "v", "uid": "u"}],
        },
    },
    "pages": {"enabled": False, "basicAuthFile": "readers"},
    "limits": {"maxRequestBytes": 3145728, "maxConcurrentReviews": 17, "maxBytesInFlight": 33554432},
    "deadlineReserve": "250ms",
    "drainSeconds": 2.5,
    "auditLevel": "Request",
    "decisionReference": "Warning",
    "conflicts": "Reject",
    "webhookKubeConfigFile": "kubeconfig",
    "logging": {
        "format": "json",
        "decisions": "All",
        "levels": {"workers": "debug"},
        "decisionLog": {
            "samplePercent": 12.5,
            "maxPerSecond": 7,
            "secretNames": True,
            "file": {"path": "decisions.jsonl", "maxBytes": 65536, "keep": 2},
        },
    },
    "record": {
        "folder": "recordings",
        "samplePercent": 1.5,
        "perCombination": 3,
        "maxPerSecond": 9,
        "maxFileBytes": 65536,
        "maxFiles": 4,
        "maxAge": "90m",
        "redact": [{"kinds": ["Pod"], "paths": ["$.spec.containers[*].env[*].value", "data['a.b']"]}],
    },
    "tracing": {
        "endpoint": "http://127.0.0.1:4318",
        "samplingRatePerMillion": 5,
        "maxSpansPerSecond": 6,
        "resourceAttributes": {"a": "b"},
    },
    "imageReview": {"webhooks": ["h0.v.test"]},
    "policies": {"leftToAPIServer": ["ValidatingAdmissionPolicy"]},
    "kubernetes": {"kubeconfig": "cluster", "customResources": True},
}
POOL: dict[str, Any] = {
    "targets": ["dns:///a.example:50051", "ipv4:10.0.0.1:50051"],
    "transport": "Unary",
    "maxInFlight": 7,
    "policies": "ReadyMade",
    "tls": {"caFile": "ca.crt", "serverName": "workers.example"},
    "hedge": {"after": "p99.5", "budgetPercent": 2.5},
}
WEBHOOK: dict[str, Any] = {
    "failurePolicy": "Ignore",
    "matchPolicy": "Exact",
    "timeoutSeconds": 3,
    "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b", "c"]}]},
    "objectSelector": {"matchLabels": {"d": "e"}},
    "matchConditions": [{"name": "creates", "expression": "request.operation == 'CREATE'"}],
    "cache": {"ttlSeconds": 60, "key": "object.spec", "maxEntries": 5},
    "rollout": {
        "mode": "Warn",
        "enforce": {"percentOfNamespaces": 25, "after": "2026-12-01T00:00:00Z"},
        "candidate": {"clientConfig": {"url": "https://next.example/x"}, "percentOfReviews": 10.5},
    },
}
PLAN: dict[str, Any] = {
    "stages": [
        {
            "mode": "Audit",
            "for": "24h",
            "gates": {"maxNewlyDenied": 0, "maxP99Milliseconds": 50, "minUsers": 2},
        },
        {"mode": "Warn", "percentOfNamespaces": 5, "groups": ["dev"]},
        {"mode": "Enforce"},
    ],
    "groups": [{"name": "dev", "namespaceSelector": {"matchLabels": {"tier": "dev"}}}],
    "salt": "a",
    "rollback": {"minOwners": 5, "minNamespaces": 3},
    "maxWait": "1h30m",
}
FROM_SECRET = {"secret": {"namespace": "x", "name": "roots", "key": "ca.crt"}}
CLIENTS: list[dict[str, Any]] = [
    {"url": "https://a.example/y", "caBundleFrom": FROM_SECRET},
    {"worker": {"pool": "local", "policy": "p", "parameters": {"a": [1]}}},
    {"worker": {"pool": "local", "policy": "p", "parametersFrom": {"namespaceAnnotation": "a.example/b"}}},
    {"url": "https://a.example:8443/x"},
    {"service": {"namespace": "shop", "name": "hook", "path": "/x"}},
]
EXCEPTIONS: list[dict[str, Any]] = [
    {
        "webhooks": ["h0.v.test"],
        "match": {"namespaces": ["shop", "team-*"], "kinds": ["Pod"]},
        "permanent": True,
    },
    {"webhooks": ["h0.v.test"], "match": {"users": ["ann"]}, "expires": "2027-01-01T00:00:00Z"},
]


def written(kind: str, name: str, **content: Any) -> str:
    version = "admission-gateway.io/v1alpha1"
    return (
        json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}) + "\n---\n"
    )


def configured(phase: str, webhooks: list[dict[str, Any]]) -> str:
    kind = f"{'Mutating' if phase == 'mutate' else 'Validating'}WebhookConfiguration"
    text = written(kind, phase[0], webhooks=webhooks)
    return text.replace("admission-gateway.io/v1alpha1", "admissionregistration.k8s.io/v1")


def test_every_value_can_be_copied_back_into_a_file(tmp_path: Path, authority: trustme.CA) -> None:
    certificate = authority.issue_cert("gateway.example")
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem.bytes())
    (tmp_path / "tls.crt").write_bytes(certificate.cert_chain_pems[0].bytes())
    (tmp_path / "tls.key").write_bytes(certificate.private_key_pem.bytes())
    (tmp_path / "tokens").write_text("a-long-token-for-clients\n")
    (tmp_path / "readers").write_text("ann:a-long-password\n")
    (tmp_path / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": []}))
    named = {"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}
    contexts = [{"name": "c", "context": {"cluster": "c"}}]
    cluster = {"apiVersion": "v1", "kind": "Config", **named, "contexts": contexts, "current-context": "c"}
    (tmp_path / "cluster").write_text(json.dumps(cluster))
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    usual = {"rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]}

    def hooks(phase: str) -> list[dict[str, Any]]:
        entries = [
            {"name": f"h{n}.{phase[0]}.test", "clientConfig": one, **usual} for n, one in enumerate(CLIENTS)
        ]
        entries[1].update(WEBHOOK)
        entries[2]["rollout"] = {"plan": PLAN, "candidate": WEBHOOK["rollout"]["candidate"]}
        entries[3]["rollout"] = {"plan": {"stages": PLAN["stages"][2:], "critical": True}}
        if phase == "mutate":
            entries[2]["reinvocationPolicy"] = "IfNeeded"
        return entries

    file = tmp_path / "c.yaml"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}
    file.write_text(
        written("GatewayConfiguration", "g", **GATEWAY)
        + written("WorkerPool", "local", spec=POOL)
        + "".join(
            written("PolicyException", f"e{n}", spec={**one, "reason": "r", "owner": "o"})
            for n, one in enumerate(EXCEPTIONS)
        )
        + configured("mutate", hooks("mutate"))
        + configured("validate", hooks("validate"))
        + json.dumps(namespace)
    )
    first = load([file])
    state: Any = SimpleNamespace(config=first, snapshot=SimpleNamespace(digest="d"), loaded_at=0.0)
    found = json.loads(encoded(document(state)))
    assert found["gateway"]["deadlineReserve"] == "250ms"
    for phase in ("mutating", "validating"):
        for one in found[phase]:
            assert one.pop("configuration") == phase[0]
    file.write_text(
        written("GatewayConfiguration", "g", **found["gateway"])
        + "".join(written("WorkerPool", one.pop("name"), spec=one) for one in found["pools"])
        + "".join(written("PolicyException", one.pop("name"), spec=one) for one in found["exceptions"])
        + configured("mutate", found["mutating"])
        + configured("validate", found["validating"])
        + json.dumps({**namespace, "metadata": found["namespaces"][0]})
    )
    again = load([file])
    assert again.gateway == first.gateway
    assert again.pools == first.pools
    assert [pool.policies for pool in again.pools.values()] == ["ReadyMade"]
    assert again.exceptions == first.exceptions
    assert again.namespaces.keys() == first.namespaces.keys()
    # Of webhooks, because compiled expressions are not equal; a Namespace has its whole document.
    one, other = (digest(replace(config, namespaces={}, named_files={})) for config in (again, first))
    assert one == other


@pytest.mark.parametrize(
    "client",
    [
        {"url": "https://a.example/", "caBundleFrom": FROM_SECRET},
        {
            "url": "https://a.example/",
            "caBundleFrom": {
                "webhookConfiguration": {
                    "kind": "ValidatingWebhookConfiguration",
                    "name": "v",
                    "webhook": "a.b.c",
                }
            },
        },
    ],
)
def test_a_followed_bundle_is_shown_as_it_is_written(client: dict[str, Any], tmp_path: Path) -> None:
    problems = Problems("", folder=tmp_path)
    read = ClientConfig.read(Fields(client, "", problems)).client
    assert problems.found == []
    assert configuration._plain(read) == client


@given(st.integers(1, 30_000), st.sampled_from([50, 90, 95, 99.5, 99.999999]), st.booleans())
def test_the_time_of_a_hedge_is_shown_as_it_is_written(ms: int, percentile: float, is_time: bool) -> None:
    hedge = Hedge(ms / 1000 if is_time else None, 95.0 if is_time else percentile)
    problems = Problems("")
    assert Hedge.read(Fields(configuration._plain(hedge), "", problems)) == hedge
    assert problems.found == []

"""The configuration in force as its page shows it: complete, and without secrets."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gateway.config.load import load
from gateway.pages.configuration import document
from gateway.pages.state import encoded
from tests.kit import pool_document, webhook_document

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
    conditions = [{"name": "not-nodes", "expression": "!('system:nodes' in request.userInfo.groups)"}]
    (tmp_path / "c.yaml").write_text(
        "\n---\n".join(map(json.dumps, (settings, namespace)))
        + "\n---\n"
        + pool_document("local").replace('"target": []', json.dumps(pool)[1:-1])
        + webhook_document("mutate", "m", "local", {})
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
    assert found["gateway"]["deadlineReserveSeconds"] == 0.25
    assert found["gateway"]["maxConcurrentReviews"] == 4096
    assert found["gateway"]["pages"]["authentication"]["basicAuthFile"].endswith("/readers")
    assert found["gateway"]["webhookKubeConfigFile"] == [f"{tmp_path}/kubeconfig"]
    assert found["pools"][0]["command"] == ["python", "(3 arguments)"]
    assert found["namespaces"][0]["name"] == "shop"
    assert found["mutating"][0]["clientConfig"] == {"worker": {"pool": "local", "policy": "{}"}}
    (validating,) = found["validating"]
    assert validating["clientConfig"]["url"] == https["url"]
    assert validating["clientConfig"]["caBundle"] == f"sha256:{sha256(ca).hexdigest()}"
    assert validating["matchConditions"] == conditions
    assert validating["rules"][0]["apiGroups"] == ["*"]

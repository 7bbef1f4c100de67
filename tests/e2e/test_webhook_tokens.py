"""Tokens by KEP-6060: requested from a real API server, and verified by a gateway that follows its keys."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.binaries import obtain
from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Hook
from tests.kit import PATIENCE_S, REVIEWS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GATE = "--feature-gates=APIServerWebhookAuthenticationToken=true"
ISSUER = "https://kubernetes.default.svc"
NAME = "tokens"
CALLER = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/caller"
REFUSED = "admission_gateway_webhook_token_refusals_total"


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of 1.37 with the feature gate, which has the issuing side."""
    with Cluster(obtain("1.37"), tmp_path_factory.mktemp("gated"), GATE) as cluster:
        yield cluster


class TokenGateway(BehindGateway):
    """A gateway that accepts only webhook tokens; the API server itself sends none yet."""

    def register(self) -> None:
        """Register webhooks that are never called, so that only the tokens count."""
        for document in self.manifests():
            for entry in document["webhooks"]:
                entry["failurePolicy"] = "Ignore"
                entry["objectSelector"] = {"matchLabels": {"nobody": "has"}}
            path = f"{REGISTRATIONS}/{document['kind'].lower()}s"
            assert self.cluster.api.create(path, document).status == 201

    def call(self, path: str, review: str, token: str) -> tuple[int, str]:
        """Return status and error of a call with *token*."""
        context = ssl.create_default_context()
        self.cluster.authority.configure_trust(context)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=PATIENCE_S)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        try:
            connection.request("POST", path, (REVIEWS / f"{review}.json").read_bytes(), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("error", "")
        finally:
            connection.close()


def request_token(cluster: Cluster, kind: str, audience: str, group: str, **more: Any) -> Any:
    reference = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "name": NAME}
    spec = {
        "audiences": [audience],
        "boundObjectRef": reference,
        "attestations": {"admissionReviewAPIGroups": [group]},
        **more,
    }
    document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return cluster.api.create(f"{CALLER}/token", document)


def token(cluster: Cluster, kind: str, audience: str, group: str, **more: Any) -> str:
    answer = request_token(cluster, kind, audience, group, **more)
    assert answer.status == 201, answer
    found: str = answer.document["status"]["token"]
    return found


def test_tokens_of_a_real_api_server(gated: Cluster, tmp_path: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "caller"}}
    assert gated.api.create(CALLER.rpartition("/")[0], account).status == 201
    may_attest = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "attest"},
        "rules": [
            {
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["admissionReviewAPIGroups"],
                "resourceNames": ["apps", "*"],
                "verbs": ["attest"],
            }
        ],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert gated.api.create(f"{rbac}/clusterroles", may_attest).status == 201
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "caller"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "attest"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "attest"},
        "subjects": [subject],
    }
    assert gated.api.create(f"{rbac}/clusterrolebindings", binding).status == 201

    deployments = {
        "operations": ["*"],
        "apiGroups": ["apps", ""],
        "apiVersions": ["v1"],
        "resources": ["*"],
    }
    hooks = [
        Hook("validate", "a.tokens.test", {}, (deployments,)),
        Hook("mutate", "b.tokens.test", {}, (deployments,)),
    ]
    setup = TokenGateway(gated, tmp_path, hooks, NAME)
    base = f"https://{NAME}.{NAMESPACE}.svc:{setup.port}"
    setup._gateway = {
        "kubernetes": {"kubeconfig": str(gated.kubeconfig())},
        "authentication": {
            "webhookTokens": {
                "issuer": ISSUER,
                "audiences": [base],
                "registrations": [{"kind": "ValidatingWebhookConfiguration", "name": NAME}],
            }
        },
    }
    kind = "ValidatingWebhookConfiguration"
    with setup:
        eventually(lambda: setup.gateway.admin("/readyz")[0] == 200)
        paths = {
            document["kind"]: entry["clientConfig"]["service"]["path"]
            for document in setup.manifests()
            for entry in document["webhooks"]
        }
        path = paths[kind]
        # The API server reads roles from a cache of its own.
        eventually(lambda: request_token(gated, kind, base + path, "*").status == 201)
        everything = token(gated, kind, base + path, "*", expirationSeconds=600)
        assert setup.call(path, "pod-create-validate", everything) == (200, "")
        assert setup.call(f"{path}?timeout=10s", "pod-create-validate", everything) == (200, "")
        assert setup.call("/validate", "pod-create-validate", everything)[0] == 401
        # Of another group than the Pod of the review.
        apps = token(gated, kind, base + path, "apps")
        status, said = setup.call(path, "pod-create-validate", apps)
        assert (status, said) == (403, "the token does not attest the API group of the request")

        mutating = token(
            gated, "MutatingWebhookConfiguration", base + paths["MutatingWebhookConfiguration"], "*"
        )
        status, said = setup.call(paths["MutatingWebhookConfiguration"], "pod-create-mutate", mutating)
        assert (status, "another webhook configuration" in said) == (401, True)
        ordinary = gated.api.create(
            f"{CALLER}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": [base + path]},
            },
        ).document["status"]["token"]
        assert setup.call(path, "pod-create-validate", ordinary)[0] == 401
        header, payload, signature = everything.split(".")
        none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"x"}').rstrip(b"=").decode()
        for forged in (f"{none}.{payload}.", f"{header}.{payload}.AAAAAAAAAA{signature[10:]}", "x", ""):
            assert setup.call(path, "pod-create-validate", forged)[0] == 401
        for reason, count in (
            ("audience", 1),
            ("binding", 1),
            ("attestation", 1),
            ("malformed", 3),
            ("signature", 1),
        ):
            assert setup.gateway.metric(REFUSED, reason=reason) == count
        assert everything.split(".")[2] not in setup.gateway.log
        # The API server attests only what the caller may attest.
        assert request_token(gated, kind, base + path, "batch").status == 403

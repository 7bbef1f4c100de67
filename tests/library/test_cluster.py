"""Access of policies to the API server."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml

from admission_gateway_worker import kubernetes_client
from admission_gateway_worker.policies import cluster
from admission_gateway_worker.policies.cluster import ClusterError, connect, read_access
from tests.library.api_server import TOKEN, ApiServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from admission_gateway_worker.policies.cluster import Cluster

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def of(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def run(use: Callable[[Cluster], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        connection = connect()
        assert connect() is connection
        try:
            return await use(connection)
        finally:
            await connection.close()

    return asyncio.run(connected())


def test_a_list_is_read_in_pages(api_server: ApiServer) -> None:
    api_server.lists[CLASSES] = [of(str(number)) for number in range(5)]
    api_server.page = 2
    assert run(lambda it: it.objects("storage.k8s.io/v1", "storageclasses")) == api_server.lists[CLASSES]
    assert len(api_server.requests) == 3


def test_objects_of_a_namespace_and_of_all(api_server: ApiServer) -> None:
    api_server.lists["/api/v1/pods"] = [of("a"), of("b")]
    api_server.lists["/api/v1/namespaces/one/pods"] = [of("a")]
    assert run(lambda it: it.objects("v1", "pods")) == [of("a"), of("b")]
    assert run(lambda it: it.objects("v1", "pods", "one")) == [of("a")]
    assert run(lambda it: it.get("v1", "pods", "a", "one")) == of("a")
    assert run(lambda it: it.get("v1", "pods", "z", "one")) is None


def test_names_lead_to_no_other_path(api_server: ApiServer) -> None:
    api_server.lists["/api/v1/namespaces/one/pods"] = [of("a")]
    assert run(lambda it: it.get("v1", "pods", "..", "one")) is None
    assert run(lambda it: it.resources("../v1")) == []
    assert not api_server.requests
    assert run(lambda it: it.resources("apps/../../api/v1")) == []
    assert ["%2F" in str(each) for each in api_server.requests] == [True]


def test_reads_of_the_last_second_share_a_request(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: 100.0))
    api_server.lists[CLASSES] = [of("a")]

    async def read(it: Cluster) -> None:
        await asyncio.gather(*(it.objects("storage.k8s.io/v1", "storageclasses") for _ in range(9)))
        assert len(api_server.requests) == 1
        await it.objects("storage.k8s.io/v1", "storageclasses", max_age_s=-1)
        assert len(api_server.requests) == 2

    run(read)


def test_old_and_superfluous_reads_are_dropped(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api_server.lists["/api/v1/nodes"] = [of(str(number)) for number in range(9)]

    async def read(it: Cluster) -> None:
        for number in range(9):
            await it.get("v1", "nodes", str(number))
        assert list(it._reads) == [f"/api/v1/nodes/{number}" for number in (6, 7, 8)]
        monkeypatch.setattr(cluster, "_KEPT_S", -1.0)
        assert await it.get("v1", "nodes", "1") == of("1")
        assert list(it._reads) == []

    monkeypatch.setattr(cluster, "_MAX_READS", 3)
    run(read)


def test_a_failed_read_is_not_kept(api_server: ApiServer) -> None:
    async def read(it: Cluster) -> None:
        with pytest.raises(ClusterError, match="storageclasses: 404: storageclasses not found") as raised:
            await it.objects("storage.k8s.io/v1", "storageclasses")
        assert raised.value.status == 404
        api_server.lists[CLASSES] = []
        assert await it.objects("storage.k8s.io/v1", "storageclasses") == []

    run(read)


def test_a_cancelled_caller_does_not_cancel_the_request_of_others(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: 100.0))
    api_server.lists[CLASSES] = [of("a")]

    async def read(it: Cluster) -> None:
        first = asyncio.create_task(it.objects("storage.k8s.io/v1", "storageclasses"))
        await asyncio.sleep(0)
        second = asyncio.create_task(it.objects("storage.k8s.io/v1", "storageclasses"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == [of("a")]
        assert len(api_server.requests) == 1

    run(read)


def test_an_object_is_created_once(api_server: ApiServer) -> None:
    created = run(lambda it: it.create("v1", "namespaces", of("new")))
    assert created["metadata"]["name"] == "new"
    with pytest.raises(ClusterError, match="409: already exists") as raised:
        run(lambda it: it.create("v1", "namespaces", of("new")))
    assert raised.value.status == 409


def test_the_rights_of_a_user(api_server: ApiServer) -> None:
    api_server.rights = lambda spec: {"allowed": spec["user"] == "ann", "reason": "by rule"}
    user = {"username": "ann", "groups": ["devs"], "uid": "1", "extra": {"a": ["b"]}}
    found = run(lambda it: it.access_review(user, verb="sign", resource="signers", namespace=""))
    assert (found.is_allowed, found.reason, found.error) == (True, "by rule", "")
    assert not run(lambda it: it.access_review({"username": "bob"}, verb="sign")).is_allowed
    assert api_server.reviewed[0] == {
        "user": "ann",
        "groups": ["devs"],
        "uid": "1",
        "extra": {"a": ["b"]},
        "resourceAttributes": {"verb": "sign", "resource": "signers"},
    }


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path, token=TOKEN)))
    with pytest.raises(ClusterError, match="no answer: "):
        run(lambda it: it.get("v1", "nodes", "a"))


def test_a_token_that_cannot_be_sent_is_in_no_message(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(tmp_path, token="se\ncret")))
    with pytest.raises(ClusterError, match="no answer: the request cannot be sent: a header field") as raised:
        run(lambda it: it.get("v1", "nodes", "a"))
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("content", ["<html>", "[]"])
def test_an_answer_that_is_not_an_object_is_an_error(content: str, api_server: ApiServer) -> None:
    api_server.others[CLASSES] = content
    with pytest.raises(ClusterError, match=f"GET .*{CLASSES}: 200: the answer .* is not an object"):
        run(lambda it: it.objects("storage.k8s.io/v1", "storageclasses"))


@pytest.fixture
def tls_server(tmp_path: Path) -> Any:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    with ApiServer(context) as server:
        server.lists["/api/v1/nodes"] = [of("a")]
        yield server


def test_the_service_account_of_a_pod(
    tls_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(tls_server.server_port))
    monkeypatch.setattr(kubernetes_client, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(ClusterError, match="automountServiceAccountToken"):
        read_access()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert run(lambda it: it.objects("v1", "nodes")) == [of("a")]


def test_the_server_is_verified(
    tls_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(
        "KUBECONFIG", str(tls_server.kubeconfig(tmp_path, {"certificate-authority": "ca.crt"}, token=TOKEN))
    )
    assert run(lambda it: it.objects("v1", "nodes")) == [of("a")]
    other = trustme.CA(key_type=trustme.KeyType.ECDSA)
    other.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    with pytest.raises(ClusterError, match="certificate verify failed"):
        run(lambda it: it.objects("v1", "nodes"))


def test_a_client_certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    pair = authority.issue_cert("worker@example.com", key_type=trustme.KeyType.ECDSA)
    pair.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    certificate = base64.b64encode(pair.cert_chain_pems[0].bytes()).decode()
    user = {"client-certificate-data": certificate, "client-key": "tls.key"}
    with ApiServer(context) as server:
        server.token = None
        server.lists["/api/v1/nodes"] = [of("a")]
        kubeconfig = server.kubeconfig(tmp_path, {"certificate-authority": "ca.crt"}, **user)
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        assert run(lambda it: it.objects("v1", "nodes")) == [of("a")]
    (tmp_path / "tls.key").write_text("x")
    with pytest.raises(ClusterError, match="OpenSSL rejects the certificates"):
        read_access()


def test_a_token_file_is_beside_the_kubeconfig(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api_server.lists["/api/v1/nodes"] = []
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(tmp_path, tokenFile="token")))
    assert run(lambda it: it.objects("v1", "nodes")) == []
    (tmp_path / "token").unlink()
    with pytest.raises(ClusterError, match="token cannot be read"):
        run(lambda it: it.objects("v1", "nodes"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "not a kubeconfig with a current context: while parsing"),
        ("a", "not a kubeconfig with a current context"),
        ("{}", "contexts has no entry ''"),
        (json.dumps({"current-context": "a", "contexts": [{"name": "a", "context": {}}]}), "'cluster'"),
    ],
)
def test_a_kubeconfig_that_is_none(
    text: str, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(ClusterError, match=problem) as raised:
        read_access()
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "field", "problem"),
    [
        ("user", {"exec": {"command": "get-token"}}, "the user has exec, which is not supported"),
        ("cluster", {"proxy-url": "http://proxy"}, "the cluster has proxy-url, which is not supported"),
    ],
)
def test_fields_that_are_not_supported(
    entry: str,
    field: dict[str, Any],
    problem: str,
    api_server: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = api_server.kubeconfig(tmp_path)
    document = yaml.safe_load(file.read_text())
    document[f"{entry}s"][0][entry] |= field
    file.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(ClusterError, match=problem):
        read_access()


def test_no_access_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="this is not a pod"):
        read_access()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="cannot be read"):
        read_access()

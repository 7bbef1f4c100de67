"""All kinds of credentials for an API server, over real TLS, and the errors of unusable ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ClusterError
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.engine.credentials import exec_plugin
from gateway.server.kubernetes import access, namespaces
from gateway.server.kubernetes.access import ClusterAccess, connect
from gateway.server.kubernetes.namespaces import ClusterNamespaces
from tests.kubernetes.server import ApiServer, hang_up, refuse
from tests.process.kit import lines
from tests.waiting import eventually, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import trustme


@pytest.fixture
def tls_server(authority: trustme.CA) -> Iterator[ApiServer]:
    """A server that requests client certificates, and accepts clients without one by token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "api.test").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    with ApiServer(context) as server:
        server.put("red")
        yield server


def encoded(blob: trustme.Blob) -> str:
    return base64.b64encode(blob.bytes()).decode()


def reach(settings: KubernetesSettings, **options: Any) -> None:
    """Read a namespace with *settings*."""

    async def scenario() -> None:
        api = await asyncio.to_thread(connect, settings, **options)
        try:
            found = await api.get("/api/v1/namespaces/red")
            assert found["metadata"]["name"] == "red"
        finally:
            await api.close()

    asyncio.run(scenario())


def test_token_and_ca_inside_the_kubeconfig(
    tls_server: ApiServer, authority: trustme.CA, tmp_path: Path
) -> None:
    tls_server.token = "secret"
    roots = {"certificate-authority-data": encoded(authority.cert_pem)}
    reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, roots, token="secret")))


def test_files_are_relative_to_the_kubeconfig(
    tls_server: ApiServer, authority: trustme.CA, tmp_path: Path
) -> None:
    tls_server.token = "secret"
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "token").write_text("secret\n")
    file = tls_server.kubeconfig(tmp_path, {"certificate-authority": "ca.pem"}, tokenFile="token")
    reach(KubernetesSettings(file))
    reach(KubernetesSettings(file, "test"))


@pytest.mark.parametrize("is_inline", [True, False])
def test_a_client_certificate(
    tls_server: ApiServer, authority: trustme.CA, tmp_path: Path, is_inline: bool
) -> None:
    assert tls_server.tls is not None
    tls_server.tls.verify_mode = ssl.CERT_REQUIRED
    issued = authority.issue_cert("admin@cluster.test")
    roots = {"certificate-authority-data": encoded(authority.cert_pem)}
    if is_inline:
        user = {
            "client-certificate-data": encoded(issued.cert_chain_pems[0]),
            "client-key-data": encoded(issued.private_key_pem),
        }
    else:
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / "me.crt"))
        issued.private_key_pem.write_to_path(str(tmp_path / "me.key"))
        user = {"client-certificate": "me.crt", "client-key": "me.key"}
    reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, roots, **user)))
    with pytest.raises(ClusterError):
        reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, roots)))


def test_tls_server_name(tls_server: ApiServer, authority: trustme.CA, tmp_path: Path) -> None:
    roots = {"certificate-authority-data": encoded(authority.cert_pem)}
    reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, {**roots, "tls-server-name": "api.test"})))
    with pytest.raises(ClusterError, match=r"Hostname mismatch|not valid for"):
        reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, {**roots, "tls-server-name": "other.test"})))


def test_an_untrusted_server_gets_no_request(tls_server: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"(?i)certificate.verify.failed"):
        reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, token="secret")))
    assert tls_server.requests == []


V1 = "client.authentication.k8s.io/v1"
PLUGIN = """
import json, os
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert told["kind"] == "ExecCredential" and os.environ["OTHER"] == "thing"
print(json.dumps({"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": {"token": "made"}}))
"""


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_exec_plugin_makes_the_token(server: ApiServer, tmp_path: Path, version: str) -> None:
    server.token = "made"
    server.put("red")
    (tmp_path / "plugin").write_text(f"#!{sys.executable}\n{PLUGIN}")
    (tmp_path / "plugin").chmod(0o755)
    plugin = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "command": "./plugin",
        "args": [],
        "env": [{"name": "OTHER", "value": "thing"}],
    }
    reach(KubernetesSettings(server.kubeconfig(tmp_path, exec=plugin)))


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        ({"command": "./missing", "apiVersion": V1}, "No such file"),
        ({"command": "false", "apiVersion": V1}, "exec: false: ended with status 1"),
        ({"command": "true", "apiVersion": V1}, "exec: true: Input data was truncated"),
        ({"command": "true", "apiVersion": "v7"}, 'exec.apiVersion: found "v7", expected'),
        ({"command": "true"}, "exec.apiVersion: is required"),
        *(
            ({"command": "echo", "args": [printed], "apiVersion": V1}, f"exec: echo: {why}")
            for printed, why in (
                ("[]", "Expected `object`, got `array`"),
                ("{}", "Object missing required field `status`"),
                ('{"status": null}', "Expected `object`, got `null`"),
            )
        ),
        (
            {"command": "echo", "args": ['{"status": {"token": null}}'], "apiVersion": V1},
            "exec: echo prints an ExecCredential with neither a token nor a certificate",
        ),
    ],
)
def test_the_error_of_an_exec_plugin_is_one_line(
    server: ApiServer, tmp_path: Path, plugin: dict[str, object], why: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        reach(KubernetesSettings(server.kubeconfig(tmp_path, exec=plugin)))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_hanging_exec_plugin_is_killed_on_close(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "LOOK_UP_TIMEOUT_S", 0.05)
    started = tmp_path / "started"
    plugin = {"apiVersion": V1, "command": "sh", "args": ["-c", f"echo $$ > {started}; sleep 600; true"]}
    following = ClusterNamespaces(KubernetesSettings(server.kubeconfig(tmp_path, exec=plugin)))
    results = list[object]()
    while not lines(started):  # a look-up may end before the plug-in has begun
        results.clear()
        following.look_up("red", 60, results.append)
        await until(lambda: results or lines(started), "the plug-in runs")
    await following.close()
    assert len(results) == 1
    (leader,) = lines(started)
    eventually(lambda: not runs_with_group(leader), "no process of the plug-in runs")


def runs_with_group(leader: str) -> bool:
    """Return whether a process in the group of *leader* runs, except zombies."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, group = file.read_text().rpartition(")")[2].split()[:3]
            if leader in (file.parent.name, group) and state != "Z":
                return True
    return False


async def test_a_rejected_token_is_renewed_once_for_all_requests(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "RUN_AGAIN_AFTER_S", 0.0)
    server.put("red")
    (tmp_path / "token").write_text("first")
    script = f"""cd {tmp_path}; echo x >> ran; printf '{{"status": {{"token": "%s"}}}}' $(cat token)"""
    plugin = {"apiVersion": V1, "command": "sh", "args": ["-c", script]}
    api = await asyncio.to_thread(connect, KubernetesSettings(server.kubeconfig(tmp_path, exec=plugin)))
    for token in ("first", "second"):
        server.token = token
        (tmp_path / "token").write_text(token)
        await asyncio.gather(*(api.get("/api/v1/namespaces/red") for _ in range(3)))
    await api.close()
    assert Counter(server.authorizations) == {"Bearer first": 6, "Bearer second": 3}
    assert (tmp_path / "ran").read_text().split() == ["x"] * 2


def test_impersonation(server: ApiServer, tmp_path: Path) -> None:
    server.put("red")
    user: dict[str, Any] = {
        "as": "Ł",
        "as-groups": ["a", "b"],
        "as-uid": "7",
        "as-user-extra": {"Scope": ["x", "y"]},
    }
    reach(KubernetesSettings(server.kubeconfig(tmp_path, token="t", **user)))
    assert server.authorizations == ["Bearer t"]
    assert server.impersonations == [
        [
            ("impersonate-user", "Ł"),
            ("impersonate-uid", "7"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-extra-scope", "x"),
            ("impersonate-extra-scope", "y"),
        ]
    ]


def test_insecure_skip_tls_verify(tls_server: ApiServer, tmp_path: Path) -> None:
    reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, {"insecure-skip-tls-verify": True}, token="t")))


def test_an_exec_plugin_with_a_certificate_alone_is_an_error(
    tls_server: ApiServer, authority: trustme.CA, tmp_path: Path
) -> None:
    issued = authority.issue_cert("admin@cluster.test")
    status = {
        "clientCertificateData": issued.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": issued.private_key_pem.bytes().decode(),
    }
    plugin = {"apiVersion": V1, "command": "echo", "args": [json.dumps({"status": status})]}
    roots = {"certificate-authority-data": encoded(authority.cert_pem)}
    with pytest.raises(ClusterError, match="prints a certificate and no token"):
        reach(KubernetesSettings(tls_server.kubeconfig(tmp_path, roots, exec=plugin)))
    assert tls_server.requests == []


@pytest.mark.parametrize("token", ["secret\n", "sec\rret"])
def test_an_invalid_token_is_not_in_the_error(server: ApiServer, tmp_path: Path, token: str) -> None:
    with pytest.raises(ClusterError, match="token: has characters that a header must not have") as caught:
        reach(KubernetesSettings(server.kubeconfig(tmp_path, token=token)))
    assert "ret" not in str(caught.value)


def test_a_password_in_the_url_is_not_in_the_error(server: ApiServer, tmp_path: Path) -> None:
    url = server.url.replace("://", "://me:secret@")
    with pytest.raises(ClusterError, match="404"):
        reach(KubernetesSettings(server.kubeconfig(tmp_path, {"server": url})))
    assert server.authorizations == ["Basic bWU6c2VjcmV0"]
    server.faults["get"].append(hang_up)
    with pytest.raises(ClusterError, match=server.url) as caught:
        reach(KubernetesSettings(server.kubeconfig(tmp_path, {"server": url})))
    assert "secret" not in str(caught.value)


@pytest.fixture
def pod(
    tls_server: ApiServer, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder with a pod's service account, for a pod in the cluster of ``tls_server``."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(tls_server.server_port))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "namespace").write_text("default")
    (tmp_path / "token").write_text("first")
    return tmp_path


async def test_service_account_with_a_renewed_token(tls_server: ApiServer, pod: Path) -> None:
    tls_server.token = "first"
    api = await asyncio.to_thread(connect, KubernetesSettings(), pod)
    await api.get("/api/v1/namespaces/red")
    tls_server.token = "second"
    (pod / "token").write_text("second")
    await api.get("/api/v1/namespaces/red")
    await api.close()
    assert tls_server.authorizations == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_new_client_uses_the_renewed_token(
    tls_server: ApiServer, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "RENEW_AFTER_S", 0.0)
    lent = ClusterAccess(KubernetesSettings(), pod)
    async with lent.api() as first:
        await first.get("/api/v1/namespaces/red")
        (pod / "token").write_text("second")
        async with lent.api() as second:
            await second.get("/api/v1/namespaces/red")
        # Still open, though there is a newer one.
        await first.get("/api/v1/namespaces/red")
    await lent.close()
    assert tls_server.authorizations == ["Bearer first", "Bearer second", "Bearer first"]


async def test_a_client_is_replaced_after_failures_but_not_after_each(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[KubernetesSettings]()

    def counted(settings: KubernetesSettings, service_account: Path) -> Any:
        made.append(settings)
        return connect(settings, service_account)

    monkeypatch.setattr(access, "connect", counted)
    monkeypatch.setattr(access, "RENEW_FAILED_AFTER_S", 60.0)
    namespaces = ClusterNamespaces(KubernetesSettings(server.kubeconfig(tmp_path)))
    for _ in range(3):
        server.faults["get"].append(refuse(403))
        with pytest.raises(ClusterError):
            await namespaces.get("red")
    assert len(made) == 1
    monkeypatch.setattr(access, "RENEW_FAILED_AFTER_S", 0.0)
    assert await namespaces.get("red") is None
    assert len(made) == 2
    assert await namespaces.get("red") is None
    assert len(made) == 2
    await namespaces.close()


async def test_a_client_lent_after_close_is_closed(server: ApiServer, tmp_path: Path) -> None:
    clients = list[Any]()
    lent = ClusterAccess(KubernetesSettings(server.kubeconfig(tmp_path)))
    await lent.close()
    async with lent.api() as first, lent.api() as second:
        clients.extend((first, second))
        with pytest.raises(ClusterError, match="404"):
            await second.get("/api/v1/namespaces/red")
    assert [client._client.is_closed for client in clients] == [True, True]


def test_outside_a_pod_without_a_kubeconfig_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="KUBERNETES_SERVICE_HOST is not set, so this is not a pod"):
        connect(KubernetesSettings(), tmp_path)


def test_a_pod_without_a_token_is_an_error(pod: Path) -> None:
    (pod / "token").unlink()
    with pytest.raises(ClusterError, match=r"no .*token; is automountServiceAccountToken false"):
        connect(KubernetesSettings(), pod)


@pytest.mark.parametrize(
    ("cluster", "user", "why"),
    [
        ({"certificate-authority": "missing.pem"}, {}, "missing.pem cannot be read: No such file"),
        (
            {"certificate-authority-data": "?"},
            {},
            ":4:5: clusters[0].cluster.certificate-authority-data: is not base64",
        ),
        ({}, {"client-certificate-data": "MTIz"}, "user.client-certificate-data: holds no PEM certificate"),
        ({}, {"client-key-data": "MTIz"}, "user.client-key-data: holds no PEM private key"),
        ({}, {"client-certificate": "missing.crt"}, "missing.crt cannot be read: No such file"),
        ({}, {"token": 5}, "user.token: found the number 5, expected"),
        ({}, {"auth-provider": {"name": "gcp"}}, 'auth-provider: found "gcp"'),
        ({}, {"as-groups": ["g"], "token": "t"}, "as: is required with as-uid, as-groups"),
        ({"server": "https://[::1"}, {}, "cannot be used"),
        ({"server": "ftp://x"}, {}, "expected an https URL"),
        ({"proxy-url": "socks5://127.0.0.1:1"}, {}, "SOCKS proxy"),
    ],
)
def test_the_error_of_an_unusable_kubeconfig_says_why(
    server: ApiServer, tmp_path: Path, cluster: dict[str, object], user: dict[str, object], why: str
) -> None:
    file = server.kubeconfig(tmp_path, cluster, **user)
    with pytest.raises(ClusterError) as caught:
        connect(KubernetesSettings(file))
    assert why in str(caught.value)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)

"""Verification of an HTTPS webhook's certificate, and the gateway's credentials for it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.kubeconfig import ExecPlugin, KubeconfigUser
from gateway.engine.credentials import exec_plugin, user_credentials
from gateway.pure.core.verdict import ALLOWED, Failed
from gateway.pure.core.webhook import HttpsClient
from tests.kit import free_port
from tests.world import opened_world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dispatch.https.conftest import Proxy
    from tests.webhook_process import WebhookProcess

EVENT_LOOPS = ("asyncio", "uvloop")

NOT_VERIFIED = "tls: failed to verify certificate: x509: "


async def ask(client: HttpsClient, user: KubeconfigUser | None = None) -> Any:
    async with opened_world() as world:
        await world.add_server(client, user)
        return await world.ask({"client": client})


@pytest.mark.parametrize("listener", ["good", "other_name", "expired"])
@pytest.mark.parametrize("is_right_ca", [True, False])
async def test_the_servers_certificate_is_verified(
    webhook: WebhookProcess, listener: str, is_right_ca: bool
) -> None:
    client = webhook.client({}, listener)
    if not is_right_ca:
        client = HttpsClient(client.url, webhook.other_ca.cert_pem.bytes())
    verdict = await ask(client)
    if listener == "good" and is_right_ca:
        assert verdict == ALLOWED
    else:
        assert isinstance(verdict, Failed)
        assert f'failed to call webhook: Post "{client.url[:100]}' in verdict.cause
        assert NOT_VERIFIED in verdict.cause


async def test_without_a_ca_bundle_the_systems_roots_are_used(webhook: WebhookProcess) -> None:
    verdict = await ask(HttpsClient(webhook.client().url))
    assert NOT_VERIFIED in verdict.cause


async def test_the_servers_own_certificate_can_be_the_root(webhook: WebhookProcess) -> None:
    assert await ask(HttpsClient(webhook.client().url, webhook.own_pem)) == ALLOWED


async def test_an_unreachable_server(webhook: WebhookProcess) -> None:
    unused_port = free_port()
    verdict = await ask(HttpsClient(f"https://127.0.0.1:{unused_port}/a", webhook.ca_pem))
    assert verdict.cause == (
        f'failed to call webhook: Post "https://127.0.0.1:{unused_port}/a?timeout=10s": '
        f"dial tcp 127.0.0.1:{unused_port}: connect: connection refused"
    )
    verdict = await ask(HttpsClient("https://nobody.invalid/a", webhook.ca_pem))
    assert "dial tcp: lookup nobody.invalid: " in verdict.cause


async def test_a_server_without_tls(webhook: WebhookProcess, proxy: Proxy) -> None:
    verdict = await ask(HttpsClient(f"https://127.0.0.1:{proxy.server_port}/a", webhook.ca_pem))
    assert isinstance(verdict, Failed)
    assert verdict.code == 503


def last_request(webhook: WebhookProcess, client: HttpsClient) -> dict[str, Any]:
    return webhook.requests(client)[-1]


async def test_credentials(webhook: WebhookProcess, tmp_path: Path) -> None:
    client = webhook.client({"credentials": True}, "asking")
    token_file = tmp_path / "token"
    token_file.write_text("from-file\n")
    basic = base64.b64encode(b"u:p:w").decode()
    for user, expected in (
        (KubeconfigUser(token="t1"), "Bearer t1"),
        (KubeconfigUser(token="t1", token_file=token_file), "Bearer from-file"),
        (KubeconfigUser(basic=("u", "p:w")), f"Basic {basic}"),
        (None, None),
    ):
        assert await ask(client, user=user) == ALLOWED
        assert last_request(webhook, client)["headers"].get("Authorization") == expected
    user = KubeconfigUser(impersonation=(("Impersonate-User", "Ł"), ("Impersonate-Group", "g")))
    assert await ask(client, user=user) == ALLOWED
    as_bytes = last_request(webhook, client)["headers"]["Impersonate-User"].encode("latin-1")
    assert as_bytes.decode() == "Ł"


async def test_a_token_is_read_again(
    webhook: WebhookProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_credentials, "READ_TOKENS_EVERY_S", 0.0)
    client, token_file = webhook.client({"renewed": True}), tmp_path / "token"
    token_file.write_text("first")

    before = len(webhook.requests(client))
    async with opened_world() as world:
        await world.add_server(client, user=KubeconfigUser(token_file=token_file))
        await world.settle({"client": client}, {"client": client})
        token_file.write_text("second")
        await world.ask({"client": client})
        token_file.unlink()
        await world.ask({"client": client})
        token_file.write_text("first")
    sent = [each["headers"]["Authorization"] for each in webhook.requests(client)[before:]]
    assert sent == ["Bearer first"] * 2 + ["Bearer second"] * 2


async def test_a_missing_token_file(webhook: WebhookProcess, tmp_path: Path) -> None:
    user = KubeconfigUser(token_file=tmp_path / "token")
    verdict = await ask(webhook.client(), user=user)
    assert verdict.cause.startswith(f"could not get REST client: {tmp_path}/token cannot be read")


@pytest.mark.parametrize("content", [None, " \n"])
async def test_a_token_is_revoked_by_deleting_or_emptying_its_file(
    content: str | None,
    webhook: WebhookProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only after two reads: the file may be in the middle of a replacement."""
    monkeypatch.setattr(user_credentials, "READ_TOKENS_EVERY_S", 0.0)
    client, token_file = webhook.client({"revoked": content}), tmp_path / "token"
    token_file.write_text("first")

    before = len(webhook.requests(client))
    async with opened_world() as world:
        await world.add_server(client, user=KubeconfigUser(token="beside", token_file=token_file))
        assert await world.ask({"client": client}) == ALLOWED
        if content is None:
            token_file.unlink()
        else:
            token_file.write_text(content)
        assert await world.ask({"client": client}) == ALLOWED
        for _ in range(3):
            verdict = await world.ask({"client": client})
            assert isinstance(verdict, Failed)
            assert verdict.cause.startswith(f"could not get REST client: {token_file} ")
        token_file.write_text("second")
        assert await world.ask({"client": client}) == ALLOWED
    sent = [each["headers"]["Authorization"] for each in webhook.requests(client)[before:]]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]
    assert sum("token revoked" in message for message in caplog.messages) == 1


async def test_the_gateways_own_certificate(webhook: WebhookProcess) -> None:
    client = webhook.client({"certificate": True}, "asking")
    pair = webhook.ca.issue_cert(common_name="the-gateway")
    certificate, key = pair.cert_chain_pems[0].bytes(), pair.private_key_pem.bytes()
    assert await ask(client, user=KubeconfigUser(certificate_pem=certificate, key_pem=key)) == ALLOWED
    assert "the-gateway" in last_request(webhook, client)["certificate"]
    assert await ask(client) == ALLOWED
    assert not last_request(webhook, client)["certificate"]


def plugin(tmp_path: Path, status: Any, code: int = 0) -> ExecPlugin:
    count = tmp_path / "count"
    printed = json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "status": status})
    program = (
        f"import os, sys; open({str(count)!r}, 'a').write('x' + os.environ['EXTRA']); "
        f"assert 'v1' in os.environ['KUBERNETES_EXEC_INFO']; print({printed!r}); "
        f"print('a secret', file=sys.stderr); sys.exit({code})"
    )
    return ExecPlugin(sys.executable, ("-c", program), (("EXTRA", "y"),))


async def test_exec_plugin_credentials(
    webhook: WebhookProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "RUN_AGAIN_AFTER_S", 0.0)
    client = webhook.client({"exec": True}, "asking")
    pair = webhook.ca.issue_cert(common_name="made")
    status = {
        "token": "made",
        "clientCertificateData": pair.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": pair.private_key_pem.bytes().decode(),
    }
    for extra, runs in (({}, 1), ({"expirationTimestamp": "2001-01-01T00:00:00Z"}, 2)):
        user = KubeconfigUser(plugin=plugin(tmp_path, status | extra))

        async with opened_world() as world:
            await world.add_server(client, user=user)
            for _ in range(2):
                assert await world.settle({"client": client}, {"client": client})
        assert last_request(webhook, client)["headers"]["Authorization"] == "Bearer made"
        assert "made" in last_request(webhook, client)["certificate"]
        assert (tmp_path / "count").read_text() == "xy" * runs
        (tmp_path / "count").unlink()


async def test_an_exec_plugin_may_take_longer_than_a_call(
    webhook: WebhookProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, gate = webhook.client({"slow exec": True}), tmp_path / "gate"
    os.mkfifo(gate)
    made = plugin(tmp_path, {"token": "late"})
    waits = ExecPlugin(
        made.command, ("-c", f"open({str(gate)!r}).read(); {made.arguments[1]}"), made.variables
    )

    async with opened_world() as world:
        await world.add_server(client, user=KubeconfigUser(plugin=waits))
        verdict = await world.ask({"client": client}, budget_s=0.05)
        assert isinstance(verdict, Failed)
        assert verdict.cause.startswith("DEADLINE_EXCEEDED")
        # On a busy machine the deadline may pass before the program starts; the next call starts it then.
        opened = asyncio.ensure_future(asyncio.to_thread(gate.write_text, "open"))
        assert await world.ask({"client": client}) == ALLOWED
        await opened
    assert last_request(webhook, client)["headers"]["Authorization"] == "Bearer late"
    assert (tmp_path / "count").read_text() == "xy"
    (tmp_path / "count").unlink()

    async with opened_world() as world:
        monkeypatch.setattr(exec_plugin, "RUN_TIMEOUT_S", 0.05)
        await world.add_server(client, user=KubeconfigUser(plugin=waits))
        verdict = await world.ask({"client": client})
        assert isinstance(verdict, Failed)
        assert verdict.cause.endswith(": not finished within 0.05s")


async def test_an_exec_plugin_that_fails(
    webhook: WebhookProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for made in (plugin(tmp_path, {}, 3), plugin(tmp_path, None), ExecPlugin(str(tmp_path / "absent"))):
        client = webhook.client()

        async with opened_world() as world:
            await world.add_server(client, user=KubeconfigUser(plugin=made))
            for _ in range(2):
                verdict = await world.ask({"client": client})
                assert isinstance(verdict, Failed)
                assert verdict.cause.startswith(f"could not get REST client: exec: {made.command}: ")
                assert verdict.code == 500
                assert "a secret" not in verdict.cause
        if (tmp_path / "count").exists():
            assert (tmp_path / "count").read_text() == "xy", "a program that fails is not run for every call"
            (tmp_path / "count").unlink()
    assert "ended with status 3: a secret" in caplog.text


async def test_through_a_proxy(
    webhook: WebhookProcess, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, port = webhook.client({}, "other_name"), webhook.ports["other_name"]
    client = HttpsClient(there.url.replace("localhost", "elsewhere.example"), there.ca_pem)
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{proxy.server_port}")
    assert await ask(client) == ALLOWED
    lines = proxy.heads[-1].splitlines()
    assert lines[0] == f"CONNECT elsewhere.example:{port} HTTP/1.1"
    assert "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in lines
    proxy.answer = "HTTP/1.1 407 No"
    verdict = await ask(client)
    assert "proxyconnect: the proxy answers 'HTTP/1.1 407 No', expected 200" in verdict.cause
    seen = len(proxy.heads)
    assert await ask(webhook.client()) == ALLOWED
    assert len(proxy.heads) == seen, "loopback is never called through a proxy"
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1")
    verdict = await ask(client)
    assert "proxyconnect: HTTPS_PROXY names no proxy of the form" in verdict.cause

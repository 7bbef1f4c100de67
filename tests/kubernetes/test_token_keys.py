"""The keys of webhook tokens: from the cluster or the issuer, read again on demand but not too often."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.kinds.webhook_token_settings import WebhookTokenSettings
from gateway.engine.credentials.webhook_tokens import WebhookTokens
from gateway.server.kubernetes import token_keys
from gateway.server.kubernetes.token_keys import JWKS_PATH, TokenKeys
from tests.credentials.test_webhook_tokens import EC, RSA, forged, jwk
from tests.kubernetes.server import ApiServer, refuse
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

FIRST: dict[str, Any] = {"keys": [jwk(RSA, "r")]}
BOTH: dict[str, Any] = {"keys": [jwk(RSA, "r"), jwk(EC, "e")]}
DISCOVERY = "/.well-known/openid-configuration"
UNKNOWN = forged({"alg": "ES256", "kid": "e"})


def follow(
    tokens: WebhookTokens,
    cluster: KubernetesSettings | None,
    scenario: Callable[[TokenKeys], Awaitable[None]],
) -> None:
    async def run() -> None:
        keys = TokenKeys(tokens, cluster)
        try:
            await scenario(keys)
        finally:
            await keys.close()

    asyncio.run(run())


@pytest.fixture
def tokens() -> WebhookTokens:
    return WebhookTokens(WebhookTokenSettings(audiences=("https://a",)), Counter())


def test_an_unknown_key_has_the_keys_read_once_and_not_again_at_once(
    server: ApiServer, tokens: WebhookTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = KubernetesSettings(server.kubeconfig(tmp_path))
    monkeypatch.setattr(token_keys, "AT_LEAST_S", 0.0)
    server.objects[JWKS_PATH] = FIRST

    async def scenario(_keys: TokenKeys) -> None:
        await until(lambda: set(tokens.keys) == {"r"})
        server.objects[JWKS_PATH] = BOTH
        # A made-up token has the keys read again; from now on that would be too early.
        monkeypatch.setattr(token_keys, "AT_LEAST_S", 3600.0)
        await until(tokens.request_keys)
        await until(lambda: set(tokens.keys) == {"r", "e"})
        await until(lambda: not tokens.request_keys())
        asked = server.asked("get")
        for _ in range(20):
            assert not tokens.request_keys()
            await asyncio.sleep(0)
        assert server.asked("get") == asked == 2

    follow(tokens, settings, scenario)


def test_the_last_keys_stay_while_nobody_answers(
    server: ApiServer, tokens: WebhookTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "AT_LEAST_S", 0.0)
    monkeypatch.setattr(token_keys, "EVERY_S", 0.0)
    settings = KubernetesSettings(server.kubeconfig(tmp_path))
    server.faults["get"].extend([refuse(403, "no openid for you")] * 2)
    server.objects[JWKS_PATH] = FIRST

    async def scenario(keys: TokenKeys) -> None:
        await until(lambda: "no openid for you" in keys.problem or tokens.keys)
        await until(lambda: set(tokens.keys) == {"r"} and not keys.problem)
        bad: list[dict[str, Any]] = [{"keys": []}, {"keys": [{"kty": "oct", "k": "AAAA", "kid": "x"}]}]
        for content in bad:
            server.objects[JWKS_PATH] = content
            await until(lambda: "holds no JSON Web Key Set" in keys.problem)
            assert set(tokens.keys) == {"r"}
            server.objects[JWKS_PATH] = FIRST
            await until(lambda: not keys.problem)
        del server.objects[JWKS_PATH]
        await until(lambda: "404" in keys.problem)
        assert set(tokens.keys) == {"r"}

    follow(tokens, settings, scenario)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, ""),
        ({"issuer": "https://other"}, "names another issuer"),
        ({"jwks_uri": "http://127.0.0.1/keys"}, "no https URL"),
        ({"jwks_uri": 3}, "no https URL"),
    ],
)
def test_keys_are_found_by_discovery(tmp_path: Path, document: dict[str, Any], problem: str) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    with ApiServer(context) as issuer:
        issuer.objects[DISCOVERY] = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys", **document}
        issuer.objects["/keys"] = BOTH
        settings = WebhookTokenSettings(
            ("https://a",), issuer.url, "Issuer", issuer_ca_file=tmp_path / "ca.crt"
        )
        found = WebhookTokens(settings, Counter())

        async def scenario(keys: TokenKeys) -> None:
            await until(lambda: problem in keys.problem if problem else found.keys)
            assert set(found.keys) == (set() if problem else {"r", "e"})

        follow(found, None, scenario)


def test_an_issuer_with_a_certificate_of_nobody_and_one_with_too_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    monkeypatch.setattr(token_keys, "MAX_KEYS_BYTES", len(json.dumps(BOTH)) - 1)
    with ApiServer(context) as issuer:
        issuer.objects[DISCOVERY] = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}
        issuer.objects["/keys"] = BOTH
        for ca_file, expected in ((None, "CERTIFICATE_VERIFY_FAILED"), (tmp_path / "ca.crt", "more than")):
            settings = WebhookTokenSettings(("https://a",), issuer.url, "Issuer", issuer_ca_file=ca_file)
            found = WebhookTokens(settings, Counter())

            async def scenario(keys: TokenKeys, expected: str = expected) -> None:
                await until(lambda: expected in keys.problem)

            follow(found, None, scenario)
            assert not found.keys

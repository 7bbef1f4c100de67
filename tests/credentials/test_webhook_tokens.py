"""Tokens of API servers (KEP-6060): what is accepted, and everything that is not."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.files import UnusableFileError
from gateway.config.kinds.webhook_token_settings import BoundRegistration, WebhookTokenSettings
from gateway.engine.credentials import webhook_tokens
from gateway.engine.credentials.webhook_tokens import KeysNotReadError, TokenError, WebhookTokens, read_keys

NOW = int(time.time())
DAY = 86_400
"""Longer than a test run: PyJWT takes the time from the system."""
BASE = "https://gateway.policies.svc:443"
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
VALIDATE, MUTATE = b"/validate.fail?timeout=10s", b"/mutate"
CLAIMS: dict[str, Any] = {
    "iss": "https://kubernetes.default.svc.cluster.local",
    "aud": [f"{BASE}/validate.fail"],
    "sub": "system:serviceaccount:kube-system:caller",
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + DAY,
    "kubernetes.io": {
        "namespace": "kube-system",
        "attestations": {"admissionReviewAPIGroups": ["*"]},
        "validatingwebhookconfiguration": {"name": "gateway", "uid": "u-1"},
    },
}
GROUP = {"attestations": {"admissionReviewAPIGroups": ["apps"]}}


def jwk(key: Any, kid: str, **more: object) -> dict[str, Any]:
    made: Any = (
        jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    )
    return {**json.loads(made.to_jwk(key.public_key())), "kid": kid, **more}


KEYS = json.dumps(
    {"keys": [jwk(RSA, "r", alg="RS256", use="sig"), jwk(EC, "e", alg="ES256", use="sig")]}
).encode()


def token(claims: dict[str, Any] | None = None, kid: str = "r", headers: Any = None, **more: Any) -> bytes:
    key, algorithm = (RSA, "RS256") if kid == "r" else (EC, "ES256")
    content = {**CLAIMS, **(claims or {}), **more}
    content = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(content, key, algorithm, {"kid": kid, **(headers or {})}).encode()


def tokens(**settings: Any) -> WebhookTokens:
    found = WebhookTokens(WebhookTokenSettings(audiences=(BASE,), **settings), Counter(), lambda: NOW)
    found.use_keys(read_keys(KEYS))
    return found


def refusal(found: WebhookTokens, content: bytes, target: bytes = VALIDATE) -> str:
    """Return the reason of the refusal; empty if *content* is accepted."""
    before, reason, text = found.refused.total(), "", ""
    try:
        found.check(content, target)
    except TokenError as error:
        reason, text = error.reason, str(error)
    assert found.refused.total() - before == bool(reason)
    assert len(content) < 40 or content[:40].decode("latin-1") not in text
    return reason


def private(**changes: object) -> dict[str, Any]:
    content = {**CLAIMS["kubernetes.io"], **changes}
    return {"kubernetes.io": {name: value for name, value in content.items() if value is not None}}


@pytest.mark.parametrize("kid", ["r", "e"])
def test_a_token_is_accepted_by_both_kinds_of_keys(kid: str) -> None:
    found = tokens()
    assert refusal(found, token(kid=kid)) == ""
    assert refusal(found, token(kid=kid, headers={"typ": None})) == ""
    assert found.api_group(token(kid=kid)) is None
    assert found.api_group(token(private(**GROUP), kid=kid)) == "apps"
    assert found.api_group(b"something else") is None


MUTATING = private(
    validatingwebhookconfiguration=None, mutatingwebhookconfiguration={"name": "gateway", "uid": "u-1"}
)
BOTH = private(mutatingwebhookconfiguration={"name": "gateway", "uid": "u-1"})


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": f"{BASE}/validate.fail"}, ""),
        ({"aud": ["https://other", f"{BASE}/validate.fail"]}, ""),
        ({"aud": [BASE]}, "audience"),
        ({"aud": f"{BASE}/validate.fail/"}, "audience"),
        ({"aud": "https://gateway.policies.svc/validate.fail"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": None}, "malformed"),
        ({"aud": [[]]}, "malformed"),
        ({"aud": 3}, "malformed"),
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "malformed"),
        ({"exp": None}, "malformed"),
        ({"exp": "x"}, "malformed"),
        ({"exp": 1e400}, "malformed"),
        ({"exp": NOW - DAY}, "expired"),
        ({"nbf": NOW + DAY}, "not_yet_valid"),
        ({"nbf": None, "iat": None}, ""),
        ({"kubernetes.io": None}, "attestation"),
        ({"kubernetes.io": []}, "attestation"),
        (private(attestations=None), "attestation"),
        (private(attestations={"admissionReviewAPIGroups": []}), "attestation"),
        (private(attestations={"admissionReviewAPIGroups": [""]}), "attestation"),
        (private(attestations={"admissionReviewAPIGroups": ["a", "b"]}), "attestation"),
        (private(attestations={"admissionReviewAPIGroups": "*"}), "attestation"),
        (private(validatingwebhookconfiguration=None), "binding"),
        (private(validatingwebhookconfiguration={"name": "gateway"}), "binding"),
        (private(validatingwebhookconfiguration="gateway"), "binding"),
        (BOTH, "binding"),
        (MUTATING, "binding"),
    ],
)
def test_claims_are_checked(claims: dict[str, Any], reason: str) -> None:
    assert refusal(tokens(), token(claims)) == reason


def test_a_binding_is_for_its_phase_and_the_listed_registrations() -> None:
    mutating = token({**MUTATING, "aud": f"{BASE}/mutate"})
    assert refusal(tokens(), mutating, MUTATE) == ""
    assert refusal(tokens(), token(aud=f"{BASE}/mutate"), MUTATE) == "binding"
    assert refusal(tokens(), token(aud=f"{BASE}/image-review"), b"/image-review") == "binding"
    kind = "ValidatingWebhookConfiguration"
    for registration, expected in (
        (BoundRegistration(kind, "gateway"), ""),
        (BoundRegistration(kind, "gateway", "u-1"), ""),
        (BoundRegistration(kind, "gateway", "u-2"), "binding"),
        (BoundRegistration(kind, "other"), "binding"),
        (BoundRegistration("MutatingWebhookConfiguration", "gateway"), "binding"),
    ):
        assert refusal(tokens(registrations=(registration,)), token()) == expected


def part(content: object) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def forged(header: object, payload: object = CLAIMS, signature: bytes = b"AAAA") -> bytes:
    return b".".join([part(header), part(payload), signature])


HEADER = {"alg": "RS256", "kid": "r"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "malformed"),
        (b"..", "malformed"),
        (b"a.b", "malformed"),
        (b"a.b.c.d", "malformed"),
        (b"\xff.\xff.\xff", "malformed"),
        (b"a" * 9000, "malformed"),
        (forged({"alg": "none", "kid": "r"}, signature=b""), "malformed"),
        (forged({"alg": "HS256", "kid": "r"}), "malformed"),
        (forged({"alg": ["RS256"], "kid": "r"}), "malformed"),
        (forged({"alg": "RS256"}), "malformed"),
        (forged({"alg": "RS256", "kid": 3}), "malformed"),
        (forged({**HEADER, "typ": "at+jwt"}), "malformed"),
        (forged({**HEADER, "crit": ["exp"]}), "malformed"),
        (forged({**HEADER, "jwk": jwk(RSA, "x")}), "malformed"),
        (forged({**HEADER, "jku": "https://example"}), "malformed"),
        (forged({**HEADER, "b64": False}), "malformed"),
        (forged(b'{"alg":"RS256","alg":"RS256","kid":"r"}'), "malformed"),
        (forged(b"[" * 5000), "malformed"),
        (forged(b"{" + b'"a":[' * 1000), "malformed"),
        (forged([]), "malformed"),
        (forged(HEADER), "signature"),
        (forged({"alg": "ES256", "kid": "r"}), "signature"),
        (forged({"alg": "RS512", "kid": "r"}), "signature"),
        (forged({"alg": "RS256", "kid": "e"}), "signature"),
        (forged({"alg": "RS256", "kid": "z" * 3000}), "unknown_key"),
        (token() + b"A", "signature"),
        (token()[:-8] + b"AAAAAAAA", "signature"),
    ],
)
def test_forgeries_are_refused(content: bytes, reason: str) -> None:
    assert refusal(tokens(), content) == reason


def test_a_repeated_claim_is_refused_even_if_it_is_signed() -> None:
    payload = json.dumps(CLAIMS)[:-1] + ', "aud": "https://other"}'
    signing = jwt.api_jws.PyJWS()
    signed = signing.encode(payload.encode(), RSA, "RS256", {"kid": "r"}).encode()
    assert refusal(tokens(), signed) == "malformed"


@given(st.binary(max_size=300), st.integers(0, 2), st.booleans())
def test_no_bytes_are_accepted_or_raise(noise: bytes, place: int, is_encoded: bool) -> None:
    parts = token().split(b".")
    parts[place] = part(noise) if is_encoded else noise
    assert refusal(tokens(), b".".join(parts)) != ""


@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_changed_byte_is_noticed(position: int, value: int) -> None:
    good = bytearray(token())
    position %= good.rindex(b".")
    if good[position] != value:
        good[position] = value
        assert refusal(tokens(), bytes(good)) != ""


def test_verified_tokens_are_kept_until_they_expire_and_no_longer_than_their_key() -> None:
    now = [float(NOW)]
    found = WebhookTokens(WebhookTokenSettings(audiences=(BASE,)), Counter(), lambda: now[0])
    assert refusal(found, token()) == "keys_not_read"
    found.use_keys(read_keys(KEYS))
    assert refusal(found, token()) == ""
    assert refusal(found, token(), b"/validate.ignore") == "audience"
    now[0] += DAY + 11
    assert refusal(found, token()) == "expired"
    now[0] = NOW
    found.use_keys(read_keys(json.dumps({"keys": [jwk(EC, "e")]}).encode()))
    assert refusal(found, token()) == "unknown_key"


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_tokens, "MAX_KEPT", 2)
    found = tokens()
    for number in range(4):
        assert refusal(found, token(jti=str(number))) == ""
    assert len(found._verified) == 2


def test_an_unknown_key_has_the_keys_read_again_if_that_is_allowed() -> None:
    found = tokens()
    unknown = forged({"alg": "RS256", "kid": "new"})
    assert refusal(found, unknown) == "unknown_key"
    found.request_keys = lambda: True
    with pytest.raises(KeysNotReadError):
        found.check(unknown, VALIDATE)


SMALL = rsa.generate_private_key(65537, 1024)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":[]}',
        b"[" * 100_000,
        json.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "r", "alg": "HS256"}]}).encode(),
        json.dumps({"keys": [jwk(SMALL, "r")]}).encode(),
        json.dumps({"keys": [jwk(RSA, "r", use="enc")]}).encode(),
        json.dumps({"keys": [{**jwk(RSA, "r"), "n": "!!"}]}).encode(),
        json.dumps({"keys": [{**jwk(RSA, "r"), "alg": "PS256"}]}).encode(),
        json.dumps({"keys": [{"kty": "RSA", "kid": "r"}, 3, None]}).encode(),
        json.dumps({"keys": [{"kty": "EC", "crv": "secp256k1", "kid": "r", "x": "AA", "y": "AA"}]}).encode(),
        b" " * 300_000 + KEYS,
    ],
)
def test_keys_that_cannot_verify_tokens_are_ignored(content: bytes) -> None:
    with pytest.raises(UnusableFileError):
        read_keys(content)


def test_other_kinds_of_keys_do_not_hide_good_ones() -> None:
    edwards = ed25519.Ed25519PrivateKey.generate().public_key()
    okp = {**json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(edwards)), "kid": "o"}
    assert set(read_keys(json.dumps({"keys": [okp, jwk(EC, "e"), "x"]}).encode())) == {"e"}

"""Tokens with which API servers authenticate at webhooks (KEP-6060): JSON Web Tokens bound to a registration.

A token is accepted if a key of the issuer signed it, it is valid now, its audience is the URL that is called,
it is bound to a webhook configuration of the path's phase (and to one that is listed, if any is), and it
attests the API group of the review. The group is compared later, when the body has been read.

The signature and the registered claims are verified by PyJWT. Everything that has not been verified yet is
bounded: the size of a token, its header fields, the cache of accepted tokens.

Source: KEP-6060; k8s.io/kubernetes pkg/serviceaccount/claims.go and
pkg/registry/core/serviceaccount/storage/token.go of 1.37; RFC 7515, 7517, 7519; RFC 8725.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections import Counter, OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import jwt
from jwt.types import Options

from gateway.base.files import UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.config.kinds.webhook_token_settings import WebhookTokenSettings

    Reason = Literal[
        "attestation",
        "audience",
        "binding",
        "expired",
        "issuer",
        "keys_not_read",
        "malformed",
        "not_yet_valid",
        "signature",
        "unknown_key",
    ]

MAX_TOKEN_BYTES: Final = 8 * 1024
"""A token of an API server has 1 to 2 KiB."""
MAX_KEYS_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100
MAX_KEPT: Final = 1024
"""Verified tokens that are kept: API servers use one for minutes, and a verification takes 0.1 ms."""
LEEWAY_S: Final = 10
"""Between the clocks of the issuer and the gateway."""
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
"""Those of API servers and of the signers that they can be given."""
KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
ANY_GROUP: Final = "*"
_HEADER_FIELDS: Final = {"alg", "kid", "typ"}
_MIN_RSA_BITS: Final = 2048
_OPTIONS: Final = Options(require=["exp", "iss", "aud"], verify_aud=False)

Keys = dict[str, jwt.PyJWK]
"""Public keys by id (kid)."""


class TokenError(Exception):
    """A token is refused. The text is for the caller, and has nothing of the token."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


class KeysNotReadError(TokenError):
    """The token may be valid: the key is not known, and the keys are about to be read."""

    def __init__(self) -> None:
        super().__init__("keys_not_read", "the keys of the issuer are being read")


class WebhookToken(NamedTuple):
    """A token whose signature is valid."""

    not_after: float
    """Unix time, seconds."""
    audiences: frozenset[str]
    registration: tuple[str, str, str]
    """Kind, name and UID."""
    api_group: str
    """The group of the reviews that it may be used for; ``*``: any."""


def read_keys(content: bytes) -> Keys:
    """Return the public keys in *content*, a JSON Web Key Set; other keys are ignored.

    Raises:
        UnusableFileError: it has no key that can verify tokens.
    """
    try:
        document = json.loads(content) if len(content) <= MAX_KEYS_BYTES else None
    except (ValueError, RecursionError):
        document = None
    listed = document.get("keys") if isinstance(document, dict) else None
    found: Keys = {}
    for one in listed[:MAX_KEYS] if isinstance(listed, list) else ():
        match one:
            case {"kid": str(kid), "kty": "RSA" | "EC", **rest} if rest.get("use", "sig") == "sig":
                pass
            case _:
                continue
        try:
            key = jwt.PyJWK({name: value for name, value in one.items() if name != "d"})
        except (jwt.PyJWTError, ValueError, TypeError, binascii.Error):
            continue
        is_strong = one["kty"] != "RSA" or key.key.key_size >= _MIN_RSA_BITS
        if key.algorithm_name in ALGORITHMS and is_strong:
            found[kid] = key
    if not found:
        raise UnusableFileError("holds no JSON Web Key Set with a public key of RSA or an elliptic curve")
    return found


class WebhookTokens:
    """The tokens that are accepted by *settings*, with the keys of :meth:`use_keys`."""

    def __init__(
        self,
        settings: WebhookTokenSettings,
        refused: Counter[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """*refused* counts refusals by reason. *clock* returns Unix time."""
        self.settings = settings
        self.refused = refused
        self.keys: Mapping[str, jwt.PyJWK] = {}
        self.request_keys: Callable[[], bool] = lambda: False
        """Is called for an unknown key; returns whether the keys are being read again because of it."""
        self._clock = clock
        self._verified: OrderedDict[bytes, WebhookToken] = OrderedDict()

    def use_keys(self, keys: Keys) -> None:
        """Verify by *keys* from now on."""
        self.keys = keys
        self._verified.clear()

    def check(self, token: bytes, target: bytes) -> None:
        """Check that *token* is valid for a request for *target*, its path and query.

        Raises:
            TokenError: it is not; counted.
        """
        try:
            found = self._find(token)
            path = target.partition(b"?")[0].decode("latin-1")
            if not any(base + path in found.audiences for base in self.settings.audiences):
                raise TokenError("audience", "the token is for another URL")
            self._check_registration(found.registration, path)
        except TokenError as error:
            self.refused[error.reason] += 1
            raise

    def api_group(self, token: bytes) -> str | None:
        """Return the API group that a valid *token* attests, or None for any or an invalid token."""
        try:
            group = self._find(token).api_group
        except TokenError:
            return None
        return None if group == ANY_GROUP else group

    def _check_registration(self, registration: tuple[str, str, str], path: str) -> None:
        kind, name, uid = registration
        phase = "/validate" if kind == KINDS[1] else "/mutate"
        allowed = self.settings.registrations
        is_allowed = not allowed or any(
            (one.kind, one.name) == (kind, name) and one.uid in (None, uid) for one in allowed
        )
        if not path.startswith(phase) or not is_allowed:
            raise TokenError("binding", "the token is bound to another webhook configuration")

    def _find(self, token: bytes) -> WebhookToken:
        digest = sha256(token).digest()
        found = self._verified.get(digest)
        if found is not None:
            self._verified.move_to_end(digest)
            if self._clock() > found.not_after + LEEWAY_S:
                raise TokenError("expired", "the token has expired")
            return found
        found = self._verify(token)
        if len(self._verified) >= MAX_KEPT:
            self._verified.popitem(last=False)
        self._verified[digest] = found
        return found

    def _verify(self, token: bytes) -> WebhookToken:
        """Return *token*, verified.

        Raises:
            TokenError: it is invalid.
        """
        if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
            raise TokenError("malformed", "expected a JSON Web Token of at most 8 KiB")
        header = _object_in(token.partition(b".")[0])
        kid, algorithm = header.get("kid"), header.get("alg")
        if not header.keys() <= _HEADER_FIELDS or str(header.get("typ", "JWT")).upper() != "JWT":
            raise TokenError("malformed", "the token's header has other fields than alg, kid and typ JWT")
        if not isinstance(kid, str) or algorithm not in ALGORITHMS:
            raise TokenError(
                "malformed", f"the token has no kid, or its alg is none of {', '.join(ALGORITHMS)}"
            )
        key = self.keys.get(kid)
        if key is None:
            if self.request_keys() or not self.keys:
                raise KeysNotReadError
            raise TokenError("unknown_key", "the token is signed with an unknown key")
        if key.algorithm_name != algorithm:
            raise TokenError("signature", "the token's signature is invalid")
        try:
            claims = jwt.decode(
                token, key, [algorithm], _OPTIONS, issuer=self.settings.issuer, leeway=LEEWAY_S
            )
        except jwt.ExpiredSignatureError:
            raise TokenError("expired", "the token has expired") from None
        except jwt.ImmatureSignatureError:
            raise TokenError("not_yet_valid", "the token is not valid yet") from None
        except jwt.InvalidIssuerError:
            raise TokenError("issuer", "the token has another issuer") from None
        except jwt.InvalidSignatureError:
            raise TokenError("signature", "the token's signature is invalid") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise TokenError("malformed", "the token cannot be read") from None
        # Once more: PyJWT takes the last of several claims of one name.
        return _read_claims(_object_in(token.split(b".")[1]), float(claims["exp"]))


def _read_claims(claims: dict[str, Any], not_after: float) -> WebhookToken:
    audience = claims["aud"]
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise TokenError("malformed", "the token's aud is not a text or list of texts")
    match claims.get("kubernetes.io"):
        case {"attestations": {"admissionReviewAPIGroups": [str(group)]}, **private} if group:
            pass
        case _:
            raise TokenError("attestation", "the token does not attest one API group")
    bound = [
        (kind, ref["name"], ref["uid"])
        for kind in KINDS
        if isinstance(ref := private.get(kind.lower()), dict)
        and isinstance(ref.get("name"), str)
        and isinstance(ref.get("uid"), str)
    ]
    if len(bound) != 1:
        raise TokenError("binding", "the token is not bound to one webhook configuration")
    return WebhookToken(not_after, frozenset(audiences), bound[0], group)


def _object_in(part: bytes) -> dict[str, Any]:
    """Return the JSON object in *part*, base64url without padding, which has each name once.

    Raises:
        TokenError: it is none.
    """
    try:
        text = base64.b64decode(part + b"=" * (-len(part) % 4), b"-_", validate=True)
        found = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise TokenError("malformed", "the token is not a JSON Web Token, or repeats a name") from None
    if not isinstance(found, dict):
        raise TokenError("malformed", "the token is not a JSON Web Token")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found

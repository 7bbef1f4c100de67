"""What an HTTPS webhook says: the bodies of its answers to verdicts.

The envelope comes first: an answer that is not to this call, or of another version, is none. Then the denial:
where ``allowed`` is not true nothing else in the answer takes that back, be it readable or not. Only then is
the rest held against kube-apiserver's rules. Of what does not count here only the outline is read, so an
answer that repeats its request costs no objects.

Source: kubernetes/apiserver plugin/webhook/request/admissionreview.go (verification, and its wording);
k8s.io/api admission/v1 types.go; k8s.io/apimachinery pkg/apis/meta/v1 types.go (Status).
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason
from gateway.dispatch.answers import MAX_PARTS
from gateway.dispatch.https.review import API_VERSIONS
from gateway.dispatch.verdicts import one_line

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.core.verdict import Verdict
    from gateway.core.webhook import Phase, ReviewVersion

KIND: Final = "AdmissionReview"

_SEPARATORS: Final = 4 * MAX_PARTS
"""Commas in an answer with as many parts as it may have, counted before it is read."""


class _Envelope(msgspec.Struct):
    response: msgspec.Raw = msgspec.Raw(b"null")
    kind: str | None = None
    api_version: str | None = msgspec.field(name="apiVersion", default=None)


class _Word(msgspec.Struct):
    """What decides."""

    uid: str | None = None
    allowed: bool | None = None


class _StatusCause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct):
    causes: list[_StatusCause | None] | None = None


class _BareStatus(msgspec.Struct):
    """A Status without what it may have very many of."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


class _Status(_BareStatus):
    details: _Details | None = None


class _BareResponse(msgspec.Struct):
    status: _BareStatus | None = None


class _Response(msgspec.Struct):
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = msgspec.field(name="patchType", default=None)
    audit_annotations: dict[str, str | None] | None = msgspec.field(name="auditAnnotations", default=None)
    warnings: list[str | None] | None = None


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_WORD: Final = msgspec.json.Decoder(_Word)
_BARE_RESPONSE: Final = msgspec.json.Decoder(_BareResponse)
_RESPONSE: Final = msgspec.json.Decoder(_Response)


class _Unreadable(Exception):
    """The answer cannot be decoded."""


def failed_call(reason: str, code: int = 503) -> Failed:
    """Return the failure of a call without an answer that can be read; *code* is for the metrics."""
    return Failed(FailureReason.STATUS, f"failed to call webhook: {one_line(reason)}", code)


def failed_before(reason: str) -> Failed:
    """Return the failure of a call that could not be made."""
    return Failed(FailureReason.STATUS, one_line(reason), 500)


def failed_invalid(reason: str) -> Failed:
    """Return the failure of an answer that is not as it has to be."""
    return Failed(FailureReason.MALFORMED, f"received invalid webhook response: {one_line(reason)}")


def read_answer(
    body: bytes, phase: Phase, version: ReviewVersion, uid: str
) -> Generator[None, None, Verdict]:
    """Return what *body* means as the answer to the review of *version* that was sent under *uid*.

    It yields between steps, in each of which *body* is read once at most.
    """
    try:
        return (yield from _read(body, phase, version, uid))
    except (_Unreadable, msgspec.DecodeError, UnicodeDecodeError) as error:
        return failed_call(f"the answer cannot be decoded: {error}")
    except RecursionError:
        return failed_call("the answer cannot be decoded: it nests too deeply")


def _read(body: bytes, phase: Phase, version: ReviewVersion, uid: str) -> Generator[None, None, Verdict]:
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        # The API server would read YAML and protobuf, too, which no webhook has been seen to answer with.
        raise _Unreadable("expected the JSON of an AdmissionReview")
    envelope = _ENVELOPE.decode(body)
    yield
    kind, api_version, expected = envelope.kind or "", envelope.api_version or "", API_VERSIONS[version]
    found = api_version or expected, kind or KIND
    if found != (expected, KIND):
        raise _Unreadable(f"expected {KIND} of {expected}, got {_quoted(found[1])} of {_quoted(found[0])}")
    raw = bytes(envelope.response)
    if raw == b"null":
        return failed_invalid("webhook response was absent")
    word = _WORD.decode(raw)
    yield
    if version == "v1":
        if (word.uid or "") != uid:
            return failed_invalid(f"expected response.uid={_quoted(uid)}, got {_quoted(word.uid or '')}")
        if not (api_version and kind):
            group, _, name = api_version.rpartition("/")
            expected = f"expected webhook response of {expected}, Kind={KIND}"
            return failed_invalid(f"{expected}, got {group}/{name}, Kind={kind}")
    if not word.allowed:
        return _denied(raw)
    if raw.count(b",") > _SEPARATORS:
        raise _Unreadable(f"it has more than {MAX_PARTS} warnings, annotations and causes")
    response = _RESPONSE.decode(raw)
    yield
    return _allowed(response, phase, version)


def _denied(raw: bytes) -> Denied:
    """Return the denial in *raw* with as much else as can be read."""
    response: _Response | None = None
    try:
        if raw.count(b",") <= _SEPARATORS:
            response = _RESPONSE.decode(raw)
        bare = response or _BARE_RESPONSE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            bare = _BARE_RESPONSE.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Denied()
    status = bare.status or _BareStatus()
    code, reason = status.code or 0, status.reason or ""
    return Denied(
        code if 400 <= code <= 599 else 400,
        reason,
        status.message or reason,
        () if response is None else _causes(response.status),
        *_said(response),
    )


def _causes(status: _Status | None) -> tuple[Cause, ...]:
    causes = status.details.causes if status is not None and status.details is not None else None
    return tuple(
        Cause(cause.reason or "", cause.message or "", cause.field or "")
        for cause in causes or ()
        if cause is not None
    )


def _said(response: _Response | None) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the warnings and the audit annotations."""
    if response is None:
        return (), ()
    warnings = tuple(text or "" for text in response.warnings or ())
    return warnings, tuple(
        sorted((key, text or "") for key, text in (response.audit_annotations or {}).items())
    )


def _allowed(response: _Response, phase: Phase, version: ReviewVersion) -> Verdict:
    text = response.patch or ""
    try:
        patch = base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        raise _Unreadable("response.patch: illegal base64 data") from None
    if version == "v1":
        if failure := _patch_failure(response, phase, has_patch=bool(patch)):
            return failure
    elif phase == "validate":
        patch = b""
    if not patch and not response.warnings and not response.audit_annotations:
        return ALLOWED
    return Allowed(patch, *_said(response))


def _patch_failure(response: _Response, phase: Phase, *, has_patch: bool) -> Failed | None:
    """Return what is wrong with the patch of an answer of v1, of which nobody looked at the content yet."""
    patch_type = response.patch_type
    if phase == "validate":
        for is_there, name in ((has_patch, "patch"), (patch_type is not None, "patchType")):
            if is_there:
                return failed_invalid(f"validating webhook may not return response.{name}")
        return None
    if has_patch and patch_type is None:
        return failed_invalid("webhook returned response.patch but not response.patchType")
    if patch_type is not None and not has_patch:
        return failed_invalid("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        return failed_invalid('webhook returned invalid response.patchType of ""')
    if patch_type not in (None, "JSONPatch"):
        code = response.status.code if response.status is not None else None
        cause = f"unsupported patch type {one_line(_quoted(patch_type))}"
        return Failed(FailureReason.PATCH_INVALID, cause, code if code is not None and code >= 400 else 400)
    return None


def _quoted(text: str | None) -> str:
    return msgspec.json.encode((text or "")[:1000]).decode()

"""AdmissionReviews of HTTPS webhooks: the request that is sent, and the verdict in the response.

Each call has its own uid, which the answer has to repeat. The uid is the first member of the request, as the
API server writes it, so that the gateway can exchange it without encoding the rest again.

An answer is checked in this order. First the envelope: version, kind and uid. Then ``allowed``: where it is
not true, the answer is a denial, whatever else can be read. Then the other rules of kube-apiserver. Members
that do not matter here are skipped without making objects, so an answer that repeats its request is cheap.

Source: kubernetes/apiserver plugin/webhook/request/admissionreview.go (verification, and its wording);
k8s.io/api admission/v1 types.go; k8s.io/apimachinery pkg/apis/meta/v1 types.go (Status).
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec
import orjson

from gateway.engine.dispatch.bounded_messages import MAX_PARTS
from gateway.engine.dispatch.verdicts import one_line
from gateway.pure.core.review import V1, V1BETA1
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Details, Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Phase, ReviewVersion

KIND: Final = "AdmissionReview"
API_VERSIONS: Final = {"v1": V1, "v1beta1": V1BETA1}

_HEADS: Final = {
    version: b'{"kind":"AdmissionReview","apiVersion":"%s","request":{"uid":"' % api_version.encode()
    for version, api_version in API_VERSIONS.items()
}
_UID: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"uid"[ \t\r\n]*:[ \t\r\n]*"[^"\\]*')

_MAX_COMMAS: Final = 4 * MAX_PARTS
"""Commas of an answer with ``MAX_PARTS`` warnings, annotations and causes, counted before it is decoded."""

_ESCAPE: Final = re.compile(
    rb"(?:\\\\)++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escaped backslashes in JSON, a surrogate pair, or, in the group, a lone surrogate."""
_MAX_REPAIRED_BYTES: Final = 64 * 1024
"""Longer answers are not searched for lone surrogates: that may take 0.2 s per megabyte."""

_BYTES_PER_STEP: Final = 256 * 1024
"""Bytes of a denial. To replace so many that are not UTF-8 takes some milliseconds."""

_MAX_CODE: Final = 999
"""The highest HTTP status that Go's server writes; higher ones make it panic."""


class Envelope(msgspec.Struct):
    """The members that every review has."""

    kind: str | None = None
    api_version: str | None = msgspec.field(name="apiVersion", default=None)


class _Envelope(Envelope):
    response: msgspec.Raw = msgspec.Raw(b"null")


class _Outcome(msgspec.Struct):
    """The members that decide."""

    uid: str | None = None
    allowed: bool | None = None


class _StatusCause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _BareDetails(msgspec.Struct):
    """StatusDetails without its lists."""

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    retry_after_seconds: _Int32 | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Details(_BareDetails):
    causes: list[_StatusCause | None] | None = None


class _ListMeta(msgspec.Struct, omit_defaults=True):
    self_link: str | None = msgspec.field(name="selfLink", default=None)
    resource_version: str | None = msgspec.field(name="resourceVersion", default=None)
    continue_: str | None = msgspec.field(name="continue", default=None)
    remaining_item_count: _Int64 | None = msgspec.field(name="remainingItemCount", default=None)


class _AnyStatus(msgspec.Struct):
    """A Status with a member of a wrong type."""

    code: object = None
    reason: object = None
    message: object = None


class _BareStatus(_AnyStatus):
    """A Status without its lists."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    status: str | None = None
    metadata: _ListMeta | None = None
    details: _BareDetails | None = None


class _Status(_BareStatus):
    details: _Details | None = None


class _Denial(msgspec.Struct):
    status: _AnyStatus | None = None


class _BareResponse(_Denial):
    status: _BareStatus | None = None


class _Response(_BareResponse):
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = msgspec.field(name="patchType", default=None)
    audit_annotations: dict[str, str | None] | None = msgspec.field(name="auditAnnotations", default=None)
    warnings: list[str | None] | None = None


EnvelopeType = TypeVar("EnvelopeType", bound=Envelope)
StructType = TypeVar("StructType", bound=msgspec.Struct)

_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_OUTCOME: Final = msgspec.json.Decoder(_Outcome)
_RESPONSE: Final = msgspec.json.Decoder(_Response)
_DENIALS: Final[tuple[msgspec.json.Decoder[_Denial], ...]] = tuple(
    msgspec.json.Decoder(kind) for kind in (_Response, _BareResponse, _Denial)
)
"""To decode a denial: first as much as possible, then less."""


class Unreadable(Exception):
    """The answer cannot be decoded."""


def write_review(version: ReviewVersion, request_json: bytes, uid: str) -> tuple[bytes, memoryview, bytes]:
    """Return the AdmissionReview of *version* with the AdmissionRequest *request_json*, its uid set to *uid*.

    It is in three pieces; the large one is a view of *request_json*, which many calls share.

    Raises:
        TypeError: the first member is not the uid, and the request nests too deeply to be encoded again.
    """
    found = _UID.match(request_json)
    if found is None or request_json[found.end() : found.end() + 1] != b'"':
        try:
            document = orjson.loads(request_json)
        except orjson.JSONDecodeError as error:
            raise TypeError("nests too deeply") from error
        request_json = orjson.dumps({"uid": "", **document} | {"uid": ""})
        found = _UID.match(request_json)
        assert found is not None
    return _HEADS[version] + uid.encode("ascii"), memoryview(request_json)[found.end() :], b"}\n"


def failed_call(reason: str, code: int = 503) -> Failed:
    """Return the failure of a call without a readable answer; *code* is for the metrics."""
    return Failed(FailureReason.STATUS, f"failed to call webhook: {one_line(reason)}", code)


def failed_before(reason: str) -> Failed:
    """Return the failure of a call that could not be sent."""
    return Failed(FailureReason.STATUS, one_line(reason), 500)


def failed_invalid(reason: str) -> Failed:
    """Return the failure of an invalid answer."""
    return Failed(FailureReason.MALFORMED, f"received invalid webhook response: {one_line(reason)}")


def read_answer(
    body: bytes, phase: Phase, version: ReviewVersion, uid: str
) -> Generator[None, None, Verdict]:
    """Return the verdict in *body*, the answer to the review of *version* with *uid*.

    It yields between steps; each reads *body* at most once.
    """
    return read_repaired(body, partial(_read, phase=phase, version=version, uid=uid))


def read_repaired(
    body: bytes, read: Callable[[bytes], Generator[None, None, Verdict]]
) -> Generator[None, None, Verdict]:
    """Return the verdict that *read* finds in *body*, or in a short *body* with its lone surrogates replaced.

    *read* raises Unreadable or an error of decoding if there is none.
    """
    try:
        try:
            return (yield from read(body))
        except msgspec.DecodeError:
            if len(body) > _MAX_REPAIRED_BYTES:
                raise
            return (yield from read(_repaired(body)))
    except (Unreadable, msgspec.DecodeError, UnicodeDecodeError) as error:
        return failed_call(f"the answer cannot be decoded: {error}")
    except RecursionError:
        return failed_call("the answer cannot be decoded: it nests too deeply")


def _repaired(body: bytes) -> bytes:
    """Return *body* with U+FFFD for each lone surrogate, as Go decodes JSON."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], body)


def read_envelope(
    body: bytes, decoder: msgspec.json.Decoder[EnvelopeType], api_version: str, kind: str
) -> EnvelopeType:
    """Return the envelope in *body*, with *api_version* and *kind* where they are absent.

    Raises:
        Unreadable: *body* is not a JSON object, or of another version or kind.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it cannot be decoded.
    """
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        # The API server reads YAML and protobuf too, but no known webhook answers with them.
        raise Unreadable(f"expected the JSON of an {kind}")
    envelope = decoder.decode(body)
    found = envelope.api_version or api_version, envelope.kind or kind
    if found != (api_version, kind):
        raise Unreadable(f"expected {kind} of {api_version}, got {_quoted(found[1])} of {_quoted(found[0])}")
    return envelope


def _read(body: bytes, phase: Phase, version: ReviewVersion, uid: str) -> Generator[None, None, Verdict]:
    expected = API_VERSIONS[version]
    envelope = read_envelope(body, _ENVELOPE, expected, KIND)
    yield
    kind, api_version = envelope.kind or "", envelope.api_version or ""
    raw = bytes(envelope.response)
    if raw == b"null":
        return failed_invalid("webhook response was absent")
    outcome = _OUTCOME.decode(raw)
    yield
    if version == "v1":
        if (outcome.uid or "") != uid:
            return failed_invalid(f"expected response.uid={_quoted(uid)}, got {_quoted(outcome.uid or '')}")
        if not (api_version and kind):
            group, _, name = api_version.rpartition("/")
            expected = f"expected webhook response of {expected}, Kind={KIND}"
            return failed_invalid(f"{expected}, got {group}/{name}, Kind={kind}")
    if not outcome.allowed:
        return (yield from _denied(raw))
    require_few_parts(raw)
    response = _RESPONSE.decode(raw)
    yield
    return _allowed(response, phase, version)


def _denied(raw: bytes) -> Generator[None, None, Denied]:
    """Return the denial in *raw* with as many other members as can be decoded."""
    response = (yield from decode_denial(raw, _DENIALS)) or _Denial()
    status = response.status or _AnyStatus()
    code = status.code if isinstance(status.code, int) and 400 <= status.code <= _MAX_CODE else 400
    reason = status.reason if isinstance(status.reason, str) else ""
    texts = code, reason, (status.message if isinstance(status.message, str) else "") or reason
    if not isinstance(status, _BareStatus):
        return Denied(*texts, (), *_warnings_and_annotations(response))
    details = status.details or _Details()
    outcome = status.status or ""
    return Denied(
        *texts,
        _causes(details),
        *_warnings_and_annotations(response),
        Details(
            details.name or "",
            details.group or "",
            details.kind or "",
            details.uid or "",
            details.retry_after_seconds or 0,
        ),
        "" if outcome in ("Success", "Failure") else outcome,
        _members(status.metadata or _ListMeta()),
    )


def require_few_parts(raw: bytes) -> None:
    """Raise Unreadable if *raw*, of an answer that allows the request, has too many parts to be decoded."""
    if raw.count(b",") > _MAX_COMMAS:
        raise Unreadable(f"it has more than {MAX_PARTS} warnings, annotations and causes")


def decode_denial(
    raw: bytes, decoders: Sequence[msgspec.json.Decoder[StructType]]
) -> Generator[None, None, StructType | None]:
    """Return the members of the denial in *raw* that the first possible one of *decoders* decodes, or None.

    The first decoder is for denials with few parts.
    """
    raw = yield from _unicode(raw)
    for decoder in decoders[raw.count(b",") > _MAX_COMMAS :]:
        yield
        try:
            return decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _unicode(raw: bytes) -> Generator[None, None, bytes]:
    """Return *raw* with U+FFFD in place of invalid UTF-8, as Go decodes JSON."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[str] = []
    for begin in range(0, len(raw), _BYTES_PER_STEP):
        end = begin + _BYTES_PER_STEP
        pieces.append(decoder.decode(raw[begin:end], final=end >= len(raw)))
        yield
    return "".join(pieces).encode()


def _members(metadata: _ListMeta) -> tuple[tuple[str, str | int], ...]:
    members: dict[str, str | int] = msgspec.to_builtins(metadata)
    return tuple((name, value) for name, value in members.items() if value != "")


def _causes(details: _BareDetails) -> tuple[Cause, ...]:
    causes = details.causes if isinstance(details, _Details) else None
    return tuple(
        Cause(cause.reason or "", cause.message or "", cause.field or "")
        for cause in causes or ()
        if cause is not None
    )


def _warnings_and_annotations(response: _Denial) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the warnings and the audit annotations."""
    if not isinstance(response, _Response):
        return (), ()
    warnings = tuple(text or "" for text in response.warnings or ())
    return warnings, annotations_of(response.audit_annotations)


def annotations_of(found: Mapping[str, str | None] | None) -> tuple[tuple[str, str], ...]:
    """Return the audit annotations *found* in an answer, sorted; null is an empty one."""
    return tuple(sorted((key, text or "") for key, text in (found or {}).items()))


def _allowed(response: _Response, phase: Phase, version: ReviewVersion) -> Verdict:
    text = response.patch or ""
    try:
        patch = base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        raise Unreadable("response.patch: illegal base64 data") from None
    if version == "v1":
        if failure := _patch_failure(response, phase, has_patch=bool(patch)):
            return failure
    elif phase == "validate":
        patch = b""
    if not patch and not response.warnings and not response.audit_annotations:
        return ALLOWED
    return Allowed(patch, *_warnings_and_annotations(response))


def _patch_failure(response: _Response, phase: Phase, *, has_patch: bool) -> Failed | None:
    """Return the failure if patch and patchType of a v1 answer do not fit together or with *phase*."""
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

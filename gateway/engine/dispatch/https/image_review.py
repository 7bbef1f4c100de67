"""A backend of the API server's ImagePolicyWebhook as a backend of the dispatcher.

It gets the images of pods in an ImageReview. Verdicts are kept for the settled time, retries have the API
server's delays, and a request without images to review is allowed without a call. An answer is read as an
AdmissionReview: where ``allowed`` is not true, it is a denial, whatever else can be read.

Source: k8s.io/kubernetes plugin/pkg/admission/imagepolicy/admission.go; k8s.io/api imagepolicy/v1alpha1
types.go; k8s.io/apiserver pkg/util/webhook/webhook.go (retries).
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gateway.engine.dispatch.https.connection import HttpResponse
from gateway.engine.dispatch.https.response import is_transient, judge
from gateway.engine.dispatch.https.review import (
    Envelope,
    annotations_of,
    decode_denial,
    failed_before,
    read_envelope,
    read_repaired,
    require_few_parts,
)
from gateway.engine.dispatch.https.server import HttpsServer
from gateway.engine.dispatch.verdict_cache import KeptVerdicts
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.engine.dispatch.calls import CallGroup
    from gateway.engine.dispatch.https.large_answers import LargeAnswerSlot
    from gateway.pure.core.call import Call, Payload
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import ImageReviewSettings

KIND: Final = "ImageReview"
API_VERSION: Final = "imagepolicy.k8s.io/v1alpha1"
ANNOTATION: Final = ".image-policy.k8s.io/"
"""Annotations of a pod with it in their keys are a part of the ImageReview."""
MAX_KEPT: Final = 1024
MAX_ATTEMPTS: Final = 5
BACKOFF_FACTOR: Final = 1.5
BACKOFF_JITTER: Final = 0.2


class _Envelope(Envelope):
    status: msgspec.Raw = msgspec.Raw(b"null")


class _Outcome(msgspec.Struct):
    """The member that decides."""

    allowed: bool | None = None


class _BareStatus(msgspec.Struct):
    """An ImageReviewStatus without its annotations."""

    reason: str | None = None


class _Status(_BareStatus):
    audit_annotations: dict[str, str | None] | None = msgspec.field(name="auditAnnotations", default=None)


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_OUTCOME: Final = msgspec.json.Decoder(_Outcome)
_STATUS: Final = msgspec.json.Decoder(_Status)
_DENIALS: Final[tuple[msgspec.json.Decoder[_BareStatus], ...]] = tuple(
    msgspec.json.Decoder(kind) for kind in (_Status, _BareStatus)
)
"""To decode a denial: first as much as possible, then less."""


def spec_of(payload: Payload) -> dict[str, Any] | None:
    """Return the spec of the ImageReview for *payload*; None if there are no images to review."""
    request, pod = payload.request.document, payload.object
    resource: Any = request.get("resource") or {}
    subresource = request.get("subResource") or ""
    if (resource.get("group") or "", resource.get("resource")) != ("", "pods") or pod is None:
        return None
    fields = {"": ("containers", "initContainers"), "ephemeralcontainers": ("ephemeralContainers",)}
    if subresource not in fields or request.get("operation") not in ("CREATE", "UPDATE"):
        return None
    found: Any = pod.get("spec") or {}
    metadata: Any = pod.get("metadata") or {}
    spec: dict[str, Any] = {
        "containers": [
            {"image": _text(each["image"])} if each.get("image") else {}
            for field in fields[subresource]
            for each in found.get(field) or ()
        ],
        "annotations": {
            key: _text(value)
            for key, value in (metadata.get("annotations") or {}).items()
            if ANNOTATION in key
        },
        "namespace": request.get("namespace") or "",
    }
    return {key: value for key, value in spec.items() if value}


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError
    return found


class ImageReviewServer(HttpsServer):
    """The server of ``clientConfig.imageReview``. Make it on a running event loop."""

    @cached_property
    def _kept(self) -> KeptVerdicts:
        """The verdicts, by the digest of the spec."""
        return KeptVerdicts(MAX_KEPT, self.now)

    async def review(self, group: CallGroup, call: Call, slot: LargeAnswerSlot) -> tuple[str, Verdict]:
        """Return the status code for the metrics, and the verdict."""
        settings = self.client.image_review
        assert settings is not None, "another client has another server"
        try:
            spec = spec_of(call.payload)
            if spec is None:
                return "OK", ALLOWED
            # A spec can have a MiB of annotations.
            key = hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).digest()
        except (AttributeError, TypeError):
            return "INTERNAL", failed_before("the object has no spec of a Pod")
        kept = self._kept.find(key)
        if kept is not None:
            return "OK", kept
        code, verdict = await self._ask_patiently(call, slot, _review_of(spec), settings)
        ttl_s = settings.allow_ttl_s if isinstance(verdict, Allowed) else settings.deny_ttl_s
        self._kept.keep(key, verdict, ttl_s)
        return code, verdict

    async def _ask_patiently(
        self, call: Call, slot: LargeAnswerSlot, body: bytes, settings: ImageReviewSettings
    ) -> tuple[str, Verdict]:
        """Return the status code for the metrics and the verdict of the last answer, after retries."""
        delay_s = settings.retry_backoff_s
        for _ in range(MAX_ATTEMPTS - 1):
            answer, may_retry = await self._ask(call, slot, body)
            if not may_retry:
                return answer
            slot.release()
            # Jitter keeps gateways apart; nothing secret depends on it.
            await asyncio.sleep(delay_s * (1 + BACKOFF_JITTER * random.random()))  # noqa: S311
            delay_s *= BACKOFF_FACTOR
        return (await self._ask(call, slot, body))[0]

    async def _ask(self, call: Call, slot: LargeAnswerSlot, body: bytes) -> tuple[tuple[str, Verdict], bool]:
        """Return the status code for the metrics and the verdict, and whether the API server would retry."""
        response = await self.post(call, slot, (body,), "")
        if isinstance(response, HttpResponse):
            return await self.read(response, slot, _judged(response))
        return response, "connection reset" in response[1].cause


def _review_of(spec: dict[str, Any]) -> bytes:
    """Return the ImageReview of *spec*."""
    review = {"kind": KIND, "apiVersion": API_VERSION, "metadata": {}, "spec": spec}
    return orjson.dumps({**review, "status": {"allowed": False}})


def _judged(response: HttpResponse) -> Generator[None, None, tuple[tuple[str, Verdict], bool]]:
    may_retry = is_transient(response)
    yield
    return (yield from judge(response, read_answer)), may_retry


def read_answer(body: bytes) -> Generator[None, None, Verdict]:
    """Return the verdict in *body*, the answer to an ImageReview.

    It yields between steps; each reads *body* at most once.
    """
    return read_repaired(body, _read)


def _read(body: bytes) -> Generator[None, None, Verdict]:
    raw = bytes(read_envelope(body, _ENVELOPE, API_VERSION, KIND).status)
    yield
    if raw == b"null":
        raw = b"{}"
    is_allowed = _OUTCOME.decode(raw).allowed
    yield
    if is_allowed:
        require_few_parts(raw)
        found = _STATUS.decode(raw)
        yield
        annotations = annotations_of(found.audit_annotations)
        return Allowed(b"", (), annotations) if annotations else ALLOWED
    status = (yield from decode_denial(raw, _DENIALS)) or _BareStatus()
    message = "one or more images rejected by webhook backend"
    if status.reason:
        message = f"image policy webhook backend denied one or more images: {status.reason}"
    annotations = annotations_of(status.audit_annotations if isinstance(status, _Status) else None)
    return Denied(403, "Forbidden", message, (), (), annotations)

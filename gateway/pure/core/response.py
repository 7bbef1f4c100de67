"""Decision to AdmissionReview bytes, in the version that the review came in.

Source: k8s.io/api admission/v1 types.go; meta/v1 Status.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

import orjson

from gateway.pure.core.review import V1, V1BETA1

if TYPE_CHECKING:
    from gateway.pure.core.decision import Decision, Status

_HEADS: Final = {
    version: b'{"kind":"AdmissionReview","apiVersion":"%s","response":{"uid":' % version.encode()
    for version in (V1, V1BETA1)
}


def encode(api_version: str, uid: str, decision: Decision) -> bytes:
    """Return the JSON of the AdmissionReview that answers the request *uid* with *decision*."""
    head = _HEADS[api_version] + orjson.dumps(uid)
    body: dict[str, object] = {}
    if decision.status is not None:
        body["status"] = _status(decision.status)
    if decision.patch:
        body["patch"] = b64encode(decision.patch).decode()
        body["patchType"] = "JSONPatch"
    if decision.audit_annotations:
        body["auditAnnotations"] = decision.audit_annotations
    if decision.warnings:
        body["warnings"] = decision.warnings
    head += b',"allowed":true' if decision.allowed else b',"allowed":false'
    if not body:
        return head + b"}}"
    return head + b"," + orjson.dumps(body, option=orjson.OPT_SORT_KEYS)[1:] + b"}"


def _status(status: Status) -> dict[str, object]:
    details = status.details
    document: dict[str, object] = {
        "status": status.status,
        "message": status.message,
        "reason": status.reason,
        "code": status.code,
        "metadata": dict(status.metadata),
        "details": _filled(
            {
                "name": details.name,
                "group": details.group,
                "kind": details.kind,
                "uid": details.uid,
                "retryAfterSeconds": details.retry_after_seconds,
                "causes": [
                    _filled({"reason": cause.reason, "message": cause.message, "field": cause.field})
                    for cause in status.causes
                ],
            }
        ),
    }
    return _filled(document)


def _filled(members: dict[str, object]) -> dict[str, object]:
    """Return *members* without the empty ones, which the API server treats as absent."""
    return {name: value for name, value in members.items() if value}

"""What an AdmissionReview with its answer means for the client that sent it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import orjson

from loadtest.generator import REFUSED

if TYPE_CHECKING:
    from loadtest.http_client import Answer

Outcome = Literal["allowed", "failed open", "denied", "failed", "refused", "lost"]
"""Failed: denied with code 500, because a webhook failed whose failurePolicy is Fail. Lost: any answer that
kube-apiserver would not understand, or that belongs to another review."""
FAILED: Final = 500
MAX_TEXT: Final = 200


def outcome_of(answer: Answer, uid: str) -> tuple[Outcome, str]:
    """Return the outcome of the review *uid*, and the reason unless it was allowed."""
    text = answer.body[:MAX_TEXT].decode(errors="replace")
    if answer.status == REFUSED:
        return "refused", f"503: {text}"
    if answer.status != 200:
        return "lost", f"{answer.status_line}: {text}"
    try:
        document = orjson.loads(answer.body)
        kind, response = document["kind"], document["response"]
        found, allowed, status = response["uid"], response["allowed"], response.get("status", {})
        code, message = status.get("code", 0), status.get("message", "")
        failed_open = any("failed-open." in key for key in response.get("auditAnnotations", {}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "lost", f"not an AdmissionReview: {text}"
    if kind != "AdmissionReview" or not isinstance(allowed, bool):
        return "lost", f"not an AdmissionReview: {text}"
    if found != uid:
        return "lost", f"expected the uid {uid}, found {found}"
    if allowed:
        return ("failed open" if failed_open else "allowed"), ""
    return ("failed", message) if code == FAILED else ("denied", f"{code}: {message}")

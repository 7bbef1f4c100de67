"""What the answers to the Locust users mean: which are failures of the path, and which are a policy's word.

Source: Kubernetes documentation, "Dynamic Admission Control" (response, failure policy);
kubernetes/apiserver, ``pkg/admission/plugin/webhook/errors/statuserror.go`` for how a denial is worded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

DENIED: Final = re.compile(r'admission webhook "[^"]+" denied the request')
UID: Final = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
LONGEST: Final = 300
"""Of a message, in characters: Locust prints one line for each."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request."""

    problem: str = ""
    """Why it counts as a failure; empty if it does not."""
    denied: bool = False
    """A policy said no."""


def of_review(status: int, body: bytes, uid: str) -> Outcome:
    """Return what a gateway's answer to the review *uid* means."""
    if status != 200:
        return Outcome(f"HTTP status {status}")
    try:
        response = orjson.loads(body)["response"]
        found, allowed = response["uid"], response["allowed"]
        code = (response.get("status") or {}).get("code", 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Outcome("not an AdmissionReview")
    if found != uid:
        return Outcome("the uid is not that of the review")
    if allowed:
        return Outcome()
    return Outcome(f"failed closed, code {code}") if code >= 500 else Outcome(denied=True)


def of_create(status: int, body: bytes, prefix: str) -> Outcome:
    """Return what an API server's answer to a create under ``generateName`` *prefix* means.

    A denial by a webhook comes as a Status whose code is the webhook's; one of 500 and more is how a gateway
    fails closed. A webhook that could not be called makes a 500. Every other refusal (of authorization, of
    validation, of a quota) may have come before the webhooks were asked, and so measures nothing.
    """
    if status in (200, 201, 202):
        return Outcome()
    try:
        document: Any = orjson.loads(body)
        message = str(document["message"])
    except (ValueError, KeyError, TypeError):
        message = body[:LONGEST].decode(errors="replace")
    if status < 500 and DENIED.match(message):
        return Outcome(denied=True)
    # Each name, and each uid, would be a failure of its own in Locust's table.
    message = UID.sub("*", re.sub(re.escape(prefix) + r"[a-z0-9]{5}\b", prefix + "*", message))
    return Outcome(f"HTTP status {status}: {message[:LONGEST]}")

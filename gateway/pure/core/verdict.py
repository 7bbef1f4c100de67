"""The result of one call: the worker's answer, or a failure.

There are three types: the policy allows, the policy denies (final, regardless of failurePolicy), and the call
gave no usable answer (failurePolicy decides). ``DryRunRefused`` is the fourth way in which a webhook ends a
request: it was not called.

Source: kubernetes/apiserver plugin/webhook/errors, and the tables of kube-apiserver's two dispatchers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class FailureReason(Enum):
    """Why there is no usable answer of a webhook."""

    STATUS = "the worker or the transport answered a gRPC status other than OK"
    DEADLINE = "no answer in time"
    MALFORMED = "an answer that cannot be read"
    PATCH_INVALID = "a patch that is not a JSON Patch"
    PATCH_INAPPLICABLE = "a patch that does not apply"
    PATCH_REFUSED = "a patch whose result the API server refuses"
    PATCH_FORBIDDEN = "a patch where none may come"
    NAMESPACE = "the namespace cannot be looked up"
    CONDITION = "a matchCondition that cannot be evaluated"
    PARAMETERS = "parameters that cannot be used"
    POLICY = "an admission policy that cannot be evaluated"


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of ``status.details.causes``; empty fields are left out."""

    reason: str = ""
    message: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Details:
    """``status.details`` of a denial without its causes; empty fields are left out.

    Source: meta/v1 StatusDetails.
    """

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    retry_after_seconds: int = 0
    """An int32. If it is above 0, the API server sends it to its client as ``Retry-After``, with any code."""


NO_DETAILS: Final = Details()


@dataclass(frozen=True, slots=True)
class Allowed:
    """The policy allows the request, perhaps with a patch."""

    patch: bytes = b""
    """A JSON Patch as the worker wrote it; empty for none."""
    warnings: tuple[str, ...] = ()
    audit_annotations: tuple[tuple[str, str], ...] = ()
    """Key and value, sorted by key."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The policy refuses the request. ``code`` is an HTTP status from 400 to 999."""

    code: int = 400
    reason: str = ""
    message: str = ""
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()
    audit_annotations: tuple[tuple[str, str], ...] = ()
    details: Details = NO_DETAILS
    status: str = ""
    """``status.status`` of an HTTPS webhook's answer. Empty stands for ``Failure``."""
    metadata: tuple[tuple[str, str | int], ...] = ()
    """Members of ``status.metadata`` (meta/v1 ListMeta) of an HTTPS webhook's answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no usable answer; the webhook's failurePolicy decides."""

    reason: FailureReason
    cause: str
    """The text after ``failed calling webhook "NAME": ``."""
    code: int = 503
    """HTTP status of the failure in metrics; the user always gets 500."""


@dataclass(frozen=True, slots=True)
class DryRunRefused:
    """The request is a dry run, and the webhook's sideEffects forbid a call."""


Verdict = Allowed | Denied | Failed

ALLOWED: Final = Allowed()
"""The most frequent verdict."""

DRY_RUN_REFUSED: Final = DryRunRefused()

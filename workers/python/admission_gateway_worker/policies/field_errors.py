"""Problems of fields, and the denial that reports them.

Source: k8s.io/apimachinery pkg/util/validation/field errors.go; pkg/api/errors errors.go (NewInvalid).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission_gateway_worker.policies.builtin import aggregated, quoted
from admission_gateway_worker.review import Cause, Denied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission_gateway_worker.review import Review


@dataclass(frozen=True, slots=True)
class FieldError:
    """A problem of one field of an object."""

    field: str
    """Path, such as ``metadata.labels[app]``."""
    reason: str
    """CauseType of Kubernetes, such as ``FieldValueInvalid``."""
    body: str
    """Text without the path."""

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def invalid_value(field: str, value: str, problem: str) -> FieldError:
    """Return the error of a field with the malformed text *value*."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {problem}")


def invalid(review: Review, errors: Sequence[FieldError]) -> Denied:
    """Return the denial, with status 422, of an object with *errors*."""
    group, kind = review.kind.get("group", ""), review.kind.get("kind", "")
    subject = f"{kind}.{group}" if group else kind
    return Denied(
        f"{subject} {quoted(review.name)} is invalid: {aggregated(map(str, errors))}",
        code=422,
        reason="Invalid",
        causes=[Cause(error.body, error.field, error.reason) for error in errors],
        name=review.name,
        group=group,
        kind=kind,
    )

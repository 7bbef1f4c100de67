"""Scope, refusals and problems of fields of the ports of Kubernetes' built-in admission controllers.

A controller that both changes and checks objects is two policies: ``NAME``, mutating, and ``NAME-validate``,
which sees the object after all changes.

Source: k8s.io/apiserver pkg/admission/errors.go; k8s.io/apimachinery pkg/api/errors, pkg/util/errors,
pkg/util/validation/field errors.go; strconv.Quote of Go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.review import Cause, Denied

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission_gateway_worker.review import Review

_ESCAPES: Final = {
    **{ord(char): f"\\{letter}" for char, letter in zip("\a\b\f\n\r\t\v", "abfnrtv", strict=True)},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}
LABEL_KEY: Final = re.compile(
    r"(?=.{1,317}$)([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(?=[^/]{1,63}$)([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
)
LABEL_VALUE: Final = re.compile(r"(?=.{0,63}$)(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": False}


def rule(resource: str, *operations: str, group: str = "", version: str = "v1") -> dict[str, Any]:
    """Return one entry of ``rules`` of a webhook."""
    return {
        "operations": list(operations),
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
    }


PODS: Final = rule("pods", "CREATE", "UPDATE")


def is_for(review: Review, rules: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one of *rules* matches the request, whatever its version, and it has an object."""
    resource = review.resource
    plural = resource.get("resource", "")
    if review.sub_resource:
        plural += f"/{review.sub_resource}"
    return isinstance(review.object, dict) and any(
        plural in each["resources"]
        and review.operation in each["operations"]
        and resource.get("group", "") in each["apiGroups"]
        for each in rules
    )


def annotations_of_namespace(review: Review) -> Mapping[str, str]:
    """Return the annotations of the request's Namespace.

    Raises:
        LookupError: the gateway does not know the Namespace.
    """
    namespace = review.namespace_object
    if namespace is None:
        raise LookupError(
            f"the gateway has not sent the namespace {quoted(review.namespace)}, whose annotations this "
            "policy needs: its GatewayConfiguration needs the field kubernetes"
        )
    found: Mapping[str, str] = (namespace.get("metadata") or {}).get("annotations") or {}
    return found


def forbidden(review: Review, text: str, name: str | None = None) -> Denied:
    """Return the refusal of the built-in controllers: ``pods "web" is forbidden: TEXT``.

    *name* is that of the object by default; ``generateName`` stands for a name that is not yet generated.
    """
    group, plural = review.resource.get("group", ""), review.resource.get("resource", "")
    if name is None:
        metadata = (review.object or {}).get("metadata") or {}
        name = review.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    subject = f"{plural}.{group}" if group else plural
    if name:
        subject += f" {quoted(name)}"
    return Denied(f"{subject} is forbidden: {text}", reason="Forbidden", name=name, group=group, kind=plural)


def failed(text: str) -> Denied:
    """Return the refusal for an error without a status, which the API server answers with 500."""
    return Denied(text, code=500)


def aggregated(texts: Iterable[str]) -> str:
    """Return *texts* as one error: a list in brackets if there are several; repeated ones are left out."""
    distinct = tuple(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def quoted(text: str) -> str:
    """Return *text* in double quotes, as ``%q`` of Go."""
    found = text.translate(_ESCAPES)
    return f'"{found}"' if found.isprintable() else f'"{"".join(map(_escaped, found))}"'


def _escaped(char: str) -> str:
    code = ord(char)
    if char.isprintable():
        return char
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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

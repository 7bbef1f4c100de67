"""Warnings about the expressions of a ValidatingAdmissionPolicy, as the API server writes them to its status.

Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/typechecking.go, TypeCheckingResults;
github.com/google/cel-go common/error.go, ToDisplayString.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.admission_policies.type_checking import type_errors
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.admission_policies.model import ValidatingPolicy
    from gateway.pure.admission_policies.type_checking import KindsOf, TypeCheckError
    from gateway.pure.openapi.schemas import GroupVersionKind, Schemas

MAX_WARNINGS: Final = 32
MAX_WARNING_CHARS: Final = 16384
"""Together they are smaller than an object may be. The API server has no limit."""
_MAX_SNIPPET_BYTES: Final = 16384
_WIDE: Final = 0x80
"""Characters from this one on have several bytes, and get wide marks."""


class ExpressionWarning(NamedTuple):
    """An expression that cannot succeed on some kinds."""

    field_ref: str
    """The path of the expression in the policy."""
    warning: str
    """The text of the API server, with a paragraph for each kind."""
    summary: str
    """One line with the first error."""


def expression_warnings(policy: ValidatingPolicy, schemas: Schemas) -> tuple[ExpressionWarning, ...]:
    """Return the first warnings about *policy*, by the *schemas* of the kinds that it matches."""
    found = []
    for field, grouped in groupby(type_errors(policy, schemas, kinds_of(schemas)), lambda one: one.field):
        errors = list(grouped)
        more = f" and {len(errors) - 1} more kinds" if len(errors) > 1 else ""
        summary = f"{field} cannot succeed on {errors[0].kind}{more}: {errors[0].message}"
        warning = "\n".join(map(_paragraph, errors))[:MAX_WARNING_CHARS]
        found.append(ExpressionWarning(field, warning, summary))
        if len(found) == MAX_WARNINGS:
            break
    return tuple(found)


def custom_versions(policies: Iterable[ValidatingPolicy]) -> frozenset[tuple[str, str]]:
    """Return groups and versions that *policies* name, without those of Kubernetes itself."""
    rules = (rule for policy in policies for named in policy.match.named_rules for rule in named.rules)
    found = ((group, version) for rule in rules for group in rule.api_groups for version in rule.api_versions)
    return frozenset(
        (group, version) for group, version in found if group not in RESOURCES and "*" not in (group, version)
    )


def _paragraph(error: TypeCheckError) -> str:
    line, column, message = error.message.split(":", 2)
    kind = f"{error.kind.group}/{error.kind.version}, Kind={error.kind.kind}"
    found = f"{kind}: ERROR: <input>:{line}:{column}:{message}"
    snippet = error.expression.split("\n")[int(line) - 1].replace("\t", " ")
    if len(snippet.encode(errors="replace")) <= _MAX_SNIPPET_BYTES:
        before, at = snippet[: int(column) - 1], snippet[int(column) - 1 : int(column)]
        dots = "".join("\uff0e" if ord(one) >= _WIDE else "." for one in before)
        mark = "\uff3e" if at and ord(at) >= _WIDE else "^"
        found += f"\n | {snippet}\n | {dots}{mark}"
    return f"{found}\n"


def kinds_of(schemas: Schemas) -> KindsOf:
    """Return the function from group, version and resource to the kinds that *schemas* has of it.

    As in the API server, the empty group stands for every group: ``deployments`` of the group "" are those of
    apps. Source: k8s.io/apimachinery pkg/api/meta/restmapper.go (KindsFor).
    """
    by_version: dict[tuple[str, str], list[GroupVersionKind]] = {}
    for kind in schemas.kinds:
        by_version.setdefault((kind.group, kind.version), []).append(kind)

    def of_resource(group: str, version: str, resource: str) -> list[GroupVersionKind]:
        groups = (
            [group] if group else sorted({one for one, in_version in by_version if in_version == version})
        )
        return [kind for each in groups for kind in of_group(each, version, resource)]

    def of_group(group: str, version: str, resource: str) -> list[GroupVersionKind]:
        known = RESOURCES.get(group, {}).get(resource)
        names = {resource} if known is None else known.other_names
        return [
            each
            for each in by_version.get((group, version), ())
            if each.kind.lower() in names or _plural(each.kind.lower()) in names
        ]

    return of_resource


def _plural(kind: str) -> str:
    """Return the usual name of the resource of *kind*, which is in lower case."""
    if kind.endswith("s"):
        return f"{kind}es"
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"

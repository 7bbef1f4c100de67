"""PolicyException of ``policies.kyverno.io``: its fields, and its conditions for a policy.

Source: github.com/kyverno/api policies.kyverno.io v1alpha1 policy_exception.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import Choice, Declared, Groups, Read, Text, Texts, declare, required
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_spec import Expressions, spec_json
from gateway.config.loaders.kyverno_spec import (
    CONDITIONS,
    ConditionEntry,
    compiled_conditions,
    id_of,
)
from gateway.config.loaders.part import Part
from gateway.config.yaml.fields import RFC_3339
from gateway.pure.cel.dialects import KYVERNO_EXCEPTION
from gateway.pure.kyverno.exceptions import CelException

if TYPE_CHECKING:
    from collections.abc import Set
    from typing import Any

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields

KIND: Final = "PolicyException"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PolicyRef(Declared):
    name: str = required(Text(check=lambda text: None if text else "is empty, expected a name"), "Name")
    kind: str = required(Text(check=lambda text: None if text else "is empty, expected a kind"), "Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec(Declared):
    policy_refs: tuple[_PolicyRef, ...] = required(Groups(_PolicyRef), "The policies that it is about")
    match_conditions: tuple[ConditionEntry, ...] = declare(CONDITIONS, "All have to hold", default=())
    images: tuple[str, ...] = declare(Texts(), "For `exceptions.allowedImages`", default=())
    allowed_values: tuple[str, ...] = declare(Texts(), "For `exceptions.allowedValues`", default=())
    report_result: str = declare(Choice(("skip", "pass")), "Not used: it is for reports", default="skip")
    expires_at: str = declare(
        Text("time by RFC 3339", format="date-time", pattern=f"^{RFC_3339.pattern}$"), "The end", default=""
    )
    properties: dict[str, str] = declare(
        Read("mapping of strings", lambda source, name: source.string_map(name), "object"),
        "Not used",
        default={},
    )
    evaluation_mode: str = declare(Text(), "Not used", default="")

    end: float | None = None
    """In seconds since 1970."""

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the end as it is written, and in seconds."""
        if not source.has("expiresAt"):
            return {}
        return {"expires_at": str(source.content["expiresAt"]), "end": source.time("expiresAt", 0.0)}


@dataclass(frozen=True, slots=True, eq=False)
class ReadException(Part):
    """One PolicyException, read for the policies that it names."""

    is_exception = True

    document: Document
    kind: str
    id: str
    refs: frozenset[tuple[str, str]]
    """Kind and name of the policies."""
    spec: _Spec
    exception: CelException


def read_exception(document: Document, fields: Fields) -> ReadException:
    """Return the exception behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=True)
    fields.accept("status")
    source = fields.required_group("spec")
    fields.finish()
    spec = _Spec.read(source)
    expressions = Expressions(has_params=False, dialect=KYVERNO_EXCEPTION)
    conditions = compiled_conditions(spec.match_conditions, expressions)
    exception = CelException(
        id_of(metadata),
        conditions,
        spec.images,
        spec.allowed_values,
        spec.end,
        spec_json(source.content),
    )
    refs = frozenset((each.kind, each.name) for each in spec.policy_refs)
    return ReadException(document, KIND, exception.id, refs, spec, exception)


def unknown_policies(exception: ReadException, known: Set[tuple[str, str]]) -> str:
    """Return a sentence about the policies of *exception* that are not among *known*; empty if all are."""
    missing = [
        f"{kind if kind.isidentifier() else shown(kind)} {shown(name)}"
        for kind, name in sorted(exception.refs - known)[:10]
    ]
    return f"there is no {one_of(missing)}: the exception has no effect on it" if missing else ""

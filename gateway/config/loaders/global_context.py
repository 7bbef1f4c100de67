"""GlobalContextEntry of Kyverno (``kyverno.io``): the objects of one kind, for policies that name the entry.

Source: github.com/kyverno/kyverno api/kyverno/v2/global_context_entry_types.go,
pkg/globalcontext/k8sresource/entry.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import Declared, Group, Groups, Text, declare, optional, required
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_label, dns_1123_subdomain
from gateway.config.kinds.policy_settings import check_plural
from gateway.config.loaders.part import Part
from gateway.pure.admission_policies.params import GlobalEntry

if TYPE_CHECKING:
    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields

KIND: Final = "GlobalContextEntry"
VERSIONS: Final = ("v2", "v2beta1", "v2alpha1")
_MAX_PROJECTIONS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resource(Declared):
    group: str = declare(Text(check=lambda text: dns_1123_subdomain(text) if text else None), "", default="")
    version: str = required(Text(check=dns_1123_label), "Such as `v1`")
    resource: str = required(Text(check=check_plural), "The plural name of the kind")
    namespace: str = declare(
        Text(check=lambda text: dns_1123_label(text) if text else None), "Empty for all", default=""
    )

    def check(self, source: Fields) -> None:
        """Report a version without its group."""
        if not self.group and self.version not in ("v1", ""):
            source.problem("group", f"is required, because version is {shown(self.version)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Projection(Declared):
    name: str = required(Text(minLength=1), "Its name")
    jmes_path: str = required(Text(minLength=1), "The query")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec(Declared):
    kubernetes_resource: _Resource | None = optional(Group(_Resource), "The objects")
    projections: tuple[_Projection, ...] = declare(
        Groups(_Projection, _MAX_PROJECTIONS, key="name"), "Queries about the objects", default=()
    )

    def check(self, source: Fields) -> None:
        """Report an entry without objects."""
        if self.kubernetes_resource is None and "kubernetesResource" not in source.content:
            source.problem("kubernetesResource", "is required")


@dataclass(frozen=True, slots=True, eq=False)
class ReadEntry(Part):
    """One entry."""

    document: Document
    kind: str
    id: str
    entry: GlobalEntry | None
    """None after a problem."""


def read_entry(document: Document, fields: Fields) -> ReadEntry:
    """Return the entry behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, dns_1123_subdomain)
    fields.accept("status")
    source = fields.required_group("spec")
    fields.finish()
    if "apiCall" in source.content:
        source.problem(
            "apiCall", "found an API call, which the gateway does not make; expected kubernetesResource"
        )
        return ReadEntry(document, KIND, metadata.name, None)
    spec = _Spec.read(source)
    found = spec.kubernetes_resource
    if found is None or document.problems.found:
        return ReadEntry(document, KIND, metadata.name, None)
    version = f"{found.group}/{found.version}" if found.group else found.version
    names = frozenset(each.name for each in spec.projections)
    entry = GlobalEntry(version, found.resource, found.namespace, names)
    if names:
        message = "are JMESPath, which the gateway does not evaluate: a policy that reads one of them fails"
        document.problems.warn(source.at("projections"), message)
    return ReadEntry(document, KIND, metadata.name, entry)

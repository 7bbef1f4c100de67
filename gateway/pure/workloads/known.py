"""The objects of a cluster that the API server's own plug-ins read, as far as they are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.workloads.default_rules import part
from gateway.pure.workloads.defaults import kind_of, with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.core.review import Json

LIMIT_RANGE: Final = ("", "LimitRange")
SERVICE_ACCOUNT: Final = ("", "ServiceAccount")
PRIORITY_CLASS: Final = ("scheduling.k8s.io", "PriorityClass")
RUNTIME_CLASS: Final = ("node.k8s.io", "RuntimeClass")
STORAGE_CLASS: Final = ("storage.k8s.io", "StorageClass")
INGRESS_CLASS: Final = ("networking.k8s.io", "IngressClass")
NAMESPACED: Final = (LIMIT_RANGE, SERVICE_ACCOUNT)
KINDS: Final = (*NAMESPACED, PRIORITY_CLASS, RUNTIME_CLASS, STORAGE_CLASS, INGRESS_CLASS)
"""Group and kind of what plug-ins read."""


class Refusal(NamedTuple):
    """Why a plug-in refuses an object."""

    plug_in: str
    message: str
    """In the words of the API server."""
    field: str = ""
    """The path of what it is about."""


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """What is known for the objects of one namespace, by group and kind, then by name."""

    namespace: str = ""
    objects: dict[tuple[str, str], dict[str, Json]] = field(default_factory=dict)
    whole: frozenset[tuple[str, str]] = frozenset()
    """Of these kinds, an object that is not known does not exist."""

    def add(self, found: Json) -> bool:
        """Add *found* if plug-ins read such objects, unless one of its kind and name is known; say if so."""
        group, _, kind = kind_of(found)
        name = part(found, "metadata").get("name")
        if (group, kind) not in KINDS or not isinstance(name, str) or not name:
            return False
        self.objects.setdefault((group, kind), {}).setdefault(name, with_defaults(found))
        return True

    def before(self, others: KnownObjects) -> KnownObjects:
        """Return this together with *others*; of two objects of one kind and name, with the one of this."""
        kinds = self.objects.keys() | others.objects.keys()
        objects = {kind: {**others.objects.get(kind, {}), **self.objects.get(kind, {})} for kind in kinds}
        return KnownObjects(self.namespace or others.namespace, objects, self.whole | others.whole)

    def get(self, kind: tuple[str, str], name: object) -> Json | None:
        """Return the object of *kind* and *name*; None if it is not known."""
        return self.objects.get(kind, {}).get(name) if isinstance(name, str) else None

    def all(self, kind: tuple[str, str]) -> list[Json]:
        """Return all known objects of *kind*, by name."""
        return [found for _, found in sorted(self.objects.get(kind, {}).items())]

    def is_missing(self, kind: tuple[str, str], name: object) -> bool:
        """Whether there is certainly no object of *kind* and *name*."""
        return kind in self.whole and self.get(kind, name) is None

    def default_class(self, kind: tuple[str, str], annotations: Iterable[str]) -> str:
        """Return the name of the newest class of *kind* with one of *annotations* set to true, else nothing.

        Source: k8s.io/kubernetes pkg/volume/util/storageclass.go and
        plugin/pkg/admission/network/defaultingressclass/admission.go.
        """
        names = {*annotations}
        found = [one for one in self.all(kind) if _is_marked(one, names)]
        # The sort is stable: of equally new ones, the first name comes first.
        found.sort(key=lambda one: str(part(one, "metadata").get("creationTimestamp") or ""), reverse=True)
        return str(found[0]["metadata"]["name"]) if found else ""


def _is_marked(found: Json, names: set[str]) -> bool:
    written = part(found, "metadata", "annotations")
    return any(written.get(name) == "true" for name in names)

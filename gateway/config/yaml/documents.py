"""Configuration files to documents: one for each object, those inside lists included.

An object has an apiVersion, a kind and perhaps a name; its other fields are not read here.

Source: k8s.io/api core/v1 and admissionregistration types.go for the lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeGuard

from gateway.base.text import described, shown
from gateway.config.yaml.fields import Fields, Problems, child
from gateway.config.yaml.parsing import parse_json, parse_yaml
from gateway.config.yaml.source import Source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from gateway.pure.core.webhook import Phase

Engine = Literal["Kyverno", "Gatekeeper", "Kubewarden"]
ADMISSION_GROUP = "admissionregistration.k8s.io"
GATEWAY_VERSION = "admission-gateway.io/v1alpha1"
PHASES: dict[str, Phase] = {
    "MutatingWebhookConfiguration": "mutate",
    "ValidatingWebhookConfiguration": "validate",
}
"""Kinds of webhook configurations, in the order in which they are called."""
_GATEKEEPER = ("config", "connection", "constraints", "expansion", "externaldata", "mutations", "status")
LOADED_GROUPS = frozenset(
    [
        "kyverno.io",
        "policies.kyverno.io",
        "policies.kubewarden.io",
        *(f"{one}.gatekeeper.sh" for one in (*_GATEKEEPER, "syncset", "templates")),
    ]
)
"""API groups of other policy engines, whose documents are read by ``gateway.config.loaders``."""


class LoadedKind(NamedTuple):
    """A kind of another engine that can be a custom resource of a cluster."""

    group: str
    kind: str
    """Empty for all kinds of the group, which come and go."""
    versions: tuple[str, ...]
    """Of the API, the best one first."""
    plural: str = ""
    """The plural name if it is not the usual one."""

    @property
    def resource(self) -> str:
        """The plural name for rights."""
        return self.plural or (plural_of(self.kind) if self.kind else "*")


CONSTRAINTS_GROUP = "constraints.gatekeeper.sh"
_CEL_KINDS = ("ValidatingPolicy", "NamespacedValidatingPolicy", "MutatingPolicy", "NamespacedMutatingPolicy")
ENGINES: dict[Engine, tuple[LoadedKind, ...]] = {
    "Kyverno": (
        *(
            LoadedKind("policies.kyverno.io", kind, ("v1", "v1beta1", "v1alpha1"))
            for kind in (*_CEL_KINDS, "PolicyException")
        ),
        LoadedKind("kyverno.io", "ClusterPolicy", ("v1", "v2beta1")),
        LoadedKind("kyverno.io", "Policy", ("v1", "v2beta1")),
        LoadedKind("kyverno.io", "PolicyException", ("v2", "v2beta1")),
    ),
    "Gatekeeper": (
        LoadedKind("templates.gatekeeper.sh", "ConstraintTemplate", ("v1", "v1beta1", "v1alpha1")),
        LoadedKind("config.gatekeeper.sh", "Config", ("v1alpha1",)),
        LoadedKind(CONSTRAINTS_GROUP, "", ("v1beta1", "v1alpha1")),
    ),
    "Kubewarden": (
        LoadedKind("policies.kubewarden.io", "ClusterAdmissionPolicy", ("v1", "v1alpha2")),
        LoadedKind("policies.kubewarden.io", "AdmissionPolicy", ("v1", "v1alpha2")),
    ),
}
"""Other policy engines, and their kinds that ``GatewayConfiguration.policies.customResourcesOf`` follows."""
_FOR_WORKER: dict[Engine, tuple[LoadedKind, ...]] = {
    "Gatekeeper": (
        *(
            LoadedKind("mutations.gatekeeper.sh", kind, ("v1", "v1beta1", "v1alpha1"), kind.lower())
            for kind in ("Assign", "AssignMetadata", "ModifySet", "AssignImage")
        ),
        LoadedKind(
            "expansion.gatekeeper.sh", "ExpansionTemplate", ("v1beta1", "v1alpha1"), "expansiontemplate"
        ),
        LoadedKind("externaldata.gatekeeper.sh", "Provider", ("v1beta1", "v1alpha1")),
        LoadedKind("syncset.gatekeeper.sh", "SyncSet", ("v1alpha1",)),
    ),
}
"""Further kinds of engines that have a worker in ``policies.engines``."""
FollowedKinds: TypeAlias = "Mapping[Engine, tuple[LoadedKind, ...]]"
"""Kinds that are followed in a cluster, by engine."""


NO_KINDS: FollowedKinds = MappingProxyType({})


def followed_kinds(engines: Iterable[Engine], with_worker: Collection[str] = ()) -> FollowedKinds:
    """Return the kinds of *engines*; those in *with_worker* have a worker."""
    return {one: ENGINES[one] + (_FOR_WORKER.get(one, ()) if one in with_worker else ()) for one in engines}


POLICY = "ValidatingAdmissionPolicy"
BINDING = "ValidatingAdmissionPolicyBinding"
MUTATING_POLICY = "MutatingAdmissionPolicy"
POLICY_KINDS = {POLICY: BINDING, MUTATING_POLICY: f"{MUTATING_POLICY}Binding"}
"""Kinds of policies, with the kinds of their bindings."""
POLICY_TEST = "PolicyTest"
"""The kind of the cases of ``admission-gateway test``. They may lie beside the configuration."""
CUSTOM_KINDS = (
    "WorkerPool",
    *PHASES,
    *POLICY_KINDS,
    *POLICY_KINDS.values(),
    "PolicyException",
    "ClusterPolicyException",
)
"""Kinds of ``GATEWAY_VERSION`` that can be custom resources of a cluster, as well as documents in files."""

_LIST_KINDS: dict[tuple[str, str], str | None] = {
    ("v1", "List"): None,
    ("v1", "NamespaceList"): "Namespace",
    **{
        (f"{ADMISSION_GROUP}/{version}", f"{kind}List"): kind
        for version in ("v1", "v1beta1")
        for kind in (*PHASES, *POLICY_KINDS, *POLICY_KINDS.values())
    },
    **{
        (f"{ADMISSION_GROUP}/v1alpha1", f"{kind}List"): kind
        for kind in (*POLICY_KINDS, *POLICY_KINDS.values())
    },
    **{(GATEWAY_VERSION, f"{kind}List"): kind for kind in CUSTOM_KINDS},
}
"""Kinds of lists, and the kind of their ``items``, or None if each item names its kind."""


def plural_of(kind: str) -> str:
    """Return the name of the resource of *kind*, of the API server or of the gateway."""
    return f"{kind[:-1].lower()}ies" if kind.endswith("y") else f"{kind.lower()}s"


@dataclass(slots=True)
class Document:
    """One object of a file, with its problems."""

    file: Path
    problems: Problems
    content: dict[str, object] | None
    """None if there is nothing to read. If that is a problem, it is among the problems."""
    path: str = ""
    """Its path in the list that contains it: ``items[3]``."""
    is_object: bool = True
    """False if it is no mapping, and so a document of something else."""

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return self.problems.place(self.path)

    def repeats(self, name: str, first: Document) -> None:
        """Add the problem that *first* has the *name* of this object already."""
        path = child(child(self.path, "metadata"), "name")
        self.problems.add(path, f"found {shown(name)} a second time; the first: {first.place}")

    def fields(self) -> Fields:
        """A reader of the whole object."""
        return Fields(self.content or {}, self.path, self.problems)


def unreadable(file: Path, message: str) -> Document:
    """Return the document for a *file* that cannot be read."""
    return Document(file, Problems(str(file), found=[("", message)]), None)


def not_utf_8(file: Path, error: UnicodeDecodeError) -> Document:
    """Return the document for a *file* whose text is not UTF-8."""
    *above, before = error.object[: error.start].decode().split("\n")
    where = f"line {len(above) + 1}, column {len(before) + 1}"
    message = f"{where}: is not UTF-8 text: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
    return Document(file, Problems(str(file), found=[("", message)], source=Source(file, ""), parsed=1), None)


def read_documents(file: Path, text: str) -> Iterator[Document]:
    """Yield the objects in *text*, the content of *file*; lists by their items, empty documents not at all.

    A document that cannot be read has no content. Never raises, whatever *text* is.
    """
    source = Source(file, text)
    for parsed in parse_json(text) if source.is_json else parse_yaml(text):
        problems = _problems(source, parsed.number)
        problems.found, problems.parsed = parsed.found, len(parsed.found)
        if parsed.root is not None:
            yield from _objects(source, parsed.root, "", problems)
        elif parsed.found:
            yield Document(file, problems, None)


def _problems(source: Source, number: int) -> Problems:
    where = f"{source.file}: document {number}"
    return Problems(where, folder=source.file.parent, source=source, number=number)


def _objects(source: Source, content: object, path: str, problems: Problems) -> Iterator[Document]:
    if not _is_mapping(content):
        problems.add(path, f"found {described(content)}, expected a mapping with apiVersion and kind")
        yield Document(source.file, problems, None, path, is_object=False)
        return
    problems.label = _label(content)
    if problems.label:
        problems.where += f": {problems.label}"
    version, kind = content.get("apiVersion"), content.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str) or (version, kind) not in _LIST_KINDS:
        yield Document(source.file, problems, content, path)
        return
    fields = Fields(content, path, problems)
    fields.accept("apiVersion", "kind", "metadata")
    items = fields.mappings("items")
    fields.finish()
    yield Document(source.file, problems, None)
    item_kind = _LIST_KINDS[version, kind]
    # In a list of one kind, as the API serves it, items have neither apiVersion nor kind.
    common: dict[str, object] = {"apiVersion": version, "kind": item_kind} if item_kind else {}
    for item in items:
        in_list = _problems(source, problems.number)
        yield from _objects(source, common | dict(item.content), item.path, in_list)


def _is_mapping(content: object) -> TypeGuard[dict[str, object]]:
    return isinstance(content, dict)


def _label(content: dict[str, object]) -> str:
    kind, metadata = content.get("kind"), content.get("metadata")
    if not isinstance(kind, str) or not kind:
        return ""
    name = metadata.get("name") if _is_mapping(metadata) else None
    shown_kind = kind if kind.isidentifier() and len(kind) <= 80 else shown(kind)
    return f"{shown_kind} {shown(name)}" if isinstance(name, str) and name else shown_kind

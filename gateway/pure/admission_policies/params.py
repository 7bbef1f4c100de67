"""The parameters of policies: objects of any kind, from files or from a cluster.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_dispatcher.go (CollectParams).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from gateway.pure.cel.paths import WHOLE
from gateway.pure.core.conditions import Unresolved
from gateway.pure.core.review import labels_of
from gateway.pure.core.role_bindings import BINDINGS, RoleIndex, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.admission_policies.model import ParamRef
    from gateway.pure.cel.libraries.cluster_objects import ClusterObjects
    from gateway.pure.cel.paths import Paths
    from gateway.pure.core.conditions import FoundParam, ParamLookup
    from gateway.pure.core.labels import Selector
    from gateway.pure.core.policy import KindKey, ParamKind, Params

    Json = dict[str, Any]


NOTHING_READABLE: Final[Mapping[tuple[str, str], ParamKind]] = MappingProxyType({})


class ParamsError(Exception):
    """The parameters of a binding cannot be found; the text is the API server's."""


class UnresolvedError(Exception):
    """Something has to be found out before there is a result."""

    def __init__(self, unresolved: Unresolved) -> None:
        super().__init__(str(unresolved))
        self.unresolved = unresolved


class UnreadParamsError(UnresolvedError):
    """Parameters have to be looked up in the cluster first."""

    def __init__(self, *lookups: ParamLookup) -> None:
        """*lookups* are at least one."""
        super().__init__(Unresolved(lookups=lookups))
        self.lookup = lookups[0]


@dataclass(frozen=True, slots=True)
class GlobalEntry:
    """A GlobalContextEntry of Kyverno: the objects of one kind under a name."""

    api_version: str
    plural: str
    namespace: str
    """Empty for all objects."""
    projections: frozenset[str]
    """The names of its queries, which the gateway does not make."""


@dataclass(frozen=True, slots=True)
class FixedObjects:
    """The objects of one kind in files: a ``ParamObjects``."""

    ignores_labels: ClassVar[bool] = False
    """Whether lists have all objects, whatever the labels that an expression asks for."""
    is_namespaced: bool
    by_namespace: dict[str, dict[str, Json]]
    roles: RoleIndex | None = None
    """See ``ParamObjects``."""

    def get(self, namespace: str, name: str) -> Json | None:
        """Return the object."""
        return self.by_namespace.get(namespace, {}).get(name)

    seen = get

    def count(self, namespace: str) -> int:
        """Return the number of the objects in *namespace*, or of all if it is empty."""
        return len(self._within(namespace))

    def bytes_of(self, namespace: str, name: str = "") -> int:
        """Return 0: all have been parsed."""
        del namespace, name
        return 0

    def select(self, namespace: str, selector: Selector) -> Sequence[Json]:
        """Return the objects in *namespace*, or all, that *selector* matches, by namespace and name."""
        return [each for each in self._within(namespace) if selector.matches(labels_of(each))]

    def _within(self, namespace: str) -> list[Json]:
        if namespace:
            found = self.by_namespace.get(namespace, {})
            return [found[name] for name in sorted(found)]
        by_key = {f"{of}/{name}": one for of, each in self.by_namespace.items() for name, one in each.items()}
        return [by_key[key] for key in sorted(by_key)]


class FixedParams:
    """The objects of files: a ``Params``."""

    def __init__(
        self,
        objects: Iterable[Json],
        readable: Mapping[tuple[str, str], ParamKind] = NOTHING_READABLE,
        *,
        has_cluster: bool = True,
        entries: Mapping[str, GlobalEntry] | None = None,
        backends: Mapping[str, str] | None = None,
    ) -> None:
        """*objects* have apiVersion, kind and name. A kind is namespaced if one of its objects is.

        *readable* are the kinds that expressions may read, by apiVersion and plural name. *has_cluster* is
        whether there is a cluster beside the files. *entries* are the GlobalContextEntries of files by name,
        *backends* the URLs of backends by name; None for policies that must not use them.
        """
        self.entries = entries
        self.backends = backends
        self.has_cluster = has_cluster
        self.readable = readable
        objects = list(objects)
        # Equal for equal objects.
        self.digest = hashlib.sha256(orjson.dumps(objects, option=orjson.OPT_SORT_KEYS)).hexdigest()
        by_kind: dict[tuple[str, str], dict[str, dict[str, Json]]] = defaultdict(lambda: defaultdict(dict))
        for each in objects:
            metadata = each["metadata"]
            kind = each["apiVersion"], each["kind"]
            by_kind[kind][metadata.get("namespace") or ""][metadata["name"]] = each
        self._by_kind = {
            kind: FixedObjects(set(found) != {""}, dict(found), _roles(kind, found))
            for kind, found in by_kind.items()
        }

    def of(self, kind: ParamKind, paths: Paths = WHOLE) -> FixedObjects | None:
        """Return the objects of *kind*, which are whole, or None if no file has one."""
        del paths
        return self._by_kind.get((kind.api_version, kind.kind))

    def in_test(self, found: ClusterObjects) -> ClusterObjects:
        """Return what expressions use, in a test with these objects, instead of *found*."""
        return found

    def read(self, kind: ParamKind) -> FixedObjects | None:
        """Return the objects of *kind* that expressions read, or None if no file has one."""
        return self.of(kind)


NO_PARAMS: Final = FixedParams([])
"""No file has parameters."""


def collect(
    kind: ParamKind | None,
    ref: ParamRef | None,
    params: Params,
    namespace: str,
    found: Mapping[ParamLookup, FoundParam],
    paths: Paths = WHOLE,
) -> Sequence[Json | None]:
    """Return the parameters of a binding for a request in *namespace*; one None if it uses none.

    *found* has the parameters that were looked up for the review. *paths* are the parts that are needed.

    Raises:
        ParamsError: they cannot be found, and the binding does not allow that.
        UnreadParamsError: they have to be looked up first, and *found* lacks them.
    """
    if kind is None or ref is None:
        return (None,)
    try:
        objects = params.of(kind, paths)
    except UnreadParamsError as unread:
        _result(unread, found)
        raise ParamsError(not_synced(kind)) from None
    if objects is None:
        raise ParamsError(unknown_kind(kind))
    if objects.is_namespaced:
        namespace = ref.namespace or namespace
        if not namespace:
            raise ParamsError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif ref.namespace:
        raise ParamsError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    else:
        namespace = ""
    if ref.selector is None:
        try:
            one = objects.get(namespace, ref.name)
        except UnreadParamsError as unread:
            one = _result(unread, found).object
        collected = [] if one is None else [one]
    else:
        collected = [*objects.select(namespace, ref.selector)]
    if not collected and ref.not_found == "Deny":
        raise ParamsError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return collected


def _roles(kind: KindKey, by_namespace: Mapping[str, Mapping[str, Json]]) -> RoleIndex | None:
    if kind not in BINDINGS:
        return None
    index = RoleIndex()
    for found in by_namespace.values():
        for each in found.values():
            index.change((), entries_of(kind, each))
    return index


def unknown_kind(kind: ParamKind) -> str:
    """Return the API server's message about a *kind* that does not exist."""
    group_version = kind.api_version if "/" in kind.api_version else f"/{kind.api_version}"
    return f"failed to find resource referenced by paramKind: '{group_version}, Kind={kind.kind}'"


def not_synced(kind: ParamKind) -> str:
    """Return the API server's message about a *kind* whose objects have not been read yet."""
    of_kind = f"&ParamKind{{APIVersion:{kind.api_version},Kind:{kind.kind},}}"
    return f"paramKind kind `{of_kind}` not yet synced to use for admission"


def _result(unread: UnreadParamsError, found: Mapping[ParamLookup, FoundParam]) -> FoundParam:
    result = found.get(unread.lookup)
    if result is None:
        raise unread
    if result.error:
        raise ParamsError(result.error)
    return result

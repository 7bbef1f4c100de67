"""The parameters of policies: objects of any kind, from files or from a cluster.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_dispatcher.go (CollectParams).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from gateway.core.review import labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.policies.model import ParamKind, ParamRef

    Json = dict[str, Any]


class ParamsError(Exception):
    """The parameters of a binding cannot be found; the text is the API server's."""


class ParamObjects(Protocol):
    """The objects of one kind."""

    @property
    def is_namespaced(self) -> bool:
        """Whether objects of this kind are in namespaces."""

    def get(self, namespace: str, name: str) -> Json | None:
        """Return the object; *namespace* is empty if the kind is not namespaced. None: there is none.

        Raises:
            ParamsError: the objects are not known.
        """

    def list(self, namespace: str) -> Sequence[Json]:
        """Return all objects in *namespace*, by name, see :meth:`get`."""


class Params(Protocol):
    """The objects of all kinds."""

    @property
    def digest(self) -> str:
        """Equal for equal objects that belong to the configuration; empty if none does."""

    def of(self, kind: ParamKind) -> ParamObjects | None:
        """Return the objects of *kind*; None: the kind is not known."""


@dataclass(frozen=True, slots=True)
class FixedObjects:
    """The objects of one kind in files: a ``ParamObjects``."""

    is_namespaced: bool
    by_namespace: dict[str, dict[str, Json]]

    def get(self, namespace: str, name: str) -> Json | None:
        """Return the object."""
        return self.by_namespace.get(namespace, {}).get(name)

    def list(self, namespace: str) -> Sequence[Json]:
        """Return all objects in *namespace*, by name."""
        found = self.by_namespace.get(namespace, {})
        return [found[name] for name in sorted(found)]


class FixedParams:
    """The objects of files: a ``Params``."""

    def __init__(self, objects: Iterable[Json]) -> None:
        """*objects* have apiVersion, kind and name. A kind is namespaced if one of its objects is."""
        objects = list(objects)
        self.digest = hashlib.sha256(orjson.dumps(objects, option=orjson.OPT_SORT_KEYS)).hexdigest()
        by_kind: dict[tuple[str, str], dict[str, dict[str, Json]]] = defaultdict(lambda: defaultdict(dict))
        for each in objects:
            metadata = each["metadata"]
            kind = each["apiVersion"], each["kind"]
            by_kind[kind][metadata.get("namespace") or ""][metadata["name"]] = each
        self._by_kind = {
            kind: FixedObjects(set(found) != {""}, dict(found)) for kind, found in by_kind.items()
        }

    def of(self, kind: ParamKind) -> FixedObjects | None:
        """Return the objects of *kind*; None: no file has one."""
        return self._by_kind.get((kind.api_version, kind.kind))


def collect(
    kind: ParamKind | None, ref: ParamRef | None, params: Params, namespace: str
) -> Sequence[Json | None]:
    """Return the parameters of a binding for a request in *namespace*; one None if it uses none.

    Raises:
        ParamsError: they cannot be found, and the binding does not allow that.
    """
    if kind is None or ref is None:
        return (None,)
    objects = params.of(kind)
    if objects is None:
        raise ParamsError(
            f"failed to find resource referenced by paramKind: '{kind.api_version}, Kind={kind.kind}'"
        )
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
        one = objects.get(namespace, ref.name)
        found = [] if one is None else [one]
    else:
        found = [each for each in objects.list(namespace) if ref.selector.matches(labels_of(each))]
    if not found and ref.not_found == "Deny":
        raise ParamsError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found

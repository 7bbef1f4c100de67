"""``resource``: the variable with which an expression reads objects of the cluster.

A policy of one namespace reads the objects of that one only, and does not name it.

Source: github.com/kyverno/sdk extensions/cel/libs/resource.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.types import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Json = dict[str, Any]
    Get = Callable[[str, str, str, str], Json | None]
    """Returns the object with this apiVersion, plural name of its kind, namespace and name, or None.

    Raises EvaluationError: it cannot be read."""
    List = Callable[[str, str, str, Mapping[str, str]], Json]
    """Returns the list of the objects with this apiVersion, plural name, namespace and labels. The namespace
    is empty for all.

    Raises EvaluationError: they cannot be read."""

RESOURCE: Final = "resource"
"""The name of the variable."""
CONTEXT: Final = Type("resource.Context")
"""The type of ``resource``."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterObjects:
    """The objects that the expressions of one policy can read: the value of ``resource``."""

    cel_type: ClassVar[str] = CONTEXT.name
    get: Get
    list: List
    namespace: str = ""
    """The one whose objects a policy of that namespace reads. Empty for other policies."""


_NO_LABELS: Final[Mapping[str, str]] = {}


def _get(read: ClusterObjects, version: str, plural: str, namespace: str, name: str) -> Json | None:
    return read.get(version, plural, namespace, name)


def _get_own(read: ClusterObjects, version: str, plural: str, name: str) -> Json | None:
    return read.get(version, plural, read.namespace, name)


def _list(
    read: ClusterObjects, version: str, plural: str, namespace: str, labels: Mapping[str, str] = _NO_LABELS
) -> Json:
    return read.list(version, plural, namespace, labels)


def _list_own(
    read: ClusterObjects, version: str, plural: str, labels: Mapping[str, str] = _NO_LABELS
) -> Json:
    return read.list(version, plural, read.namespace, labels)


def _functions(
    get: Callable[..., object],
    list_: Callable[..., object],
    namespace: str = ", string",
    found: str = "map(string, dyn)",
) -> tuple[Function, ...]:
    """Return the functions of ``resource``. *namespace* is the type of that argument, or empty.

    *found* is the type of an object.
    """
    of = f"string, string{namespace}"
    labels = "map(string, string)"
    return tuple(
        function(f"resource_{overload}_{suffix}", f"{CONTEXT.name}::{name}({given}) -> {result}", call, 1)
        for verb, call, result, overloads in (
            ("get", get, found, {"get": f"{of}, string"}),
            ("list", list_, "map(string, dyn)", {"list": of, "list_map": f"{of}, {labels}"}),
        )
        for overload, given in overloads.items()
        for name, suffix in ((verb, "camel"), (verb.capitalize(), "pascal"))
    )


FUNCTIONS: Final = _functions(_get, _list, found="dyn")
"""Those of admission policies. Their authors can compare an object with null."""
OF_KYVERNO: Final = _functions(_get, _list)
"""Those of Kyverno's policies for all namespaces."""
NAMESPACED: Final = _functions(_get_own, _list_own, "")
"""Those of Kyverno's policies of one namespace."""
READS: Final = frozenset({"get", "Get", "list", "List"})
"""The names of the functions."""
LISTS: Final = frozenset({"list", "List"})
"""Those that return a list."""

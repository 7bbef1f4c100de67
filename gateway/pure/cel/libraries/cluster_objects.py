"""``resource``: the variable with which an expression reads objects of the cluster, and reviews access.

A policy of one namespace uses that one only, and does not name it.

Source: github.com/kyverno/sdk extensions/cel/libs/resource.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.meter import count_text
from gateway.pure.cel.types import Type
from gateway.pure.cel.values import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.pure.cel.libraries.global_context import GlobalContext

    Json = dict[str, Any]
    Get = Callable[[str, str, str, str], Json | None]
    """Returns the object with this apiVersion, plural name of its kind, namespace and name, or None.

    Raises EvaluationError: it cannot be read."""
    List = Callable[[str, str, str, Mapping[str, str]], Json]
    """Returns the list of the objects with this apiVersion, plural name, namespace and labels. The namespace
    is empty for all.

    Raises EvaluationError: they cannot be read."""
    Post = Callable[[str, str, str, Json], Json]
    """Returns the given object with this apiVersion, plural name and namespace as the API server creates it.

    Raises EvaluationError: it cannot be created."""
    HttpGet = Callable[[str, Mapping[str, str]], Json]
    """Returns what a backend has at this URL, for these header fields.

    Raises EvaluationError: there is no answer."""
    PluralOf = Callable[[str, str], str | None]
    """Returns the plural name of the kind with this apiVersion and name, or None for an unknown one."""

RESOURCE: Final = "resource"
"""The name of the variable."""
CONTEXT: Final = Type("resource.Context")
"""The type of ``resource``."""
GVR: Final = Type("schema.GroupVersionResource")
"""The type of group, version and plural name of a kind. Its fields are not declared."""
HTTP_GET: Final = "http.get"
"""The name of the function to which the macro of ``http.get`` and ``http.Get`` expands."""
_OBJECT: Final = "map(string, dyn)"
_LONGEST: Final = 50_000
"""Characters of the JSON of an object that is created."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterObjects:
    """The objects that the expressions of one policy can read: the value of ``resource``."""

    cel_type: ClassVar[str] = CONTEXT.name
    get: Get
    list: List
    post: Post
    plural_of: PluralOf
    http_get: HttpGet
    global_context: GlobalContext | None = None
    """The value of ``globalContext``, which uses the same objects. None without it."""
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


def _post(
    read: ClusterObjects, version: str, plural: str, namespace: str, created: Mapping[object, object]
) -> Json:
    return read.post(version, plural, namespace, _json(created))


def _post_own(read: ClusterObjects, version: str, plural: str, created: Mapping[object, object]) -> Json:
    return read.post(version, plural, read.namespace, _json(created))


def _post_of_cluster(
    read: ClusterObjects, version: str, plural: str, created: Mapping[object, object]
) -> Json:
    return read.post(version, plural, "", _json(created))


def _json(given: object) -> Json:
    # Imported late: it is for policies of another engine only.
    from gateway.pure.cel.libraries.kyverno_formats import marshal

    text = marshal(given)
    if len(text) > _LONGEST:
        problem = f"found {len(text)} characters of JSON, expected at most {_LONGEST}"
        raise EvaluationError(f"failed to create resource: {problem}")
    made: Json = orjson.loads(text)
    return made


def _functions(
    get: Callable[..., object],
    list_: Callable[..., object],
    namespace: str = ", string",
    found: str = _OBJECT,
) -> tuple[Function, ...]:
    """Return the functions of ``resource``. *namespace* is the type of that argument, or empty.

    *found* is the type of an object.
    """
    of = f"string, string{namespace}"
    labels = "map(string, string)"
    return _both(
        ("get", f"({of}, string) -> {found}", get),
        ("list", f"({of}) -> {_OBJECT}", list_),
        ("list", f"({of}, {labels}) -> {_OBJECT}", list_),
    )


def _both(*overloads: tuple[str, str, Callable[..., object]]) -> tuple[Function, ...]:
    """Return each of *overloads*, name, signature without it, and implementation, by both of its names."""
    return tuple(
        function(f"resource_{name}_{number}_{suffix}", f"{CONTEXT.name}::{spelt}{signature}", call, 1)
        for number, (name, signature, call) in enumerate(overloads)
        for spelt, suffix in ((name, "camel"), (f"{name[0].upper()}{name[1:]}", "pascal"))
    )


def _to_gvr(read: ClusterObjects, version: str, kind: str) -> Struct:
    count_text(len(version) + len(kind), version, kind)
    if version.count("/") > 1:
        raise EvaluationError(f"failed to map kind to resource: unexpected GroupVersion string: {version}")
    plural = read.plural_of(version, kind)
    if plural is None:
        problem = f'no matches for kind "{kind}" in version "{version}"'
        raise EvaluationError(f"failed to map kind to resource: {problem}")
    group, _, number = version.rpartition("/")
    return Struct(GVR.name, {"Group": group, "Version": number, "Resource": plural})


def _by_gvr(call: Callable[..., object]) -> Callable[..., object]:
    """Return the overload of *call* with one argument for apiVersion and plural name."""

    def overload(read: ClusterObjects, gvr: Struct, *others: object) -> object:
        group, number = gvr.fields["Group"], gvr.fields["Version"]
        return call(read, f"{group}/{number}" if group else number, gvr.fields["Resource"], *others)

    return overload


def _of_gvr(
    get: Callable[..., object], list_: Callable[..., object], namespace: str = ", string"
) -> tuple[Function, ...]:
    """Return what makes and takes the values of ``toGVR``. *namespace* is as in :func:`_functions`."""
    of = f"{GVR.name}{namespace}"
    return _both(
        ("toGVR", f"(string, string) -> {GVR.name}", _to_gvr),
        ("get", f"({of}, string) -> {_OBJECT}", _by_gvr(get)),
        ("list", f"({of}) -> {_OBJECT}", _by_gvr(list_)),
        ("list", f"({of}, map(string, string)) -> {_OBJECT}", _by_gvr(list_)),
    )


FUNCTIONS: Final = _functions(_get, _list, found="dyn")
"""Those of admission policies. Their authors can compare an object with null."""


def _http_get(read: ClusterObjects, url: str, headers: Mapping[str, str] = _NO_LABELS) -> Json:
    return read.http_get(url, headers)


_HTTP: Final = tuple(
    function(f"http_get_{given}", f"{CONTEXT.name}::{HTTP_GET}({given}) -> dyn", _http_get, 1)
    for given in ("string", "string, map(string, string)")
)
OF_KYVERNO: Final = (
    *_HTTP,
    *_functions(_get, _list),
    *_of_gvr(_get, _list),
    *_both(
        ("post", f"(string, string, {_OBJECT}) -> {_OBJECT}", _post_of_cluster),
        ("post", f"(string, string, string, {_OBJECT}) -> {_OBJECT}", _post),
    ),
)
"""Those of Kyverno's policies for all namespaces."""
NAMESPACED: Final = (
    *_HTTP,
    *_functions(_get_own, _list_own, ""),
    *_of_gvr(_get_own, _list_own, ""),
    *_both(("post", f"(string, string, {_OBJECT}) -> {_OBJECT}", _post_own)),
)
"""Those of Kyverno's policies of one namespace."""
READS: Final = frozenset({"get", "Get", "list", "List"})
"""The names of the functions that read."""
LISTS: Final = frozenset({"list", "List"})
"""Those that return a list."""
POSTS: Final = frozenset({"post", "Post"})
"""The names of the function that creates an object."""
GVRS: Final = frozenset({"toGVR", "ToGVR"})
"""The names of the function that finds the plural name of a kind."""

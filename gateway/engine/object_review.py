"""The AdmissionRequest that kube-apiserver would make for a plain object, for commands without an API server.

Members that only an API server has are left as the object has them: defaults, ``uid``, ``creationTimestamp``
and a name for ``generateName``.

Source: k8s.io/api admission/v1 types.go (AdmissionRequest); kubernetes/apiserver
plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.errors import MalformedReview
from gateway.base.text import one_of, shown
from gateway.pure.core.review import OPERATIONS, V1
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.openapi.built_in_resources import BuiltInResource

    Json = dict[str, Any]

DEFAULT_USER: Final = "admission-gateway:review"
DEFAULT_GROUPS: Final = ("system:authenticated",)
DEFAULT_NAMESPACE: Final = "default"
"""The namespace of a namespaced object without one, as for kubectl."""

_UID_NAMESPACE: Final = uuid.UUID("5f8df9a4-63a5-4d6f-9d8a-3c6f9f3f3e0b")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Everything about a request except its object. Empty fields have the defaults."""

    operation: str = "CREATE"
    user: str = DEFAULT_USER
    groups: tuple[str, ...] = DEFAULT_GROUPS
    namespace: str = ""
    """The request's namespace. By default that of the object, else ``default``."""
    resource: str = ""
    """Plural name, perhaps with a subresource (``pods/exec``). By default that of the object's kind."""
    old: Mapping[str, Any] | None = None
    """The stored object, for UPDATE."""
    is_dry_run: bool = True
    is_namespaced: bool = True
    """Whether the resource is namespaced, if it is a custom resource."""


def request_for(found: Json, options: RequestOptions) -> Json:
    """Return the AdmissionRequest for the object *found*: with DELETE the stored object, else the new one.

    Equal arguments give equal requests, the ``uid`` included.

    Raises:
        MalformedReview: the object has no apiVersion, kind or metadata, *options* contradict it, or the old
            object is missing or belongs to another operation.
    """
    group, version, kind = _kind_of(found)
    if options.operation not in OPERATIONS:
        raise MalformedReview(f"operation: found {shown(options.operation)}, expected {one_of(OPERATIONS)}")
    metadata = found.get("metadata", {})
    if not isinstance(metadata, dict):
        raise MalformedReview(f"metadata: found {shown(metadata)}, expected a mapping")
    resource, sub_resource, is_namespaced = _resource_of(group, kind, options)
    namespace = _namespace_of(metadata, options.namespace) if is_namespaced else ""
    if (group, kind) == ("", "Namespace"):
        namespace = metadata.get("name") or ""
    elif not is_namespaced and (options.namespace or metadata.get("namespace")):
        wrong = shown(options.namespace or metadata["namespace"])
        raise MalformedReview(f"namespace: found {wrong}, expected none: {kind} is not namespaced")
    elif namespace and metadata.get("namespace") is None and options.operation != "CONNECT":
        found = {**found, "metadata": {**metadata, "namespace": namespace}}
    new, old = _objects(found, options, namespace)
    of_resource = {"group": group, "version": version, "resource": resource}
    of_kind = {"group": group, "version": version, "kind": kind}
    request = {
        "kind": of_kind,
        "resource": of_resource,
        "requestKind": of_kind,
        "requestResource": of_resource,
        **({"subResource": sub_resource, "requestSubResource": sub_resource} if sub_resource else {}),
        "name": metadata.get("name") or "",
        **({"namespace": namespace} if namespace else {}),
        "operation": options.operation,
        "userInfo": {"username": options.user, "groups": list(options.groups)},
        "object": new,
        "oldObject": old,
        "dryRun": options.is_dry_run,
        "options": _options_of(options),
    }
    try:
        uid = uuid.uuid5(_UID_NAMESPACE, orjson.dumps(request, option=orjson.OPT_SORT_KEYS).hex())
    except TypeError:
        raise MalformedReview("the object nests too deeply, expected at most 254 levels") from None
    return {"uid": str(uid), **request}


def review_of(request: Json) -> bytes:
    """Return the JSON of the AdmissionReview v1 of *request*."""
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": V1, "request": request})


def built_in_resource(group: str, kind: str) -> BuiltInResource | None:
    """Return the resource of kube-apiserver's own *kind*; None for a custom resource."""
    name = kind.lower()
    return next((one for one in RESOURCES.get(group, {}).values() if name in one.other_names), None)


def _kind_of(found: Json) -> tuple[str, str, str]:
    """Return group, version and kind of the object."""
    for field in ("apiVersion", "kind"):
        value = found.get(field)
        if not isinstance(value, str) or not value:
            raise MalformedReview(f"{field}: found {shown(value)}, expected the {field} of an object")
    group, _, version = found["apiVersion"].rpartition("/")
    return group, version, found["kind"]


def _resource_of(group: str, kind: str, options: RequestOptions) -> tuple[str, str, bool]:
    """Return resource and subresource, and whether the resource is namespaced.

    The plural of a custom resource that *options* do not name is a guess, as kubectl's.
    """
    name, _, sub_resource = options.resource.partition("/")
    known = RESOURCES.get(group, {}).get(name) if name else built_in_resource(group, kind)
    if known is not None:
        return known.name, sub_resource, known.is_namespaced
    return name or _plural(kind.lower()), sub_resource, options.is_namespaced


def _plural(name: str) -> str:
    """Return the plural. Source: kubernetes/apimachinery meta.UnsafeGuessKindToResource."""
    if name.endswith("y") and name[-2:-1] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"


def _options_of(options: RequestOptions) -> Json | None:
    """Return CreateOptions, UpdateOptions or DeleteOptions; CONNECT has none."""
    if options.operation == "CONNECT":
        return None
    kind = f"{options.operation.capitalize()}Options"
    dry_run = {"dryRun": ["All"]} if options.is_dry_run else {}
    return {"apiVersion": "meta.k8s.io/v1", "kind": kind, **dry_run}


def _namespace_of(metadata: Json, wanted: str) -> str:
    own = metadata.get("namespace")
    if own is not None and not isinstance(own, str):
        raise MalformedReview(f"metadata.namespace: found {shown(own)}, expected a string")
    if own and wanted and own != wanted:
        raise MalformedReview(
            f"metadata.namespace: found {shown(own)}, expected {shown(wanted)}, the namespace of the request"
        )
    return wanted or own or DEFAULT_NAMESPACE


def _objects(found: Json, options: RequestOptions, namespace: str) -> tuple[Json | None, Json | None]:
    """Return ``object`` and ``oldObject``."""
    old = options.old
    if options.operation == "UPDATE":
        if old is None:
            raise MalformedReview("the operation UPDATE needs the old object")
        old_metadata = old.get("metadata") or {}
        if namespace and isinstance(old_metadata, dict) and old_metadata.get("namespace") is None:
            old = {**old, "metadata": {**old_metadata, "namespace": namespace}}
        return found, dict(old)
    if old is not None:
        raise MalformedReview(f"found an old object, expected none for the operation {options.operation}")
    return (None, found) if options.operation == "DELETE" else (found, None)

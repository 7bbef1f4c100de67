"""Server-side apply of the objects that register the gateway.

Source: kubernetes.io/docs/reference/using-api/server-side-apply.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.access import connect
from gateway.server.kubernetes.api_client import ApiStatusError
from gateway.server.kubernetes.webhook_configurations import list_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient

    Json = Mapping[str, Any]

_APPLY: Final = "application/apply-patch+yaml"
"""JSON is a subset of YAML."""
_VERSION: Final = "admissionregistration.k8s.io/v1"
_PLURALS: Final = {
    kind: f"{kind.lower()}s" for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
_LABEL: Final = ("app.kubernetes.io/name", "admission-gateway")
"""The label of every object that ``manifests`` makes."""
_LOOK_AGAIN_S: Final = 1.0
_CREATED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _INVALID = 201, 403, 404, 409, 422


async def apply(
    settings: KubernetesSettings,
    documents: Sequence[Mapping[str, object]],
    *,
    field_manager: str,
    force: bool,
    creates: bool = True,
) -> list[str]:
    """Apply *documents*, and return a line for each, as ``KIND/NAME applied (created)``.

    Args:
        settings: The cluster; without a kubeconfig the one that this pod runs in.
        documents: Webhook configurations of admissionregistration.k8s.io/v1.
        field_manager: The new owner of the fields.
        force: Whether to take over fields of other owners, which is a conflict otherwise.
        creates: Whether documents that the cluster does not have are created; otherwise they are left out.

    Raises:
        ClusterError: the cluster cannot be reached, or refuses a document; earlier ones have been applied.
    """
    paths = [_path(document) for document in documents]
    api = await asyncio.to_thread(connect, settings)
    params = {"fieldManager": field_manager, "force": "true" if force else "false"}
    try:
        return [
            f"{title} applied ({await _apply(api, (title, path), document, params)})"
            if creates or await api.find(path)
            else f"{title} was not there"
            for (title, path), document in zip(paths, documents, strict=True)
        ]
    finally:
        await api.close()


async def delete(settings: KubernetesSettings, name: str) -> list[str]:
    """Delete the objects called *name* that ``apply`` made, and return a line for each.

    Raises:
        ClusterError: the cluster cannot be reached, refuses it, or an object was made by another program.
    """
    api = await asyncio.to_thread(connect, settings)
    lines = []
    try:
        for kind in _PLURALS:
            title, path = _path({"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}})
            try:
                found = await api.get(path)
                metadata = found.get("metadata", {})
                if (metadata.get("labels") or {}).get(_LABEL[0]) != _LABEL[1]:
                    raise ClusterError(
                        f"it has no label {_LABEL[0]}: {_LABEL[1]}, so it is not the gateway's"
                    )
                version = {"resourceVersion": metadata.get("resourceVersion")}
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": version}
                await api.write("DELETE", path, options)
            except ClusterError as error:
                if error.status != _NOT_FOUND:
                    raise ClusterError(f"{title}: {error}", error.status) from error
                lines.append(f"{title} was not there")
            else:
                lines.append(f"{title} deleted")
    finally:
        await api.close()
    return lines


async def wait_for_endpoint(settings: KubernetesSettings, service: tuple[str, str], seconds: float) -> None:
    """Wait until the Service with namespace and name *service* has a ready endpoint.

    Raises:
        ClusterError: it has none after *seconds*; the reason is that of the last look.
    """
    api = await asyncio.to_thread(connect, settings)
    reason = "it has no ready endpoint"
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if await count_ready(api, service):
                        return
                    reason = "it has no ready endpoint"
                except ClusterError as error:
                    reason = str(error)
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        name = "/".join(service)
        raise ClusterError(f"Service {name} did not become ready in {seconds:g} s: {reason}") from None
    finally:
        await api.close()


async def count_ready(api: ApiClient, service: tuple[str, str]) -> int:
    """Return the number of ready endpoints of the Service with namespace and name *service*.

    Source: k8s.io/api discovery/v1 types.go (EndpointSlice).

    Raises:
        ClusterError: they cannot be read.
    """
    namespace, name = (quote(part, safe="") for part in service)
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    found = await api.get(path, {"labelSelector": f"kubernetes.io/service-name={name}"})
    endpoints = [one for slice_ in list_items(found, api.url) for one in slice_.get("endpoints") or ()]
    # Without a condition one is ready.
    return sum((one.get("conditions") or {}).get("ready") is not False for one in endpoints)


async def _apply(
    api: ApiClient, target: tuple[str, str], document: Mapping[str, object], params: Mapping[str, str]
) -> str:
    title, path = target
    try:
        before = await _read(api, path)
        body = orjson.dumps(document)
        try:
            status, after = await api.patch(path, params, body, _APPLY)
        except ApiStatusError as error:
            manager = params["fieldManager"]
            if error.status != _INVALID or not await _remove_left(
                api, path, document, before, manager, error
            ):
                raise
            status, after = await api.patch(path, params, body, _APPLY)
    except ApiStatusError as error:
        if error.status == _CONFLICT and (others := _others(error)):
            raise ClusterError(
                f"{title}: has fields owned by {others}; to take them over, force it", error.status
            ) from error
        raise ClusterError(f"{title}: {error}", error.status) from error
    if status == _CREATED:
        return "created"
    version = before.get("metadata", {}).get("resourceVersion")
    is_same = version and after.get("metadata", {}).get("resourceVersion") == version
    return "unchanged" if is_same else "configured"


async def _read(api: ApiClient, path: str) -> Json:
    """Return the object at *path*; an empty one if nothing is there, or it may not be read."""
    try:
        return await api.get(path)
    except ApiStatusError as error:
        if error.status not in (_FORBIDDEN, _NOT_FOUND):
            raise
        return {}


async def _remove_left(
    api: ApiClient, path: str, document: Json, before: Json, manager: str, error: ApiStatusError
) -> bool:
    """Remove the entries of *before* that make an apply of *document* invalid; return if there are any.

    An entry in which another manager has a field, such as the watchdog's condition or a caBundle, is not
    removed by an apply without it: only that field would remain, and an entry of one field is not valid. If
    *error* is about any other entry, nothing is removed.
    Source: kubernetes.io/docs/reference/using-api/server-side-apply, "Merge strategy" and "Ownership".
    """
    kept = {entry.get("name") for entry in document.get("webhooks") or ()}
    own, others = set[str](), set[str]()
    for one in before.get("metadata", {}).get("managedFields") or ():
        is_own = (one.get("manager"), one.get("operation")) == (manager, "Apply")
        keys = (one.get("fieldsV1") or {}).get("f:webhooks") or {}
        (own if is_own else others).update(
            json.loads(key.removeprefix("k:"))["name"] for key in keys if key.startswith("k:")
        )
    left = [
        (index, entry["name"])
        for index, entry in enumerate(before.get("webhooks") or ())
        if entry["name"] in own & others - kept
    ]
    causes = error.details.get("causes")
    invalid = {
        str(cause.get("field")).partition("]")[0] if isinstance(cause, dict) else ""
        for cause in (causes if isinstance(causes, list) else ())
    }
    if not left or len(invalid) != len(left) or not all(one.startswith("webhooks[") for one in invalid):
        return False
    patch = [
        change
        for index, name in reversed(left)
        for change in (
            {"op": "test", "path": f"/webhooks/{index}/name", "value": name},
            {"op": "remove", "path": f"/webhooks/{index}"},
        )
    ]
    await api.patch(path, {}, orjson.dumps(patch), "application/json-patch+json")
    return True


def _path(document: Mapping[str, object]) -> tuple[str, str]:
    """Return ``KIND/NAME`` and the path of *document*."""
    match document:
        case {"apiVersion": str(version), "kind": str(kind), "metadata": {"name": str(name)}}:
            if version == _VERSION and kind in _PLURALS:
                return f"{kind}/{name}", f"/apis/{version}/{_PLURALS[kind]}/{quote(name, safe='')}"
            raise ClusterError(
                f"cannot apply a {kind} of {version}, only webhook configurations of {_VERSION}"
            )
    raise ClusterError("cannot apply a document without apiVersion, kind and name")


def _others(error: ApiStatusError) -> str:
    """Return the managers and fields of a conflict; empty if the error is not about fields."""
    owned: dict[str, list[str]] = {}
    causes = error.details.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        match cause:
            case {"reason": "FieldManagerConflict", "message": str(message), "field": str(field)}:
                named = re.search(r'conflict with ("[^"]*")', message)
                owned.setdefault(named[1] if named else message, []).append(field)
    return "; ".join(f"{manager} ({', '.join(fields)})" for manager, fields in owned.items())

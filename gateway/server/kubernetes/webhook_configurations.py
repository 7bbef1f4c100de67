"""The webhook configurations of a cluster: list, follow, create, update, delete; and its policies: list.

Source: kubernetes.io/docs/reference/using-api/api-concepts (lists in pages, resourceVersion of updates).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.base.errors import ClusterError
from gateway.config.yaml.documents import POLICY_KINDS, plural_of
from gateway.server.kubernetes.watch import Kind, Pace, Store, UnreadableError, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

VERSION: Final = "admissionregistration.k8s.io/v1"
POLICY_VERSIONS: Final = tuple(
    f"{VERSION.partition('/')[0]}/{version}" for version in ("v1", "v1beta1", "v1alpha1")
)
"""The versions of policies, the preferred one first."""
KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_PAGE: Final = "100"
"""Objects per answer. A CA bundle in each of its webhooks makes one large."""
_FORBIDDEN, _NOT_FOUND, _GONE = 403, 404, 410


async def list_webhook_configurations(api: ApiClient, version: str = VERSION) -> list[Json]:
    """Return all webhook configurations, mutating ones first, each with apiVersion and kind.

    *version* may be that of the gateway's custom resources.

    Raises:
        ClusterError: the API server cannot be reached, or refuses; it names a missing right.
    """
    return [
        {"apiVersion": version, "kind": kind, **item}
        for kind in KINDS
        for item in await list_all(api, f"/apis/{version}/{kind.lower()}s", f"{kind.lower()}s")
    ]


async def list_policies(api: ApiClient) -> list[Json]:
    """Return all policies and bindings, each with apiVersion and kind; those that the API server has.

    Raises:
        ClusterError: the API server cannot be reached, or refuses; it names a missing right.
    """
    found: list[Json] = []
    for kind in (kind for pair in POLICY_KINDS.items() for kind in pair):
        for version in POLICY_VERSIONS:
            try:
                items = await list_all(api, f"/apis/{version}/{plural_of(kind)}", plural_of(kind))
            except ClusterError as error:
                if error.status != _NOT_FOUND:
                    raise
                continue
            found += [{"apiVersion": version, "kind": kind, **item} for item in items]
            break
    return found


async def write(api: ApiClient, document: Json, field_manager: str) -> None:
    """Create the object *document*, or update it if it has a resourceVersion.

    Raises:
        ClusterError: it was refused, with status 409 if it has changed since it was read.
    """
    path = f"/apis/{document['apiVersion']}/{document['kind'].lower()}s"
    metadata = document["metadata"]
    is_there = "resourceVersion" in metadata
    await api.write(
        "PUT" if is_there else "POST",
        f"{path}{'/' + quote(metadata['name'], safe='') if is_there else ''}?fieldManager={field_manager}",
        document,
    )


async def delete(api: ApiClient, document: Json) -> None:
    """Delete the object *document*.

    Raises:
        ClusterError: it was refused.
    """
    path = f"/apis/{document['apiVersion']}/{document['kind'].lower()}s"
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    await api.write("DELETE", f"{path}/{quote(document['metadata']['name'], safe='')}", options)


@dataclass(frozen=True, slots=True)
class _Configuration:
    name: str
    document: Json


class WebhookConfigurations:
    """The webhook configurations of a cluster, followed by :meth:`run`. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess, pace: Pace | None = None) -> None:
        self.changed = asyncio.Event()
        """Set after every list and event; the reader clears it."""
        self._stores = {kind: _store(kind, self.changed.set) for kind in KINDS}
        self._watches = [
            Watch(access, _kind(kind), store, pace or Pace()) for kind, store in self._stores.items()
        ]

    @property
    def documents(self) -> list[Json]:
        """The current ones, mutating ones first, each with apiVersion and kind."""
        return [one.document for store in self._stores.values() for one in store.by_name.values()]

    async def run(self) -> None:
        """Follow them until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())

    async def wait_until_synced(self) -> None:
        """Wait until all have been read."""
        for watch in self._watches:
            await watch.synced.wait()


def _kind(kind: str) -> Kind:
    return Kind(f"/apis/{VERSION}/{kind.lower()}s", f"{kind.lower()}s", f"{kind}List")


def _store(kind: str, changed: Callable[[], None]) -> Store[_Configuration]:
    type_meta: Json = {"apiVersion": VERSION, "kind": kind}

    def read(document: object) -> _Configuration:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if (
            isinstance(document, dict)
            and isinstance(metadata, dict)
            and isinstance(metadata.get("name"), str)
        ):
            return _Configuration(metadata["name"], {**document, **type_meta})
        raise UnreadableError(f"a {kind} without a name")

    return Store(read, changed)


async def list_all(api: ApiClient, path: str, plural: str) -> list[Json]:
    """Return the objects at *path*, whose resource is *plural*; each has a name.

    Raises:
        ClusterError: the API server cannot be reached, or refuses; it names a missing right.
    """
    try:
        items: list[Json] = []
        async for page in api.pages(path, {"limit": _PAGE}):
            items += list_items(page, api.url)
            if not all(map(_is_named, items)):
                raise ClusterError(f"{api.url}: sent {plural} without a name")
        return items
    except ClusterError as error:
        if error.status == _GONE:
            raise ClusterError(f"{plural} changed too much while they were read; try again", _GONE) from error
        if error.status == _FORBIDDEN:
            right = f"the right to list {plural} of {path.split('/')[2]} is missing"
            raise ClusterError(f"{right} ({error})", _FORBIDDEN) from error
        raise


def _is_named(item: Json) -> bool:
    match item:
        case {"metadata": {"name": str()}}:
            return True
    return False


def list_items(page: Json, url: str) -> list[Json]:
    """Return the items of *page*, a list of the API server at *url*.

    Raises:
        ClusterError: it is not a list of objects.
    """
    items = page.get("items")
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ClusterError(f"{url}: sent a list with an item that is not an object")
    return items

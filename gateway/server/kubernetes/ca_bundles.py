"""The objects that ``caBundleFrom`` names, followed by watches, each of a single object.

A watch of one object needs a right for this object only (``resourceNames``): the field selector with its name
is what the API server's authorizer compares.

Source: kubernetes.io/docs/reference/access-authn-authz/rbac, "Referring to resources".
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ClusterError
from gateway.engine.credentials.ca_bundle import CaBundle, bundle_in
from gateway.server.kubernetes.access import AccessPool
from gateway.server.kubernetes.watch import Kind, Pace, Store, UnreadableError, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping

    from gateway.base.files import UnusableFileError
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.pure.core.webhook import CaBundleSource
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient

    ObjectKey = tuple[str, str, str]
    """Kind, namespace and name."""

log = logging.getLogger(__name__)

SETTLE_S: Final = 0.5
"""Between two changes of one object that come into force: a program that rewrites it costs little CPU."""


class ClusterCaBundles:
    """The bundles in a cluster, until :meth:`close`. Make it on a running event loop."""

    def __init__(self, settings: KubernetesSettings, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._objects: dict[ObjectKey, _FollowedObject] = {}
        self._accesses: AccessPool[ObjectKey] = AccessPool(settings)
        self._in_use: frozenset[CaBundleSource] = frozenset()
        self._ending: set[asyncio.Task[None]] = set()

    def stage(self, sources: Collection[CaBundleSource]) -> Mapping[CaBundleSource, CaBundle]:
        """Follow *sources*, beside those in use, and return their bundles."""
        self._set(self._in_use | frozenset(sources))
        return {bundle.source: bundle for bundle in self.bundles}

    def activate(self, sources: Collection[CaBundleSource]) -> None:
        """Follow only *sources* from now on, which are in force."""
        self._in_use = frozenset(sources)
        self._set(self._in_use)

    def abandon(self) -> None:
        """Follow only those in force."""
        self._set(self._in_use)

    @property
    def bundles(self) -> list[CaBundle]:
        """All bundles that are followed."""
        return [bundle for one in self._objects.values() for bundle in one.bundles.values()]

    async def close(self) -> None:
        """End the watches."""
        self.activate(())
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._accesses.close()

    def _set(self, sources: Collection[CaBundleSource]) -> None:
        wanted: dict[ObjectKey, list[CaBundleSource]] = {}
        for source in sorted(sources, key=str):
            wanted.setdefault((source.kind, source.namespace, source.name), []).append(source)
        known = {bundle.source: bundle for bundle in self.bundles}
        for key, one in tuple(self._objects.items()):
            if {bundle.source for bundle in one.bundles.values()} != set(wanted.get(key, ())):
                self._end(key)
        for key, of_object in wanted.items():
            if key not in self._objects:
                bundles = [known.get(source) or CaBundle(source) for source in of_object]
                self._objects[key] = _FollowedObject(self._accesses.acquire(key), key, bundles, self._pace)

    def _end(self, key: ObjectKey) -> None:
        task = self._objects.pop(key).task
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        self._accesses.release(key)


class _ObservedObject:
    """The fields of one version of an object that bundles are read from, as the API server sent them."""

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self.name = name
        self.fields = fields


class _FollowedObject:
    """One object and the bundles in it. It is followed until ``task`` is cancelled."""

    def __init__(
        self, access: ClusterAccess, key: ObjectKey, bundles: Iterable[CaBundle], pace: Pace
    ) -> None:
        kind, namespace, self._name = key
        self.bundles = {bundle.source.key: bundle for bundle in bundles}
        self._changed = asyncio.Event()
        self._store = Store(self._read, self._changed.set)
        noun = f"{kind} {f'{namespace}/' if namespace else ''}{self._name}"
        watched = Kind(_path(kind, namespace), noun, f"{kind}List", selector=f"metadata.name={self._name}")
        self._watch = Watch(access, watched, self._store, pace)
        for bundle in self.bundles.values():
            bundle.unread = self._why_unread
        self.task = asyncio.create_task(self._run())

    def _why_unread(self) -> str:
        return "" if self._watch.is_connected else self._watch.last_error

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            tasks.create_task(self._put_in_force())

    async def _put_in_force(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            observed = self._store.by_name.get(self._name)
            fields = {} if observed is None else observed.fields
            for key, bundle in self.bundles.items():
                try:
                    # In a thread: a bundle may have hundreds of certificates.
                    bundle.see(await asyncio.to_thread(_bundle_of, bundle.source.kind, fields.get(key)))
                except Exception:
                    # The task must not end: the next bundle would not come into force.
                    log.exception("CA bundle of %s stays as it is: internal error", bundle.source)
            await asyncio.sleep(SETTLE_S)

    def _read(self, document: object) -> _ObservedObject:
        # Only the fields with bundles: the others of a Secret are often private keys.
        found = _fields_of(document, self.bundles)
        if found is None:
            raise UnreadableError(f"{self._watch.kind.noun} without a name")
        return found


def _path(kind: str, namespace: str) -> str:
    if namespace:
        return f"/api/v1/namespaces/{namespace}/{kind.lower()}s"
    return f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s"


def _fields_of(document: object, keys: Collection[str]) -> _ObservedObject | None:
    """Return the fields *keys* of the object *document*, which is not validated; None if it has no name."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(document, dict) or not isinstance(name, str):
        return None
    fields: dict[str, object] = {}
    for member in ("data", "webhooks"):
        match document.get(member):
            case dict() as data:
                fields.update(data)
            case list() as entries:
                for entry in entries:
                    match entry:
                        case {"name": str(of), "clientConfig": {"caBundle": bundle}}:
                            fields[of] = bundle
    return _ObservedObject(name, {key: value for key, value in fields.items() if key in keys})


def _bundle_of(kind: str, value: object) -> bytes | UnusableFileError:
    """Return the bundle in the field *value* of an object of *kind*."""
    if not isinstance(value, str):
        return bundle_in(None)
    if kind == "ConfigMap":
        return bundle_in(value.encode())
    try:
        return bundle_in(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return bundle_in(b"")


async def read_once(
    api: ApiClient, sources: Iterable[CaBundleSource]
) -> AsyncIterator[tuple[CaBundleSource, bytes | UnusableFileError | ClusterError]]:
    """Yield the bundle of each of *sources* as it is now, or why there is none."""
    for source in sorted(sources, key=str):
        try:
            found = await api.find(f"{_path(source.kind, source.namespace)}/{source.name}")
        except ClusterError as error:
            yield source, error
            continue
        observed = _fields_of(found, (source.key,))
        fields = {} if observed is None else observed.fields
        yield source, _bundle_of(source.kind, fields.get(source.key))

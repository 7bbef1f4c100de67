"""What the API server's own plug-ins read of a cluster, for the next Pods of its workloads.

They are LimitRanges, ServiceAccounts, PriorityClasses and RuntimeClasses. A single audit lists them. An audit
that follows the cluster has a watch of each kind.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from gateway.base.errors import ClusterError
from gateway.pure.workloads.known import (
    LIMIT_RANGE,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
    KnownObjects,
)
from gateway.server.kubernetes.api_client import TooLargeError
from gateway.server.kubernetes.watch import Kind, Store, Watch, stored_json
from gateway.tools.audit.keys import SIZE
from gateway.tools.audit.subject import metadata_of
from gateway.tools.replay.cluster import listed_items
from gateway.tools.replay.plug_in_objects import NOT_READ, RESOURCES, list_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gateway.server.kubernetes.access import AccessPool
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.server.kubernetes.watch import Pace as WatchPace
    from gateway.tools.audit.pace import Pace

    GroupKind = tuple[str, str]

KINDS: Final = (LIMIT_RANGE, SERVICE_ACCOUNT, PRIORITY_CLASS, RUNTIME_CLASS)
MAX_OBJECTS: Final = 20_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""What is kept of one kind."""
MAX_OBJECT_BYTES: Final = 16 * 1024
"""What is kept of one object, which can have 1.5 MiB."""
_NAMESPACES: Final = 64
"""Whose objects are kept parsed. Lists of workloads are in the order of their namespaces."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class _Object(NamedTuple):
    namespace: str
    """Empty if it is in none."""
    name: str
    content: bytes
    """Its JSON, without what plug-ins do not read. Empty if that is above the bounds."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PlugInObjects:
    """The objects as they are at one time."""

    def __init__(self, objects: Iterable[_Object], whole: Iterable[GroupKind]) -> None:
        """Of the kinds *whole*, all objects of the cluster are among *objects*."""
        self._whole = frozenset(whole)
        self._contents: dict[str, list[bytes]] = {}
        for one in objects:
            if one.content:
                self._contents.setdefault(one.namespace, []).append(one.content)
        for contents in self._contents.values():
            contents.sort()
        self.of: Callable[[str], KnownObjects] = lru_cache(_NAMESPACES)(self._of)
        """Returns what is known for the objects in a namespace."""

    def _of(self, namespace: str) -> KnownObjects:
        known = KnownObjects(namespace, whole=self._whole)
        for content in self._in(namespace):
            known.add(orjson.loads(content))
        return known

    def digest(self, namespace: str) -> bytes:
        """Return a digest of what is known for the objects in *namespace*."""
        found = hashlib.blake2b(repr(sorted(self._whole)).encode(), digest_size=SIZE)
        for content in self._in(namespace):
            found.update(b"\0" + content)
        return found.digest()

    def _in(self, namespace: str) -> list[bytes]:
        places = dict.fromkeys((namespace, ""))
        return [content for place in places for content in self._contents.get(place, ())]


NOTHING: Final = PlugInObjects((), ())
"""Nothing is known."""


class _Store(Store[_Object]):
    """The objects of one kind, within the bounds."""

    def __init__(self, kind: GroupKind, changed: Callable[[], None]) -> None:
        super().__init__(partial(_read, kind), changed, lambda one: one.key)
        self.is_read = False
        self._listed = self._bytes = 0
        self._lacks_some = False

    @property
    def is_whole(self) -> bool:
        """Whether all objects of the kind are known."""
        return self.is_read and not self._lacks_some and all(one.content for one in self.by_name.values())

    def begin(self) -> None:
        """See ``Store``."""
        self._listed, self._bytes, self._lacks_some = 0, 0, False
        super().begin()

    def read_page(self, page: Iterable[object]) -> list[_Object]:
        """See ``Store``."""
        found = super().read_page(page)
        kept = found[: max(0, MAX_OBJECTS - self._listed)]
        self._listed += len(kept)
        self._lacks_some |= len(kept) < len(found)
        return [self._within_bytes(one) for one in kept]

    def replace(self, objects: Iterable[_Object]) -> None:
        """See ``Store``."""
        self.is_read = True
        super().replace(objects)

    def _apply(self, read: _Object, *, is_deleted: bool) -> bool:
        before = self.by_name.get(read.key)
        if not is_deleted and before is None and len(self.by_name) >= MAX_OBJECTS:
            self._lacks_some = True
            return False
        self._bytes -= 0 if before is None else len(before.content)
        return super()._apply(read if is_deleted else self._within_bytes(read), is_deleted=is_deleted)

    def _within_bytes(self, read: _Object) -> _Object:
        if self._bytes + len(read.content) > MAX_BYTES:
            return read._replace(content=b"")
        self._bytes += len(read.content)
        return read


class ClusterPlugIns:
    """Reads the objects of one cluster, once or by watches."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """*changed* is called when they may have changed."""
        self._stores = {kind: _Store(kind, changed) for kind in KINDS}
        self._refused: dict[GroupKind, str] = {}
        """Why kinds could not be listed."""
        self._watches: dict[GroupKind, tuple[Watch[_Object], asyncio.Task[None]]] = {}

    def known(self) -> PlugInObjects:
        """Return the objects as they are."""
        return PlugInObjects(
            (one for store in self._stores.values() for one in store.by_name.values()),
            (kind for kind, store in self._stores.items() if store.is_whole),
        )

    @property
    def notes(self) -> list[str]:
        """Lines about the kinds of which not all objects are known."""
        found = []
        for kind, store in self._stores.items():
            resource, reason = RESOURCES[kind][1], self._refused.get(kind, "")
            if not store.is_read and kind in self._watches:
                reason = self._watches[kind][0].last_error
            if reason:
                found.append(f"{resource} of the cluster are not considered: {reason}")
            elif not store.is_whole:
                bounds = f"{MAX_OBJECTS:,} of them, {MAX_BYTES:,} bytes, and {MAX_OBJECT_BYTES:,} of each"
                found.append(f"{resource} of the cluster are not all considered: at most {bounds}")
        return found

    async def read(self, api: ApiClient, pace: Pace, failed: Callable[[str], None]) -> None:
        """List the objects. *failed* is called with each list that failed, unless *api* may not read it.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        for kind, store in self._stores.items():
            path, objects = list_path(kind), []
            store.begin()
            try:
                async for item, _ in listed_items(api, path, failed, pace.request):
                    objects += store.read_page([item])
            except ClusterError as error:
                if not (error.status or isinstance(error, TooLargeError)):
                    raise
                self._refused[kind] = str(error)
                if error.status not in NOT_READ:
                    failed(f"{path}: {error}")
                continue
            store.replace(objects)

    def follow(self, accesses: AccessPool[str], pace: WatchPace) -> None:
        """Follow the objects from now on, through *accesses*, unless they are followed already."""
        for kind, store in self._stores.items():
            if kind not in self._watches:
                about = Kind(list_path(kind), RESOURCES[kind][1], f"{kind[1]}List", absent_on=NOT_READ)
                watch = Watch(accesses.acquire(f"plug-ins/{about.noun}"), about, store, pace)
                self._watches[kind] = watch, asyncio.create_task(watch.run())

    @property
    def watches(self) -> list[Watch[_Object]]:
        """The watches by which they are followed."""
        return [watch for watch, _ in self._watches.values()]

    async def wait_until_synced(self, timeout_s: float) -> bool:
        """Return whether what is followed has been read, or may not be, within *timeout_s* seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                for watch in self.watches:
                    await watch.synced.wait()
        except TimeoutError:
            return False
        return True

    async def close(self, accesses: AccessPool[str]) -> None:
        """End the watches, which use *accesses*."""
        for watch, task in self._watches.values():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            accesses.release(f"plug-ins/{watch.kind.noun}")
        self._watches.clear()


def _read(kind: GroupKind, item: object) -> _Object:
    found = item if isinstance(item, dict) else {}
    metadata = metadata_of(found)
    namespace, name = (str(metadata.get(member) or "") for member in ("namespace", "name"))
    annotations = metadata.get("annotations")
    kept = {
        key: value
        for key, value in (annotations if isinstance(annotations, dict) else {}).items()
        if key != _LAST_APPLIED
    }
    whole = {
        **{member: value for member, value in found.items() if member != "status"},
        "apiVersion": RESOURCES[kind][0],
        "kind": kind[1],
        "metadata": {"name": name, **({"annotations": kept} if kept else {})},
    }
    try:
        content = stored_json(whole)
    except TypeError:  # it nests too deep
        content = b""
    return _Object(namespace, name, content if len(content) <= MAX_OBJECT_BYTES else b"")

"""The custom resources of other engines in a cluster: their kinds are found by discovery, and then watched.

The definitions of the kinds belong to the other engine. They may be missing, in an older version, come later,
and go: those of Gatekeeper's constraints are made of its templates. A kind that is found is watched from then
on. If the API server does not have it any more, the last known objects stay, as with other watches: the
answers of an API server that starts can lack kinds. When a definition is deleted, its objects are deleted
before.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go (APIResourceList); k8s.io/apiextensions-apiserver
pkg/controller/finalizer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import ClusterError
from gateway.base.text import one_of
from gateway.config.merge.custom_resource import loaded_resource
from gateway.server.kubernetes.watch import Kind, Store, UnreadableError, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.config.merge.custom_resource import CustomResource
    from gateway.config.yaml.documents import FollowedKinds, LoadedKind
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.server.kubernetes.watch import Pace

    Json = dict[str, Any]
    _KindKey = tuple[str, str]
    """Group and kind."""

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 5.0
"""Between two looks for kinds that are missing, and for kinds of constraints."""


class _FollowedKind:
    """The objects of one kind, which are followed until ``task`` is cancelled."""

    def __init__(
        self,
        access: ClusterAccess,
        found: tuple[str, str],
        store: Store[CustomResource],
        pace: Pace,
    ) -> None:
        """*found* are apiVersion and plural name."""
        self.found = found
        api_version, plural = found
        group = api_version.rpartition("/")[0]
        self.store = store
        kind = Kind(f"/apis/{api_version}/{plural}", f"{plural}.{group}", "list", absent_on=(404,))
        self.watch = Watch(access, kind, store, pace)
        self.task = asyncio.create_task(self.watch.run())


class LoadedKinds:
    """The kinds of some engines, from :meth:`start` to :meth:`close`. Make it on a running loop."""

    def __init__(
        self, access: ClusterAccess, engines: FollowedKinds, changed: Callable[[], None], pace: Pace
    ) -> None:
        """*changed* is called after each change, once all objects have been read."""
        self._access = access
        self._engines = engines
        self._kinds = [kind for kinds in engines.values() for kind in kinds]
        self._changed = changed
        self._pace = pace
        self._followed: dict[_KindKey, _FollowedKind] = {}
        self._has_looked = False
        self._last_error = "the API server has not answered yet"
        """Why the last look for kinds failed; empty if it did not."""
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def resources(self) -> Iterator[CustomResource]:
        """All objects."""
        for followed in self._followed.values():
            yield from followed.store.by_name.values()

    @property
    def not_synced(self) -> str | None:
        """Why the objects have not all been read even once; None when they have been."""
        if self._synced.is_set():
            return None
        if not self._has_looked:
            return f"kinds of {one_of(self._engines)} not found: {self._last_error}"
        for followed in self._followed.values():
            if not followed.watch.synced.is_set():
                return f"{followed.watch.kind.noun} not synced: {followed.watch.last_error}"
        return None

    @property
    def is_connected(self) -> bool:
        """Whether changes of all kinds arrive."""
        return not self._last_error and all(one.watch.is_connected for one in self._followed.values())

    def start(self) -> None:
        """Begin to look for the kinds; without engines there are none."""
        if self._kinds:
            self._task = asyncio.create_task(self._run())
        else:
            self._last_error = ""
            self._synced.set()

    async def wait_until_synced(self) -> None:
        """Wait until all objects have been read once."""
        await self._synced.wait()

    async def close(self) -> None:
        """End the watches."""
        tasks = [one.task for one in self._followed.values()]
        tasks += [] if self._task is None else [self._task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                async with self._access.api() as api:
                    await self._look(api)
                self._has_looked, self._last_error = True, ""
            except ClusterError as error:
                if str(error) != self._last_error:
                    log.warning("kinds of %s cannot be looked for: %s", one_of(self._engines), error)
                self._last_error = str(error)
            except Exception:
                # The task must not end: new kinds would stay unknown.
                log.exception("kinds of other engines cannot be looked for: internal error")
                self._last_error = "internal error: the gateway's log has the details"
            if self._has_looked and not self._synced.is_set():
                for followed in tuple(self._followed.values()):
                    await followed.watch.synced.wait()
                self._synced.set()
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _look(self, api: ApiClient) -> None:
        """Follow the kinds that the API server has.

        Raises:
            ClusterError: it does not answer.
        """
        answers: dict[str, dict[str, str]] = {}
        for kind in self._kinds:
            if not self._is_to_find(kind):
                continue
            served: dict[str, tuple[str, str]] = {}
            for version in kind.versions:
                api_version = f"{kind.group}/{version}"
                if api_version not in answers:
                    answers[api_version] = _resources(await api.find(f"/apis/{api_version}"))
                for name, plural in answers[api_version].items():
                    if kind.kind in ("", name):
                        served.setdefault(name, (api_version, plural))
                if kind.kind in served:
                    break
            for name, found in served.items():
                await self._follow((kind.group, name), found)
            if not kind.kind:
                await self._forget(kind.group, served)

    def _is_to_find(self, kind: LoadedKind) -> bool:
        """Whether to look for *kind*: it is not followed, or its watch may be that of another version."""
        followed = self._followed.get((kind.group, kind.kind))
        return followed is None or not followed.watch.is_connected or followed.watch.is_failing

    async def _follow(self, key: _KindKey, found: tuple[str, str]) -> None:
        followed = self._followed.get(key)
        if followed is not None:
            if followed.found == found or (followed.watch.is_connected and not followed.watch.is_failing):
                return
            await _end(followed)
        # The objects of another version stay until those of the new one have been read.
        store = self._store(key) if followed is None else followed.store
        self._followed[key] = _FollowedKind(self._access, found, store, self._pace)

    async def _forget(self, group: str, served: dict[str, tuple[str, str]]) -> None:
        """Forget the kinds of *group* that are not *served* any more and have no objects."""
        for key, followed in tuple(self._followed.items()):
            if key[0] == group and key[1] not in served and not followed.store.by_name:
                del self._followed[key]
                await _end(followed)

    def _store(self, key: _KindKey) -> Store[CustomResource]:
        kind = key[1]

        def read(document: object) -> CustomResource:
            metadata = document.get("metadata") if isinstance(document, dict) else None
            if not isinstance(document, dict) or not isinstance(metadata, dict) or not metadata.get("name"):
                raise UnreadableError(f"a {kind} without a name")
            found = loaded_resource(self._followed[key].found[0], kind, document)
            before = store.by_name.get(found.id)
            is_same = (
                before is not None and before.generation == found.generation and before.has_content_of(found)
            )
            # Their engines write statuses, which change nothing here.
            return before if before is not None and is_same else found

        store = Store(read, self._on_change, lambda one: one.id)
        return store

    def _on_change(self) -> None:
        if self._synced.is_set():
            self._changed()


async def _end(followed: _FollowedKind) -> None:
    followed.task.cancel()
    await asyncio.gather(followed.task, return_exceptions=True)


def _resources(answer: Json | None) -> dict[str, str]:
    """Return the plural name of each kind in *answer*, an APIResourceList, that can be followed."""
    resources = [] if answer is None else answer.get("resources")
    found = {}
    for resource in resources if isinstance(resources, list) else []:
        match resource:
            case {"kind": str(kind), "name": str(plural), "verbs": list(verbs)}:
                if "/" not in plural and {"get", "list", "watch"} <= set(verbs):
                    found[kind] = plural
    return found

"""The objects of a cluster that policies read, such as parameters: of any kind, followed by one watch each.

A kind is found by discovery, and looked for again while the API server does not have it. An object that the
watch has not shown yet is requested by itself, as in the API server: a policy and its parameters are often
created by the same command, a moment apart. While the API server is unreachable, the last known objects stay.

Of each object only the parts are kept that policies read, as JSON: there may be many objects, and most are
never used. If a new policy reads more, all objects of the kind are read again; the others go on with what is
there.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_dispatcher.go (CollectParams,
getParamDirectly), policy_source.go.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.config.kinds.names import dns_1123_label
from gateway.pure.admission_policies.params import UnreadParamsError, not_synced
from gateway.pure.cel.paths import NOTHING, Pruner, covers, joined
from gateway.pure.core.conditions import FoundParam, ParamLookup
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.policy import ParamKind
from gateway.pure.core.review import labels_of
from gateway.pure.core.role_bindings import BINDINGS, ROLE_PATHS, RoleIndex, entries_of
from gateway.server.kubernetes.access import AccessPool
from gateway.server.kubernetes.object_lists import ObjectLists
from gateway.server.kubernetes.watch import Kind, Pace, Store, UnreadableError, Watch, stored_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.pure.cel.paths import Paths
    from gateway.pure.core.labels import Selector
    from gateway.pure.core.policy import KindKey
    from gateway.pure.core.role_bindings import Entry
    from gateway.server.kubernetes.access import ClusterAccess

    Json = dict[str, Any]

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 1.0
"""How long a review waits for the first list of a kind, and for one object."""
LOOK_AGAIN_S: Final = 1.0
"""Between two looks for a kind that the API server does not have."""
CHECK_S: Final = 5.0
"""Between two looks whether a kind whose watch is lost still exists."""
_RECENT_BYTES: Final = 4 * 1024 * 1024
"""JSON of the parsed objects that are kept for the next reviews, of each kind. There may be twice as much."""
_OBJECT_BYTES: Final = 512
"""What a small object counts."""
_NO_ANSWER: Final = "the API server has not answered yet"
NO_RESOURCES: Final[Mapping[tuple[str, str], str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Resource:
    """What discovery says about a kind."""

    plural: str
    is_namespaced: bool


class _Param:
    """What is kept of one object."""

    __slots__ = ("kept", "key")

    def __init__(self, key: str, kept: Json) -> None:
        self.key = key
        """Namespace and name, with a slash between them."""
        self.kept: bytes | Json
        """As JSON, or itself if it nests deeper than orjson writes."""
        try:
            self.kept = stored_json(kept)
        except TypeError:
            self.kept = kept

    @property
    def bytes(self) -> int:
        """The bytes of JSON that are parsed when it is used."""
        return len(self.kept) if isinstance(self.kept, bytes) else 0

    @property
    def name(self) -> str:
        """The name."""
        return self.key.partition("/")[2]

    @property
    def namespace(self) -> str:
        """The namespace. Empty if it is in none."""
        return self.key.partition("/")[0]


class _Binding(_Param):
    """What is kept of a RoleBinding or ClusterRoleBinding, if policies read which roles users have."""

    __slots__ = ("entries",)

    def __init__(self, key: str, kept: Json, entries: tuple[Entry, ...]) -> None:
        super().__init__(key, kept)
        self.entries = entries
        """What it gives to its subjects."""


class _BindingIndex:
    """Which roles users have by the bindings of a store: an ``Index``."""

    def __init__(self) -> None:
        self.roles = RoleIndex()
        self._next = RoleIndex()
        """By the part of the list that has been read."""

    def begin(self) -> None:
        """See ``Index``."""
        self._next = RoleIndex()

    def add(self, objects: Iterable[_Param]) -> None:
        """See ``Index``."""
        for one in objects:
            self._next.change((), _entries(one))

    def complete(self) -> None:
        """See ``Index``."""
        self.roles, self._next = self._next, RoleIndex()

    def change(self, before: _Param | None, after: _Param | None) -> None:
        """See ``Index``."""
        self.roles.change(_entries(before), _entries(after))


def _entries(param: _Param | None) -> tuple[Entry, ...]:
    return param.entries if isinstance(param, _Binding) else ()


class _RecentObjects:
    """The objects that were used last, parsed. Threads may share them."""

    def __init__(self, kind: ParamKind) -> None:
        # Items of a list have neither apiVersion nor kind.
        self._head = {"apiVersion": kind.api_version, "kind": kind.kind}
        self._new: dict[_Param, Json] = {}
        self._old: dict[_Param, Json] = {}
        """Those that were used before ``_new`` was begun. They are forgotten when the next one is begun."""
        self._bytes = 0
        """Of ``_new``."""

    def parsed(self, param: _Param) -> Json:
        """Return the object of *param*, which is not to be changed."""
        found = self._new.get(param)
        if found is not None:
            return found
        found = self._old.get(param) or self._parsed(param)
        size = _OBJECT_BYTES + param.bytes
        if self._bytes + size > _RECENT_BYTES:
            self._old, self._new, self._bytes = self._new, {}, 0
        self._bytes += size
        self._new[param] = found
        return found

    def _parsed(self, param: _Param) -> Json:
        kept = param.kept
        found: Json = {**(orjson.loads(kept) if isinstance(kept, bytes) else kept), **self._head}
        named = {"name": param.name, **({"namespace": param.namespace} if param.namespace else {})}
        found["metadata"] = {**found.get("metadata", {}), **named}
        return found


class _Wanted(NamedTuple):
    """How a kind is followed."""

    plural: str
    """The name by which it is listed in the GatewayConfiguration. Empty if it is not."""
    paths: Paths
    """The parts of its objects that are read."""


def _wanted(kinds: Mapping[KindKey, Paths], resources: Mapping[KindKey, str]) -> dict[KindKey, _Wanted]:
    return {key: _Wanted(resources.get(key, ""), paths) for key, paths in kinds.items()}


class ClusterParams:
    """The objects in a cluster, a ``Params``, until :meth:`close`. Make it on a running event loop."""

    def __init__(self, settings: KubernetesSettings, pace: Pace | None = None) -> None:
        self._accesses: AccessPool[KindKey] = AccessPool(settings)
        self._pace = pace or Pace()
        self._followed: dict[KindKey, _FollowedKind] = {}
        self._in_use: Mapping[KindKey, _Wanted] = {}
        """The kinds in force."""
        self._listed = self._staged = NO_RESOURCES
        """The plural names of the configuration in force, and of the staged one."""
        self._tasks: set[asyncio.Task[None]] = set()

    def stage(self, kinds: Mapping[KindKey, Paths], resources: Mapping[KindKey, str] = NO_RESOURCES) -> None:
        """Follow *kinds*, beside those in use, which keep their plural names until :meth:`activate`.

        The values are the parts of the objects that are read. *resources* are the plural names by which kinds
        are listed in the GatewayConfiguration. The rights of authors are checked with them, so a kind with
        another plural name is not read.
        """
        self._staged = resources
        wanted = _wanted(kinds, resources)
        for key, used in self._in_use.items():
            wanted[key] = used._replace(paths=joined([used.paths, kinds.get(key, ())]))
        self._set(wanted)

    def activate(self, kinds: Mapping[KindKey, Paths]) -> None:
        """Follow only *kinds* from now on, which are in force."""
        self._listed = self._staged
        self._in_use = _wanted(kinds, self._listed)
        self._set(self._in_use)

    def abandon(self) -> None:
        """Follow only those in force."""
        self._staged = self._listed
        self._set(self._in_use)

    def of(self, kind: ParamKind, paths: Paths = NOTHING) -> _FollowedKind | None:
        """Return the objects of *kind*, or None if the API server lacks the kind, or it is not followed.

        Raises:
            UnreadParamsError: they have not been read yet, or without some of *paths*.
        """
        followed = self._followed.get((kind.api_version, kind.kind))
        if followed is None or followed.is_unknown:
            return None
        if not followed.has_read(paths):
            raise UnreadParamsError(ParamLookup(kind.api_version, kind.kind, "", ""))
        return followed

    def look_up(
        self, lookup: ParamLookup, timeout_s: float, on_result: Callable[[FoundParam], None]
    ) -> Callable[[], None]:
        """Look up an object, or wait for the objects of its kind, and return a function that cancels this.

        *on_result* is called once, later, and with an error if there is no result within *timeout_s* seconds
        or ``TIMEOUT_S``.
        """
        task = asyncio.get_running_loop().create_task(self._run(lookup, timeout_s, on_result))
        self._keep(task)

        def cancel() -> None:
            task.cancel()

        return cancel

    async def wait_until_synced(self, timeout_s: float) -> None:
        """Wait up to *timeout_s* seconds until each kind is read, or known not to exist."""
        try:
            async with asyncio.timeout(timeout_s):
                for followed in tuple(self._followed.values()):
                    await followed.settled.wait()
        except TimeoutError:
            pass

    @property
    def is_connected(self) -> bool:
        """Whether changes of all kinds arrive."""
        return all(one.is_connected for one in self._followed.values())

    @property
    def warnings(self) -> Sequence[str]:
        """A line for each kind that cannot be read."""
        return [one.warning for one in self._followed.values() if one.warning]

    async def close(self) -> None:
        """End the watches and look-ups."""
        self.activate({})
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._accesses.close()

    def _set(self, wanted: Mapping[KindKey, _Wanted]) -> None:
        for key, followed in tuple(self._followed.items()):
            kept = wanted.get(key)
            if kept is not None and followed.listed_as == kept.plural:
                if not covers(followed.paths, kept.paths):
                    self._keep(followed.read_again(kept.paths))
                continue
            task = self._followed.pop(key).task
            task.cancel()
            self._keep(task)
            self._accesses.release(key)
        for key in sorted(wanted.keys() - self._followed.keys()):
            access = self._accesses.acquire(key)
            self._followed[key] = _FollowedKind(access, ParamKind(*key), self._pace, *wanted[key])

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(
        self, lookup: ParamLookup, timeout_s: float, on_result: Callable[[FoundParam], None]
    ) -> None:
        kind = ParamKind(lookup.api_version, lookup.kind)
        followed = self._followed.get((kind.api_version, kind.kind))
        result = FoundParam(error=not_synced(kind))
        try:
            async with asyncio.timeout(max(0.0, min(timeout_s, TIMEOUT_S))):
                if followed is not None:
                    if not (lookup.name and followed.synced.is_set()):
                        if followed.was_awaited and followed.is_failing:
                            raise TimeoutError
                        await followed.settled.wait()
                    result = FoundParam(error="the API server has not answered in time")
                    result = FoundParam(await followed.find(lookup.namespace, lookup.name))
        except TimeoutError:
            if followed is not None and timeout_s >= TIMEOUT_S:
                followed.was_awaited = True
        except ClusterError as error:
            result = FoundParam(error=str(error))
        except Exception:
            log.exception("look-up of an object for policies failed: internal error")
            result = FoundParam(error="internal error: the gateway's log has the details")
        on_result(result)


class _FollowedKind:
    """The objects of one kind, a ``ParamObjects``. They are followed until ``task`` is cancelled."""

    def __init__(
        self, access: ClusterAccess, kind: ParamKind, pace: Pace, listed_as: str, paths: Paths
    ) -> None:
        self.listed_as = listed_as
        """The plural name in the GatewayConfiguration. Empty if it is not listed there."""
        self.paths = paths
        """The parts of objects that are kept from now on."""
        self._pruner = Pruner(paths)
        self._read_paths = NOTHING
        """The parts that all objects have."""
        self._recent = _RecentObjects(kind)
        self._access = access
        self._kind = kind
        self._pace = pace
        self._path = f"/apis/{kind.api_version}" if "/" in kind.api_version else f"/api/{kind.api_version}"
        self._noun = f"{kind.kind} of {kind.api_version}"
        self._resource: _Resource | None = None
        self._key = (kind.api_version, kind.kind)
        self._index = _BindingIndex() if self._key in BINDINGS else None
        self._lists: ObjectLists[_Param] = ObjectLists(lambda: self._store.by_name)
        indexes = (self._lists,) if self._index is None else (self._lists, self._index)
        self._store = Store(self._read, key=_key_of, indexes=indexes)
        self._watch: Watch[_Param] | None = None
        self._last_error = _NO_ANSWER
        self._missing = ""
        self.is_unknown = False
        """Whether the API server does not have the kind."""
        self.synced = asyncio.Event()
        """Set while the objects have been read, if only in part."""
        self.settled = asyncio.Event()
        """Set once they have been read with all ``paths``, or the kind is known not to exist."""
        self.was_awaited = False
        """Whether a review has waited as long as it may, and for nothing: while the objects cannot be read,
        others need not wait, too."""
        self.task = asyncio.create_task(self._run())

    def has_read(self, paths: Paths) -> bool:
        """Whether the objects have been read with *paths*."""
        return self.synced.is_set() and covers(self._read_paths, paths)

    def read_again(self, paths: Paths) -> asyncio.Task[None]:
        """Read all objects again with *paths*, and return the task that did so before, which ends.

        Until they have been read, the objects have what they had.
        """
        before = self.task
        before.cancel()
        self.paths, self._pruner = paths, Pruner(paths)
        self.settled.clear()
        self._watch, self._last_error = None, ""
        self.task = asyncio.create_task(self._run())
        return before

    @property
    def roles(self) -> RoleIndex | None:
        """See ``ParamObjects``."""
        if self._index is None or not covers(self._read_paths, ROLE_PATHS):
            return None
        return self._index.roles

    @property
    def is_namespaced(self) -> bool:
        """Whether objects of this kind are in namespaces."""
        return self._resource is None or self._resource.is_namespaced

    @property
    def is_connected(self) -> bool:
        """Whether changes arrive; also true if the kind does not exist."""
        return self.is_unknown or (self._watch is not None and self._watch.is_connected)

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to read the kind failed."""
        watch = self._watch
        return self._last_error not in ("", _NO_ANSWER) if watch is None else watch.is_failing

    @property
    def warning(self) -> str:
        """Why the objects cannot be read now; empty if they can."""
        if self.is_unknown:
            return f"policies cannot read objects: {self._missing}"
        watch = self._watch
        error = self._last_error if watch is None else watch.last_error
        is_failing = bool(error) if watch is None else watch.is_failing
        if self.is_connected or (self.synced.is_set() and not is_failing):
            return ""
        effect = "the last known ones stay in use" if self.synced.is_set() else "policies cannot use them"
        return f"objects that policies read, {self._noun}, cannot be read: {error}: {effect}"

    def get(self, namespace: str, name: str) -> Json:
        """Return the object.

        Raises:
            UnreadParamsError: the watch has not shown it.
        """
        found = self._store.by_name.get(f"{namespace}/{name}")
        if found is None:
            raise UnreadParamsError(ParamLookup(self._kind.api_version, self._kind.kind, namespace, name))
        return self._recent.parsed(found)

    def seen(self, namespace: str, name: str) -> Json | None:
        """Return the object that the watch has shown, or None."""
        found = self._store.by_name.get(f"{namespace}/{name}")
        return None if found is None else self._recent.parsed(found)

    def count(self, namespace: str) -> int:
        """Return the number of the objects in *namespace*, or of all if it is empty."""
        return self._lists.count(namespace)

    def bytes_of(self, namespace: str, name: str = "") -> int:
        """See ``ParamObjects``."""
        if not name:
            return sum(one.bytes for one in self._lists.select(namespace, EVERYTHING, lambda _: True))
        found = self._store.by_name.get(f"{namespace}/{name}")
        return 0 if found is None else found.bytes

    def select(self, namespace: str, selector: Selector) -> Sequence[Json]:
        """Return the objects in *namespace*, or all, that *selector* matches, by namespace and name."""
        parsed = self._recent.parsed
        found = self._lists.select(namespace, selector, lambda one: selector.matches(labels_of(parsed(one))))
        return [parsed(one) for one in found]

    async def find(self, namespace: str, name: str) -> Json | None:
        """Return the object, from the API server if the watch has not shown it, or None.

        Nothing is looked up without a *name*.

        Raises:
            ClusterError: the API server refuses it, or gives no answer.
        """
        resource = self._resource
        if not name or resource is None or (namespace and dns_1123_label(namespace)):
            return None
        seen = self._store.by_name.get(f"{namespace}/{name}")
        if seen is not None:
            return self._recent.parsed(seen)
        scope = f"/namespaces/{quote(namespace, safe='')}" if resource.is_namespaced else ""
        async with self._access.api() as api:
            found = await api.find(f"{self._path}{scope}/{resource.plural}/{quote(name, safe='')}")
        return None if found is None else self._recent.parsed(self._read(found))

    async def _run(self) -> None:
        while True:
            resource = await self._discover()
            if resource is None:
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            self._resource = resource
            self.settled.clear()
            self.is_unknown = False
            noun = f"objects that policies read, {self._noun},"
            kind = Kind(f"{self._path}/{resource.plural}", noun, f"{self._kind.kind}List")
            watch = self._watch = Watch(self._access, kind, self._store, self._pace)
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(watch.run())
                noting = tasks.create_task(self._note_synced(watch))
                await self._until_gone(watch, resource)
                following.cancel()
                noting.cancel()
            self._watch = None
            self.synced.clear()
            self._store.begin()
            self._store.replace(())

    async def _note_synced(self, watch: Watch[_Param]) -> None:
        await watch.synced.wait()
        self._read_paths = self.paths
        self.synced.set()
        self.settled.set()

    async def _until_gone(self, watch: Watch[_Param], resource: _Resource) -> None:
        """Wait until the API server does not have *resource* any more. If it does not answer, it may have."""
        while True:
            await asyncio.sleep(CHECK_S)
            if not watch.is_connected:
                found = await self._discover()
                if self.is_unknown or found not in (None, resource):
                    return

    async def _discover(self) -> _Resource | None:
        """Return the resource of the kind; None if there is none, or no answer, see ``is_unknown``."""
        try:
            async with self._access.api() as api:
                answer = await api.find(self._path)
        except ClusterError as error:
            self._last_error = str(error)
            return None
        except Exception:
            log.exception("discovery of %s failed: internal error", self._noun)
            return None
        resource = next(_resources(answer, self._kind.kind), None)
        missing = f"the API server does not have {self._noun}"
        if resource is not None and self.listed_as not in ("", resource.plural):
            missing = (
                f"{self._noun} is the resource {resource.plural}, and policies of the GatewayConfiguration "
                f"has {self.listed_as}"
            )
            resource = None
        if resource is None and not self.is_unknown:
            self._missing = missing
            log.warning("no objects that policies read: %s", missing)
        if resource is None:
            self.is_unknown = True
            self.settled.set()
        return resource

    def _read(self, document: object) -> _Param:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(document, dict) or not isinstance(metadata, dict) or not isinstance(name, str):
            raise UnreadableError(f"{self._noun} without a name")
        of_metadata = {key: value for key, value in metadata.items() if key != "managedFields"}
        kept = self._pruner.pruned({**document, "metadata": of_metadata})
        key = f"{metadata.get('namespace') or ''}/{name}"
        if self._index is not None and covers(self.paths, ROLE_PATHS):
            return _Binding(key, kept, entries_of(self._key, document))
        return _Param(key, kept)


def _key_of(param: _Param) -> str:
    return param.key


def _resources(answer: Json | None, kind: str) -> Iterator[_Resource]:
    """Yield the resources of *kind* in *answer*, an APIResourceList, that can be followed."""
    resources = [] if answer is None else answer.get("resources")
    for resource in resources if isinstance(resources, list) else []:
        match resource:
            case {
                "kind": str(of),
                "name": str(plural),
                "namespaced": bool(is_namespaced),
                "verbs": list(verbs),
            }:
                if of == kind and "/" not in plural and {"get", "list", "watch"} <= set(verbs):
                    yield _Resource(plural, is_namespaced)

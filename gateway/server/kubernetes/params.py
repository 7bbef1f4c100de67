"""The objects of a cluster from which policies take parameters: of any kind, followed by one watch each.

A kind is found by discovery, and looked for again while the API server does not have it. An object that the
watch has not shown yet is requested by itself, as in the API server: a policy and its parameters are often
created by the same command, a moment apart. While the API server is unreachable, the last known objects stay.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_dispatcher.go (CollectParams,
getParamDirectly), policy_source.go.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.config.kinds.names import dns_1123_label
from gateway.pure.admission_policies.params import UnreadParamsError, not_synced
from gateway.pure.core.conditions import FoundParam, ParamLookup
from gateway.pure.core.policy import ParamKind
from gateway.server.kubernetes.access import AccessPool
from gateway.server.kubernetes.watch import Kind, Pace, Store, UnreadableError, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.access import ClusterAccess

    Json = dict[str, Any]
    KindKey = tuple[str, str]
    """apiVersion and kind."""

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 1.0
"""How long a review waits for the first list of a kind, and for one object."""
LOOK_AGAIN_S: Final = 1.0
"""Between two looks for a kind that the API server does not have."""
CHECK_S: Final = 5.0
"""Between two looks whether a kind whose watch is lost still exists."""
NO_RESOURCES: Final[Mapping[tuple[str, str], str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Resource:
    """What discovery says about a kind."""

    plural: str
    is_namespaced: bool


class _Param:
    """One object. Most are never used, so it is parsed on its first use."""

    __slots__ = ("_json", "_object", "name", "namespace")

    def __init__(self, name: str, namespace: str, document: Json) -> None:
        self.name = name
        self.namespace = namespace
        self._json: bytes | None = orjson.dumps(document)
        self._object: Json = {}

    @property
    def object(self) -> Json:
        """The object, which is not to be changed."""
        json = self._json
        if json is not None:
            self._object = orjson.loads(json)
            self._json = None
        return self._object


def _named(kinds: Collection[KindKey], resources: Mapping[KindKey, str]) -> dict[KindKey, str]:
    return {key: resources.get(key, "") for key in kinds}


class ClusterParams:
    """The objects in a cluster, a ``Params``, until :meth:`close`. Make it on a running event loop."""

    def __init__(self, settings: KubernetesSettings, pace: Pace | None = None) -> None:
        self._accesses: AccessPool[KindKey] = AccessPool(settings)
        self._pace = pace or Pace()
        self._followed: dict[KindKey, _FollowedKind] = {}
        self._in_use: Mapping[KindKey, str] = NO_RESOURCES
        """The kinds in force, each with the plural name by which it is listed, or an empty one."""
        self._listed = self._staged = NO_RESOURCES
        """The plural names of the configuration in force, and of the staged one."""
        self._tasks: set[asyncio.Task[None]] = set()

    def stage(self, kinds: Collection[KindKey], resources: Mapping[KindKey, str] = NO_RESOURCES) -> None:
        """Follow *kinds*, beside those in use, which keep their plural names until :meth:`activate`.

        *resources* are the plural names by which kinds are listed in the GatewayConfiguration. The rights of
        authors are checked with them, so a kind with another plural name is not read.
        """
        self._staged = resources
        self._set({**_named(kinds, resources), **self._in_use})

    def activate(self, kinds: Collection[KindKey]) -> None:
        """Follow only *kinds* from now on, which are in force."""
        self._listed = self._staged
        self._in_use = _named(kinds, self._listed)
        self._set(self._in_use)

    def abandon(self) -> None:
        """Follow only those in force."""
        self._staged = self._listed
        self._set(self._in_use)

    def of(self, kind: ParamKind) -> _FollowedKind | None:
        """Return the objects of *kind*, or None if the API server lacks the kind, or it is not followed.

        Raises:
            UnreadParamsError: they have not been read yet.
        """
        followed = self._followed.get((kind.api_version, kind.kind))
        if followed is None or followed.is_unknown:
            return None
        if not followed.synced.is_set():
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
        self.activate(())
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._accesses.close()

    def _set(self, wanted: Mapping[KindKey, str]) -> None:
        for key, followed in tuple(self._followed.items()):
            if followed.listed_as == wanted.get(key):
                continue
            task = self._followed.pop(key).task
            task.cancel()
            self._keep(task)
            self._accesses.release(key)
        for key in sorted(wanted.keys() - self._followed.keys()):
            access = self._accesses.acquire(key)
            self._followed[key] = _FollowedKind(access, ParamKind(*key), self._pace, wanted[key])

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
                    await followed.settled.wait()
                    result = FoundParam(error="the API server has not answered in time")
                    result = FoundParam(await followed.find(lookup.namespace, lookup.name))
        except TimeoutError:
            pass
        except ClusterError as error:
            result = FoundParam(error=str(error))
        except Exception:
            log.exception("look-up of a parameter failed: internal error")
            result = FoundParam(error="internal error: the gateway's log has the details")
        on_result(result)


class _FollowedKind:
    """The objects of one kind, a ``ParamObjects``. They are followed until ``task`` is cancelled."""

    def __init__(self, access: ClusterAccess, kind: ParamKind, pace: Pace, listed_as: str) -> None:
        self.listed_as = listed_as
        """The plural name in the GatewayConfiguration. Empty if it is not listed there."""
        self._access = access
        self._kind = kind
        self._pace = pace
        self._path = f"/apis/{kind.api_version}" if "/" in kind.api_version else f"/api/{kind.api_version}"
        self._noun = f"{kind.kind} of {kind.api_version}"
        self._resource: _Resource | None = None
        self._store = Store(self._read, self._forget_lists, _key_of)
        self._lists: dict[str, list[_Param]] = {}
        """All objects by namespace, from the first :meth:`list` after a change on."""
        self._watch: Watch[_Param] | None = None
        self._last_error = "the API server has not answered yet"
        self._missing = ""
        self.is_unknown = False
        """Whether the API server does not have the kind."""
        self.synced = asyncio.Event()
        """Set while the objects have been read."""
        self.settled = asyncio.Event()
        """Set once they have been read, or the kind is known not to exist."""
        self.task = asyncio.create_task(self._run())

    @property
    def is_namespaced(self) -> bool:
        """Whether objects of this kind are in namespaces."""
        return self._resource is None or self._resource.is_namespaced

    @property
    def is_connected(self) -> bool:
        """Whether changes arrive; also true if the kind does not exist."""
        return self.is_unknown or (self._watch is not None and self._watch.is_connected)

    @property
    def warning(self) -> str:
        """Why the objects cannot be read now; empty if they can."""
        if self.is_unknown:
            return f"policies cannot use their parameters: {self._missing}"
        watch = self._watch
        if self.is_connected or (watch is not None and self.synced.is_set() and not watch.is_failing):
            return ""
        error = self._last_error if watch is None else watch.last_error
        effect = "the last known ones stay in use" if self.synced.is_set() else "policies cannot use them"
        return f"parameters of policies, {self._noun}, cannot be read: {error}: {effect}"

    def get(self, namespace: str, name: str) -> Json:
        """Return the object.

        Raises:
            UnreadParamsError: the watch has not shown it.
        """
        found = self._store.by_name.get(f"{namespace}/{name}")
        if found is None:
            raise UnreadParamsError(ParamLookup(self._kind.api_version, self._kind.kind, namespace, name))
        return found.object

    def list(self, namespace: str) -> Sequence[Json]:
        """Return all objects in *namespace*, by name."""
        lists = self._lists
        if not lists:
            # The thread of long evaluations reads them, too: sorted copies at once, and all appear at once.
            made: dict[str, list[_Param]] = {}
            for one in sorted(self._store.by_name.values(), key=lambda one: one.name):
                made.setdefault(one.namespace, []).append(one)
            lists.update(made)
        return [one.object for one in lists.get(namespace, ())]

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
            return seen.object
        scope = f"/namespaces/{quote(namespace, safe='')}" if resource.is_namespaced else ""
        async with self._access.api() as api:
            found = await api.find(f"{self._path}{scope}/{resource.plural}/{quote(name, safe='')}")
        return None if found is None else self._read(found).object

    async def _run(self) -> None:
        while True:
            resource = await self._discover()
            if resource is None:
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            self._resource = resource
            self.settled.clear()
            self.is_unknown = False
            noun = f"parameters of policies, {self._noun},"
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
            self._store.replace(())

    async def _note_synced(self, watch: Watch[_Param]) -> None:
        await watch.synced.wait()
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
                f"{self._noun} is the resource {resource.plural}, and policies.paramKinds of the "
                f"GatewayConfiguration has {self.listed_as}"
            )
            resource = None
        if resource is None and not self.is_unknown:
            self._missing = missing
            log.warning("no parameters of policies: %s", missing)
        if resource is None:
            self.is_unknown = True
            self.settled.set()
        return resource

    def _read(self, document: object) -> _Param:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(document, dict) or not isinstance(metadata, dict) or not isinstance(name, str):
            raise UnreadableError(f"{self._noun} without a name")
        kept = {key: value for key, value in metadata.items() if key != "managedFields"}
        # Items of a list have neither apiVersion nor kind.
        head = {"apiVersion": self._kind.api_version, "kind": self._kind.kind}
        return _Param(name, str(metadata.get("namespace") or ""), {**document, **head, "metadata": kept})

    def _forget_lists(self) -> None:
        self._lists = {}


def _key_of(param: _Param) -> str:
    return f"{param.namespace}/{param.name}"


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

"""An audit that follows the cluster: a watch of each kind, and an evaluation of what changes.

A watch is read as fast as it comes, whatever the bounds of the audit. It notes what has changed, and the
audit evaluates that at its own pace. If more has changed than is kept, or a watch does not know what has, all
objects of the kind are listed in pages, as in a single audit, and the changes since then are evaluated after
it. So an audit can follow any number of objects and changes, and its memory does not depend on them.

After an end of a watch that lost its place, a watch list tells which of the known objects have changed. API
servers without watch lists have it listed in pages.

Source: kubernetes.io/docs/reference/using-api/api-concepts, "Streaming lists" and "Watch bookmarks".
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.access import AccessPool
from gateway.server.kubernetes.namespaces import ClusterNamespaces
from gateway.server.kubernetes.watch import Following, Kind, UnreadableError, stored_json
from gateway.server.kubernetes.watch import Pace as WatchPace
from gateway.tools.audit.keys import Keys
from gateway.tools.audit.plug_ins import ClusterPlugIns
from gateway.tools.audit.run import AuditResults, Pass, called_webhooks, server_version
from gateway.tools.audit.scan import Scan, Target
from gateway.tools.audit.subject import metadata_of, uid_of
from gateway.tools.audit.wanted import WantedKinds
from gateway.tools.replay.cases import Found
from gateway.tools.replay.cluster import CHANGED, MAX_PAGE_BYTES
from gateway.tools.replay.run import Replay, Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.pure.core.namespace import Namespace
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.run import Options
    from gateway.tools.audit.scan import AuditCase
    from gateway.tools.audit.store import Store
    from gateway.tools.audit.subject import Part
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.replay.cluster import ListedKind

    Json = dict[str, Any]

MAX_CHANGES: Final = 2000
MAX_CHANGED_BYTES: Final = 8 * 1024 * 1024
"""What is kept of changed objects until they are evaluated."""
AT_ONCE: Final = 200
"""Changes that are evaluated together."""
MAX_NAMESPACES: Final = 20
"""Namespaces of a kind that are listed one by one. Of more, all objects of the kind are listed."""
AGAIN_AFTER_S: Final = 60.0
"""From one list of all objects of a kind to the next one that a watch or its changes call for."""
REFRESH_S: Final = 2.0
"""Between two looks for what changes of namespaces, and of what plug-ins read, concern."""
SYNCED_WITHIN_S: Final = 10.0
NO_VERDICT: Final = "objects without a verdict: not complete, nested too deep, or a webhook gave none"
_INITIAL_END: Final = "k8s.io/initial-events-end"
_NO_WATCH_LIST: Final = (400, 403, 422)
"""Answers of an API server that has no watch lists, or does not allow them."""


class _Change(NamedTuple):
    kind: ListedKind
    document: bytes | None
    """None: the object is deleted. Empty: it nests too deep."""


class _KindWatch(Following):
    """The watch of one kind."""

    def __init__(
        self, access: ClusterAccess, listed: ListedKind, follower: Follower, pace: WatchPace
    ) -> None:
        super().__init__(access, Kind(listed.path, listed.named, "list"), pace)
        self._listed = listed
        self._follower = follower
        self._has_watch_list = True
        """As far as is known."""
        self._is_initial = False
        """Whether the objects that exist are being told."""

    @property
    def number(self) -> int:
        """How many objects have verdicts."""
        return self._follower.store.number_of(self._listed.named)

    async def read(self, api: ApiClient) -> str:
        """Have a watch list tell the objects if most are known, or else have them listed in pages."""
        self._is_initial = self._has_watch_list and self._follower.knows(self._listed)
        if self._is_initial:
            self._follower.store.forget_seen(self._listed.named)
            return ""
        await self._follower.pace.request()
        page = await api.page(self._listed.path, {"limit": "1"}, MAX_PAGE_BYTES)
        version = metadata_of(page).get("resourceVersion")
        if not isinstance(version, str) or not version:
            raise ClusterError(f"{api.url}: the answer for {self._listed.path} is not a list")
        self._follower.mark(self._listed)
        return version

    async def follow(self, api: ApiClient) -> None:
        """See ``Following``."""
        try:
            await super().follow(api)
        except ClusterError as error:
            if self._is_initial and error.status in _NO_WATCH_LIST:
                self._has_watch_list = False
            raise

    def take(self, event: object) -> str:
        """Note what *event* changes. See ``Following``."""
        match event:
            case {"type": str(kind), "object": {"metadata": {"resourceVersion": str(version)}} as item}:
                pass
            case _:
                raise UnreadableError("a watch event without a type or a resourceVersion")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self._follower.note(self._listed, item, is_deleted=kind == "DELETED")
            if self._is_initial:
                self._follower.store.see(self._listed.named, uid_of(self._listed, item))
        elif kind != "BOOKMARK":
            raise UnreadableError(f"a watch event of the unknown type {kind:.40}")
        elif self._is_initial and _INITIAL_END in (metadata_of(item).get("annotations") or {}):
            self._is_initial = False
            self._follower.end_list(self._listed)
            self.synced.set()
        # Objects of a list come in any order of versions: a watch cannot go on from within.
        return "" if self._is_initial else version


class Follower:
    """The verdicts on the objects of one cluster, kept as they are. Make it on a running loop."""

    def __init__(
        self,
        settings: KubernetesSettings,
        access: ClusterAccess,
        store: Store,
        pace: Pace,
        options: Options,
        watch_pace: WatchPace | None = None,
    ) -> None:
        self.store = store
        self.pace = pace
        self._access = access
        self._options = options
        self._watch_pace = watch_pace or WatchPace()
        self._accesses: AccessPool[str] = AccessPool(settings)
        self._namespaces = ClusterNamespaces(settings, watch_pace, self._others_changed)
        self._plug_ins = ClusterPlugIns(self._others_changed)
        self._watches: dict[str, tuple[_KindWatch, asyncio.Task[None]]] = {}
        self._kinds: dict[str, ListedKind] = {}
        """By resource, those that are followed."""
        self._parts: dict[str, set[Part]] = {}
        """By resource, what is evaluated of its objects."""
        self._stale: dict[tuple[str, str], None] = {}
        """Resources and namespaces to list, the latter empty for all."""
        self._not_before: dict[str, float] = {}
        """By resource, when all its objects may be listed again."""
        self._changes: dict[str, _Change] = {}
        """By uid, what is to be evaluated."""
        self._bytes = 0
        self._wakes = asyncio.Event()
        self._have_others_changed = False
        """Whether namespaces, or what plug-ins read, may have changed since the last look."""
        self._refreshed_at = 0.0
        self._without_verdict: dict[str, str] = {}
        """By uid of objects that have none, their resources."""
        self._problems: dict[tuple[str, str], str] = {}
        self.this = Pass(0.0)
        """What was read and evaluated since :meth:`use`."""
        self.has_changed = False
        """Whether verdicts have changed. Who publishes them sets it to False."""

    async def start(self) -> None:
        """Begin to follow the namespaces.

        Raises:
            ClusterError: the cluster cannot be used.
        """
        await self._namespaces.start()

    async def close(self) -> None:
        """End the watches."""
        for resource in tuple(self._watches):
            await self._end(resource)
        await self._plug_ins.close(self._accesses)
        await self._namespaces.close()
        await self._accesses.close()

    # -- what is followed -------------------------------------------------------------------------

    async def use(self, gateway: OfflineGateway, now: float) -> None:
        """Evaluate through *gateway* from *now* on, in seconds since 1970.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        if not await self._namespaces.wait_until_synced(SYNCED_WITHIN_S):
            raise ClusterError(self._namespaces.not_synced or "namespaces not synced")
        self._gateway = gateway
        self._wanted = WantedKinds(called_webhooks(gateway), self._options)
        self.this = Pass(now)
        self.this.found.problems += gateway.ca_problems
        async with self._access.api() as api:
            self._version = await server_version(api)
            wanted = {kind.named: kind for kind in await self._wanted.read(api, self.this)}
        parts = {name: self._wanted.parts(kind) for name, kind in wanted.items()}
        if any("restart" in of_kind for of_kind in parts.values()):
            self._plug_ins.follow(self._accesses, self._watch_pace)
            if not await self._plug_ins.wait_until_synced(SYNCED_WITHIN_S):
                raise ClusterError(", ".join(self._plug_ins.notes))
            self.this.notes += self._plug_ins.notes
        gone = self._watches.keys() - wanted.keys()
        for resource in gone:
            await self._end(resource)
        if gone or not self.store.number:
            self.store.begin()
            self.store.finish(now, (), wanted)
        before, self._parts = self._parts, parts
        self._kinds = wanted
        self._not_before.clear()
        for resource, kind in wanted.items():
            if resource not in self._watches:
                self._begin(kind)
            elif before[resource] != self._parts[resource]:
                self.mark(kind)
        self._refresh(now, is_whole=True)

    def _begin(self, kind: ListedKind) -> None:
        watch = _KindWatch(self._accesses.acquire(kind.named), kind, self, self._watch_pace)
        self._watches[kind.named] = watch, asyncio.create_task(watch.run())

    async def _end(self, resource: str) -> None:
        _, task = self._watches.pop(resource)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._accesses.release(resource)
        self._drop_changes(resource)
        for key in [key for key in (*self._stale, *self._problems) if key[0] == resource]:
            self._stale.pop(key, None)
            self._problems.pop(key, None)
        self._forget_failures(resource)

    def _refresh(self, now: float, *, is_whole: bool) -> None:
        """List again the objects on which verdicts may not hold any more.

        With *is_whole* these are also failed ones, and those that are too old.
        """
        self._have_others_changed, self._refreshed_at = False, time.monotonic()
        self._side = Side(self._gateway, now)
        keys = self._keys = Keys(self._gateway, now, self._version, self._plug_ins.known())
        stale: dict[str, set[str]] = {}
        for resource, part, namespace, context in self.store.contexts():
            kind = self._kinds.get(resource)
            if kind is None or not (context or is_whole):
                continue
            about = self._namespaces.by_name.get(namespace)
            if part == "restart":
                found = keys.restart_context(about)
            else:
                found = keys.context(kind.group, kind.resource, about)
            if found.digest != context:
                stale.setdefault(resource, set()).add("" if resource == "namespaces" else namespace)
        if is_whole:
            for resource, namespace in self.store.older_than(now - self._options.max_age_s):
                if resource in self._kinds:
                    stale.setdefault(resource, set()).add(namespace)
        for resource, namespaces in stale.items():
            if (resource, "") in self._stale:
                continue
            if len(namespaces) > MAX_NAMESPACES:
                self.mark(self._kinds[resource])
            else:
                self._stale |= {(resource, namespace): None for namespace in namespaces}
        self._wakes.set()

    def _others_changed(self) -> None:
        self._have_others_changed = True
        self._wakes.set()

    # -- what watches tell ------------------------------------------------------------------------

    def knows(self, kind: ListedKind) -> bool:
        """Whether objects of *kind* have verdicts, so that most need not be evaluated."""
        is_to_list = (kind.named, "") in self._stale
        return not is_to_list and self.store.parts(kind.named) >= self._parts[kind.named]

    def mark(self, kind: ListedKind) -> None:
        """Have all objects of *kind* listed."""
        self._drop_changes(kind.named)
        for key in [key for key in self._stale if key[0] == kind.named]:
            del self._stale[key]
        self._stale[kind.named, ""] = None
        self._wakes.set()

    def note(self, kind: ListedKind, item: Json, *, is_deleted: bool) -> None:
        """Have *item*, which was created, changed or deleted, evaluated."""
        if (kind.named, "") in self._stale:
            return
        uid = uid_of(kind, item)
        version = metadata_of(item).get("resourceVersion")
        if not is_deleted and uid not in self._changes and self.store.version(uid) == version:
            return
        try:
            document = None if is_deleted else stored_json(item)
        except TypeError:
            document = b""
        self._put(uid, _Change(kind, document))

    def end_list(self, kind: ListedKind) -> None:
        """Have the verdicts removed on objects of *kind* that a watch list did not tell."""
        for uid in self.store.not_seen(kind.named, MAX_CHANGES + 1):
            if (kind.named, "") not in self._stale:
                self._put(uid, _Change(kind, None))
        self.store.forget_seen(kind.named)
        self._wakes.set()

    def _put(self, uid: str, change: _Change) -> None:
        before = self._changes.pop(uid, None)
        self._bytes += len(change.document or b"") - len((before and before.document) or b"")
        self._changes[uid] = change
        if len(self._changes) > MAX_CHANGES or self._bytes > MAX_CHANGED_BYTES:
            self.mark(change.kind)
        self._wakes.set()

    def _drop_changes(self, resource: str) -> None:
        self._changes = {uid: one for uid, one in self._changes.items() if one.kind.named != resource}
        self._bytes = sum(len(one.document or b"") for one in self._changes.values())

    # -- evaluation -------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether all that is known to have changed is evaluated, and each watch works or has failed."""
        return not (self._due() or self._changes or self._have_others_changed) and all(
            watch.is_failing or (watch.synced.is_set() and watch.is_connected)
            for watch in (*(watch for watch, _ in self._watches.values()), *self._plug_ins.watches)
        )

    def _due(self) -> list[tuple[str, str]]:
        """Return what is to be listed now."""
        now = time.monotonic()
        return [key for key in self._stale if key[1] or self._not_before.get(key[0], 0.0) <= now]

    @property
    def problems(self) -> list[str]:
        """Kinds that could not be listed or followed at the last attempt, and why."""
        watches = [watch for watch, _ in self._watches.values() if watch.is_failing]
        return [*self._problems.values(), *(f"{one.kind.path}: {one.last_error}" for one in watches)]

    async def step(self, timeout_s: float) -> None:
        """List what is to be listed, or evaluate changes, or wait for one up to *timeout_s* seconds.

        Raises:
            ClusterError: the cluster cannot be reached. What it was about is listed later.
        """
        now = time.monotonic()
        if self._have_others_changed and now - self._refreshed_at >= REFRESH_S:
            self._refresh(time.time(), is_whole=False)
        due = self._due()
        if due:
            await self._list(due)
        elif self._changes:
            await self._evaluate()
        else:
            self._wakes.clear()
            later = [at - now for resource, at in self._not_before.items() if (resource, "") in self._stale]
            later += [self._refreshed_at + REFRESH_S - now] if self._have_others_changed else []
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min([timeout_s, *later]))):
                    await self._wakes.wait()

    async def _list(self, due: list[tuple[str, str]]) -> None:
        targets = [Target(self._kinds[resource], namespace) for resource, namespace in due]
        for key in due:
            # What changes from now on is evaluated after the list.
            del self._stale[key]
            self._problems.pop(key, None)
            if not key[1]:
                self._not_before[key[0]] = time.monotonic() + AGAIN_AFTER_S
                self._forget_failures(key[0])
        this = Pass(time.time())
        self.store.doubt(due)
        is_done = False
        try:
            async with self._access.api() as api:
                self._without_verdict |= await self._review(this, self._scan(api, this).cases(targets))
            is_done = not this.stopped
        finally:
            read = this.read if is_done else []
            self.store.set_alike((number, uid) for uid, number in this.alike.values() if number > 1)
            failed = {resource for resource, _ in set(due).difference(read)}
            self.store.finish(this.began, read, failed)
            for resource in failed:
                self.mark(self._kinds[resource])
                self._not_before[resource] = time.monotonic() + AGAIN_AFTER_S
        # What the list lacks because it took long, the watch tells.
        problems = [one for one in this.found.problems if not one.endswith(CHANGED)]
        for target in targets:
            found = [one for one in problems if one.startswith(f"{target.path}: ")]
            if found:
                self._problems[target.kind.named, target.namespace] = found[0]

    async def _evaluate(self) -> None:
        uids = list(self._changes)[:AT_ONCE]
        changes = {uid: self._changes.pop(uid) for uid in uids}
        self._bytes -= sum(len(one.document or b"") for one in changes.values())
        this = Pass(time.time())
        try:
            async with self._access.api() as api:
                scan = self._scan(api, this)
                failed = await self._review(this, self._cases(api, scan, changes))
        except BaseException:
            for change in changes.values():
                self.mark(change.kind)
            raise
        if this.stopped:
            for change in changes.values():
                self.mark(change.kind)
        for uid, resource in failed.items():
            self.store.remove(uid)
            self._without_verdict[uid] = resource
        for template in scan.templates:
            self.store.count_alike(template)
        self.store.commit()

    async def _cases(
        self, api: ApiClient, scan: Scan, changes: dict[str, _Change]
    ) -> AsyncIterator[AuditCase]:
        for uid, change in changes.items():
            await self.pace.evaluate(1)
            self._without_verdict.pop(uid, None)
            if not change.document:
                scan.removed(change.kind, uid)
                if change.document is not None:
                    self._without_verdict[uid] = change.kind.named
                continue
            for case in scan.changed(change.kind, orjson.loads(change.document)):
                yield case
        # Others may be added meanwhile.
        for target, name in scan.others:
            await self.pace.request()
            item = await api.find(f"{target.path}/{quote(name, safe='')}")
            for case in scan.changed(target.kind, item) if item is not None else ():
                yield case

    async def _review(self, this: Pass, cases: AsyncIterator[AuditCase]) -> dict[str, str]:
        """Run *cases*, and return the resources of objects that got no verdict, by uid."""
        results = AuditResults(self._gateway, self.store, this)

        async def noted() -> AsyncIterator[AuditCase]:
            async for case in cases:
                assert case.subject is not None
                results.waiting[case.subject.uid, case.subject.part] = case.subject.resource
                yield case

        async def find(name: str) -> Namespace | None:
            return self._namespaces.by_name.get(name)

        await Replay(results, this.found, self._side, None, find).run(noted(), lambda: None)
        this.stopped = results.stopped
        self.has_changed = True
        total = self.this
        total.listed += this.listed
        total.evaluated += this.evaluated
        total.skipped += this.skipped
        total.stopped = this.stopped
        return {uid: resource for (uid, _), resource in results.waiting.items()} | this.unusable

    def _scan(self, api: ApiClient, this: Pass) -> Scan:
        return Scan(
            *(api, self.store, self.pace, self._options, self._wanted, this, self._keys),
            self._namespaces.by_name,
        )

    def _forget_failures(self, resource: str) -> None:
        self._without_verdict = {uid: one for uid, one in self._without_verdict.items() if one != resource}

    # -- the result -------------------------------------------------------------------------------

    def result(self) -> Pass:
        """Return the state as it is, with what was read and evaluated since :meth:`use`."""
        left_out = Counter({NO_VERDICT: len(self._without_verdict)} if self._without_verdict else {})
        waiting = {one for one, _ in self._stale}
        waiting |= {name for name, (watch, _) in self._watches.items() if not watch.synced.is_set()}
        problems = [*self.this.found.problems, *self.problems]
        if not problems:
            problems = [f"{self._kinds[one].path}: not read yet" for one in sorted(waiting)]
        found = Found(left_out, problems=problems)
        return replace(self.this, subjects=self.store.number_of(), found=found)

"""The custom resources in a cluster: watched, merged with the files, the status of the gateway's own written.

A change does not reload the configuration here: the owner gets a callback, and calls :meth:`merge`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ClusterError
from gateway.config.kinds.policy_exception import CLUSTER_WIDE, NAMESPACED
from gateway.config.merge.custom_resource import PLURALS, CustomResource
from gateway.config.merge.merged import NONE_REJECTED, REJECTED, merge, merge_pinned
from gateway.config.yaml.documents import GATEWAY_VERSION, NO_KINDS, POLICY_KINDS
from gateway.pure.admission_policies.expression_warnings import custom_versions, expression_warnings
from gateway.pure.admission_policies.model import ValidatingPolicy
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.loaded_kinds import LoadedKinds
from gateway.server.kubernetes.schemas import ClusterSchemas
from gateway.server.kubernetes.status_writer import MAX_PROBLEMS, StatusWriter, first_of
from gateway.server.kubernetes.watch import Kind, Pace, Store, UnreadableError, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from gateway.base.errors import Problem
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.custom_resource import Key
    from gateway.config.merge.merged import Merged, Rejections
    from gateway.config.merge.model import Config
    from gateway.config.merge.resource_status import ResourceStatus
    from gateway.config.yaml.documents import FollowedKinds
    from gateway.pure.admission_policies.expression_warnings import ExpressionWarning
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.openapi.schemas import Schemas

log = logging.getLogger(__name__)

READ_ONCE_TIMEOUT_S: Final = 10.0
LONGEST_SLEEP_S: Final = 3600.0
"""Between two looks at the ends of exceptions."""
_ABSENT_ON: Final = {
    **dict.fromkeys((NAMESPACED, CLUSTER_WIDE), (403, 404)),
    **dict.fromkeys((*POLICY_KINDS, *POLICY_KINDS.values()), (404,)),
}
GROUP: Final = GATEWAY_VERSION.partition("/")[0]


class ClusterCustomResources:
    """A cluster's custom resources, from :meth:`start` to :meth:`close`. Make it on a running loop."""

    def __init__(
        self,
        settings: KubernetesSettings,
        changed: Callable[[], None],
        pace: Pace | None = None,
        engines: FollowedKinds = NO_KINDS,
    ) -> None:
        """*changed* is called after every change, also of a status, once all resources have been read.

        *engines* are the other engines whose resources are followed, too, with their kinds.
        """
        self.settings = settings
        self._changed = changed
        self._timer: asyncio.TimerHandle | None = None
        self.merged: Merged | None = None
        """The configuration in force; None before the first."""
        self._access = ClusterAccess(settings)
        self._stores = {kind: _store(kind, lambda: self._on_change(changed)) for kind in PLURALS}
        self._watches = [
            Watch(self._access, _kind(kind), store, pace or Pace()) for kind, store in self._stores.items()
        ]
        self._of_engines = LoadedKinds(
            self._access, engines, lambda: self._on_change(changed), pace or Pace()
        )
        instance = f"{os.uname().nodename}_{uuid.uuid4().hex[:8]}"
        self._moved: frozenset[tuple[str, str]] = frozenset()
        """Kind and name of the policies that the API server evaluates."""
        self._writer = StatusWriter(self._access, self._latest, instance)
        self._logged: dict[Key, ResourceStatus] = {}
        self._schemas = ClusterSchemas(settings, changed)
        """Those of the kinds that policies match and that are not of Kubernetes itself."""
        self._checked: dict[Key, tuple[ValidatingPolicy, Schemas, tuple[ExpressionWarning, ...]]] = {}
        """The warnings about policies, by the schemas at that time."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def not_synced(self) -> str | None:
        """Why the resources have not all been read even once; None when they have been."""
        for watch in self._watches:
            if not watch.synced.is_set():
                return f"{watch.kind.noun} not synced: {watch.last_error}"
        return self._of_engines.not_synced

    @property
    def is_connected(self) -> bool:
        """Whether changes of all kinds arrive."""
        return self._of_engines.is_connected and all(watch.is_connected for watch in self._watches)

    @property
    def refused(self) -> int:
        """How many resources are refused."""
        return 0 if self.merged is None else sum(bool(one.problems) for one in self.merged.statuses)

    @property
    def rejected(self) -> list[str]:
        """A line for each problem of the resources that workers reject."""
        statuses = () if self.merged is None else self.merged.statuses
        return [
            f"custom resource refused ({status.effect}): {problem}"
            for status in statuses
            if status.reason == REJECTED
            for problem in status.problems
        ]

    @property
    def warnings(self) -> list[str]:
        """A line for each expression of a policy that cannot succeed, and why not all can be checked."""
        statuses = () if self.merged is None else self.merged.statuses
        lines = [
            f"{status.resource.where}: in force, but {warning.summary}"
            for status in statuses
            for warning in status.type_warnings
        ]
        return lines + ([self._schemas.warning] if self._schemas.warning else [])

    async def start(self) -> None:
        """Begin to follow the resources; this does not wait for the API server.

        Raises:
            ClusterError: the kubeconfig or the service account cannot be used.
        """
        async with self._access.api():
            self._run(*(watch.run() for watch in self._watches))
            self._of_engines.start()

    async def wait_until_synced(self, timeout_s: float | None) -> bool:
        """Return whether all resources have been read within *timeout_s* seconds; None waits for ever."""
        try:
            async with asyncio.timeout(timeout_s):
                for watch in self._watches:
                    await watch.synced.wait()
                await self._of_engines.wait_until_synced()
        except TimeoutError:
            return False
        return True

    async def merge(self, files: Config, rejected: Rejections = NONE_REJECTED) -> Merged:
        """Return the configuration of *files* and the resources; it is not in force yet.

        *rejected* has the resources whose present versions workers reject.
        """
        resources = [resource for store in self._stores.values() for resource in store.by_name.values()]
        resources += self._of_engines.resources
        now, pinned = time.time(), files.pinned
        before, schemas = self.merged, self._schemas.current

        def merged() -> Merged:
            found = (
                merge(files, resources, before, now, rejected)
                if pinned is None
                else merge_pinned(files, pinned, resources, before, now, rejected)
            )
            return self._with_type_warnings(found, schemas)

        # In a thread: reading large objects takes long.
        return await asyncio.to_thread(merged)

    def _with_type_warnings(self, merged: Merged, schemas: Schemas) -> Merged:
        known, self._checked = self._checked, {}
        statuses = []
        for status in merged.statuses:
            key = status.resource.key
            policy = merged.read[key].content if key in merged.read else None
            if status.problems or not isinstance(policy, ValidatingPolicy):
                statuses.append(status)
                continue
            checked = known.get(key)
            if checked is None or checked[0] is not policy or checked[1] is not schemas:
                checked = policy, schemas, expression_warnings(policy, schemas)
            self._checked[key] = checked
            statuses.append(status.with_type_warnings(checked[2]))
        return replace(merged, statuses=tuple(statuses))

    def activate(self, merged: Merged) -> None:
        """Log the result for each resource, and write it to the cluster: *merged* is now in force."""
        if self.merged is None:
            # Not before: a gateway that does not serve yet writes nothing.
            self._run(self._writer.run())
        self.merged = merged
        before, self._logged = self._logged, {}
        for status in merged.statuses:
            key = status.resource.key
            earlier = before.get(key)
            self._logged[key] = status
            is_news = earlier is None or earlier.problems != status.problems
            if status.problems and (is_news or (earlier and earlier.effect != status.effect)):
                for problem in first_of([str(problem) for problem in status.problems]):
                    log.error("custom resource refused (%s): %s", status.effect, problem)
            elif earlier is not None and earlier.problems and not status.problems:
                log.info("custom resource in force again: %s", status.resource.where)
            for warning in status.type_warnings[:MAX_PROBLEMS]:
                if earlier is None or warning not in earlier.type_warnings:
                    log.warning("policy cannot succeed: %s: %s", status.resource.where, warning.summary)
            is_idle = not status.problems and not status.is_in_force
            if is_idle and (earlier is None or earlier.note != status.note):
                log.info("custom resource without effect: %s: %s", status.resource.where, status.note)
        self._writer.use(self._statuses(merged))
        policies = (read.content for read in merged.read.values())
        self._schemas.activate(custom_versions(one for one in policies if isinstance(one, ValidatingPolicy)))
        self._wake_at_next_end(merged.config.exceptions)

    def note_moved(self, policies: frozenset[tuple[str, str]]) -> None:
        """Write into the statuses of *policies*, by kind and name, that the API server evaluates them."""
        self._moved = policies
        if self.merged is not None:
            self._writer.use(self._statuses(self.merged))

    def _statuses(self, merged: Merged) -> list[ResourceStatus]:
        # The status of another engine's resource is written by that engine.
        return [
            one.moved() if (one.resource.kind, one.resource.name) in self._moved else one
            for one in merged.statuses
            if not one.resource.group
        ]

    def _wake_at_next_end(self, exceptions: Iterable[PolicyException]) -> None:
        """Call back when the next exception expires, whose status changes then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = time.time()
        ends = [one.expires_at for one in exceptions if one.expires_at is not None and one.expires_at > now]
        if ends:
            # Not for years: the clock may be set.
            seconds = min(min(ends) - now, LONGEST_SLEEP_S)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._changed)

    async def close(self) -> None:
        """Stop watching and writing."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._of_engines.close()
        await self._schemas.close()
        await self._access.close()

    def _latest(self, key: Key) -> CustomResource | None:
        kind, id_ = key
        return self._stores[kind].by_name.get(id_)

    def _run(self, *coroutines: Coroutine[object, object, None]) -> None:
        self._tasks += map(asyncio.create_task, coroutines)

    def _on_change(self, changed: Callable[[], None]) -> None:
        if self.not_synced is None:
            changed()


def _log(problem: Problem) -> None:
    log.error("custom resource refused: %s", problem)


async def read_once(
    settings: KubernetesSettings, files: Config, refused: Callable[[Problem], None] = _log
) -> Config:
    """Return the configuration of *files* and the cluster's custom resources; write no status.

    *refused* is called with each problem of a resource.

    Raises:
        ClusterError: the resources cannot be read.
    """
    engines = files.gateway.policies.followed_kinds
    resources = ClusterCustomResources(settings, lambda: None, engines=engines)
    try:
        await resources.start()
        if not await resources.wait_until_synced(READ_ONCE_TIMEOUT_S):
            raise ClusterError(resources.not_synced or "custom resources not synced")
        merged = await resources.merge(files)
    finally:
        await resources.close()
    for status in merged.statuses:
        for problem in status.problems:
            refused(problem)
    return merged.config


def _kind(kind: str) -> Kind:
    plural = PLURALS[kind]
    return Kind(
        f"/apis/{GATEWAY_VERSION}/{plural}",
        f"{plural}.{GROUP}",
        f"{kind}List",
        f"is there no CustomResourceDefinition {plural}.{GROUP}? deploy/chart/files/crds.yaml has it",
        # A cluster may have older definitions than the gateway, and older roles: without exceptions every
        # webhook is called, but policies that may not be read would be bypassed.
        absent_on=_ABSENT_ON.get(kind, ()),
    )


def _store(kind: str, changed: Callable[[], None]) -> Store[CustomResource]:
    def read(document: object) -> CustomResource:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(document, dict) or not isinstance(metadata, dict) or not isinstance(name, str):
            raise UnreadableError(f"a {kind} without a name")
        # Without members such as managedFields, which are most of the bytes of a small object.
        kept = {key: metadata[key] for key in ("name", "uid", "generation") if key in metadata}
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and (
            own := {key: text for key, text in annotations.items() if key.startswith(f"{GROUP}/")}
        ):
            kept["annotations"] = own
        namespace = metadata.get("namespace")
        namespace = namespace if isinstance(namespace, str) else ""
        return CustomResource(kind, name, {**document, "metadata": kept}, namespace)

    return Store(read, changed, lambda one: one.id)

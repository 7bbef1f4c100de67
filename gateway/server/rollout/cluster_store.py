"""States and evidence as custom resources in the gateway's namespace, for all replicas.

A RolloutState is one plan's state, and a RolloutEvidence what one process has seen. Both are observed by
bounded watches. A state is replaced with the resourceVersion that was read. If another process has written
it since, the API server answers 409. A Lease would not do: a paused process writes after its Lease has ended.

Source: kubernetes.io/docs/reference/using-api/api-concepts, "Updates to existing resources".
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.base.text import rfc3339
from gateway.config.yaml.documents import GATEWAY_VERSION
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.watch import Kind, Pace, UnreadableError
from gateway.server.rollout.bounded_watch import BoundedStore, BoundedWatch
from gateway.server.rollout.process_evidence import (
    ProcessEvidence,
    read_evidence,
    room_for_evidence,
)
from gateway.server.rollout.store import (
    EVIDENCE,
    MAX_BYTES,
    PLURALS,
    STATE,
    Json,
    Stored,
    StoreError,
    StoreFullError,
    room_for_states,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient

_GROUP: Final = GATEWAY_VERSION.partition("/")[0]
_NOT_FOUND, _CONFLICT = 404, 409
_MAX_EVENTS: Final = 18
"""That are being created."""
_EVENTS_WITHIN_S: Final = 1.0
"""Events of the last decisions are created before the end, if the API server answers so soon."""

log = logging.getLogger(__name__)


class ClusterStore:
    """The store of the gateway *installation*, ``NAMESPACE/NAME``. See ``PlanStore``."""

    def __init__(
        self,
        settings: KubernetesSettings,
        installation: str,
        changed: Callable[[], None] = lambda: None,
        pace: Pace | None = None,
        *,
        has_evidence: bool = True,
    ) -> None:
        """*changed* is called after each change that is observed.

        *has_evidence* is whether evidence is read, too: only gateways need it.
        """
        self._namespace, _, self._installation = installation.partition("/")
        self._changed = changed
        self._access = ClusterAccess(settings)
        prefix = f"{self._installation}."
        self._states = BoundedStore(
            partial(_read_state, prefix), self._on_change, "RolloutStates", room_for_states
        )
        self._evidence = BoundedStore(
            partial(_read_evidence, prefix), self._on_change, "RolloutEvidences", room_for_evidence
        )
        pace = pace or Pace()
        self._watches: list[BoundedWatch[Stored] | BoundedWatch[ProcessEvidence]] = [
            BoundedWatch(self._access, self._kind(STATE), self._states, pace)
        ]
        if has_evidence:
            self._watches.append(BoundedWatch(self._access, self._kind(EVIDENCE), self._evidence, pace))
        self._written: dict[str, ProcessEvidence] = {}
        """Evidence as it was last written."""
        self._following: list[asyncio.Task[None]] = []
        self._announcing: list[asyncio.Task[None]] = []

    @property
    def states(self) -> Mapping[str, Stored]:
        """See ``PlanStore``."""
        return self._states.by_name

    @property
    def evidence(self) -> Mapping[str, ProcessEvidence]:
        """See ``PlanStore``."""
        # That of this process counts also if it was not kept.
        return {**self._written, **self._evidence.by_name}

    @property
    def excess(self) -> str:
        """See ``PlanStore``."""
        return self._evidence.excess

    @property
    def is_synced(self) -> bool:
        """See ``PlanStore``."""
        return all(watch.synced.is_set() for watch in self._watches)

    @property
    def fault(self) -> str:
        """See ``PlanStore``."""
        for watch in self._watches:
            if not watch.is_connected:
                return f"{watch.kind.noun}: {watch.last_error}"
        # Which decisions there are is not known.
        return self._states.excess

    async def start(self) -> None:
        """See ``PlanStore``."""
        self._following = [asyncio.create_task(watch.run()) for watch in self._watches]

    async def close(self) -> None:
        """See ``PlanStore``."""
        if self._announcing:
            await asyncio.wait(self._announcing, timeout=_EVENTS_WITHIN_S)
        tasks = (*self._following, *self._announcing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._access.close()

    async def replace(self, name: str, before: Stored | None, document: Json) -> bool:
        """See ``PlanStore``."""
        return await self._write(STATE, name, before, document) is not None

    async def put_evidence(self, name: str, document: Json) -> None:
        """See ``PlanStore``."""
        # What this process wrote last may not have come by the watch yet.
        before = self._written.pop(name, None) or self.evidence.get(name)
        if before is None and self._evidence.excess:
            raise StoreFullError(self._evidence.excess)
        written = await self._write(EVIDENCE, name, before, document)
        if written is None:
            raise StoreError(f"the {EVIDENCE} of {name} was changed by another writer")
        self._written[name] = _read_evidence(f"{self._installation}.", written)

    async def remove(self, kind: str, one: Stored | ProcessEvidence) -> None:
        """See ``PlanStore``."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"resourceVersion": one.version},
        }
        if kind == EVIDENCE:
            self._written.pop(one.name, None)
        try:
            async with self._access.api() as api:
                await api.write("DELETE", self._path(kind, one.name), options)
        except ClusterError as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise StoreError(str(error)) from error

    async def who(self) -> str:
        """Return the name of the user whose credentials are used, as the API server sees it.

        Raises:
            StoreError: the API server refuses, or gives no answer.
        """
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            async with self._access.api() as api:
                found = await api.write("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", kind)
        except ClusterError as error:
            raise StoreError(str(error)) from error
        return str(found.get("status", {}).get("userInfo", {}).get("username") or "unknown")

    def announce(self, name: str, event: Json) -> None:
        """Create an *event* about the state *name* in the background, of one name in all processes."""
        revision = event.pop("revision")
        document = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._object_name(name)}.{revision}",
                "namespace": self._namespace,
            },
            "eventTime": rfc3339(time.time(), 6),
            "reportingController": "admission-gateway.io/gateway",
            "reportingInstance": self._installation,
            "regarding": {
                "apiVersion": GATEWAY_VERSION,
                "kind": STATE,
                "namespace": self._namespace,
                "name": self._object_name(name),
            },
            **event,
        }
        self._announcing = [task for task in self._announcing if not task.done()]
        if len(self._announcing) < _MAX_EVENTS:
            self._announcing.append(asyncio.create_task(self._create_event(document)))

    async def _create_event(self, document: Json) -> None:
        namespace = quote(self._namespace, safe="")
        try:
            async with self._access.api() as api:
                await api.write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", document)
        except ClusterError as error:
            # A conflict: another process has created it.
            if error.status != _CONFLICT:
                log.warning("an Event about a rollout plan was not created: %s", error)

    async def _write(
        self, kind: str, name: str, before: Stored | ProcessEvidence | None, document: Json
    ) -> Json | None:
        """Return the object as it was written, or None if it is not *before* any more."""
        size = len(orjson.dumps(document))
        if size > MAX_BYTES:
            raise StoreError(f"the {kind} of {name} would have {size} bytes, expected at most {MAX_BYTES}")
        metadata = {"name": self._object_name(name), "namespace": self._namespace}
        body = {"apiVersion": GATEWAY_VERSION, "kind": kind, "metadata": metadata, "status": document}
        if before is not None:
            metadata["resourceVersion"] = before.version
        try:
            async with self._access.api() as api:
                if before is None:
                    return await api.write("POST", self._path(kind), body)
                return await api.write("PUT", self._path(kind, name), body)
        except ClusterError as error:
            if error.status == _CONFLICT or (before is not None and error.status == _NOT_FOUND):
                return None
            raise StoreError(str(error)) from error

    def _object_name(self, name: str) -> str:
        return f"{self._installation}.{name}"

    def _path(self, kind: str, name: str = "") -> str:
        path = _path_of(kind, self._namespace)
        return f"{path}/{quote(self._object_name(name), safe='')}" if name else path

    def _kind(self, kind: str) -> Kind:
        plural = PLURALS[kind]
        return Kind(
            self._path(kind),
            f"{plural}.{_GROUP}",
            f"{kind}List",
            f"is there no CustomResourceDefinition {plural}.{_GROUP}? deploy/chart/files/crds.yaml has it",
        )

    def _on_change(self) -> None:
        if self.is_synced:
            self._changed()


async def read_states(api: ApiClient, installation: str) -> dict[str, Stored]:
    """Return the states of *installation* by name, once.

    Raises:
        ClusterError: they cannot be read.
    """
    namespace, _, prefix = installation.partition("/")
    found = await api.get(_path_of(STATE, namespace))
    items = found.get("items")
    states = (_read_state(f"{prefix}.", one) for one in (items if isinstance(items, list) else ()))
    return {one.name: one for one in states if one.name}


def _path_of(kind: str, namespace: str) -> str:
    return f"/apis/{GATEWAY_VERSION}/namespaces/{quote(namespace, safe='')}/{PLURALS[kind]}"


def _read_state(prefix: str, document: object) -> Stored:
    name, status, version = _members(prefix, document)
    try:
        return Stored(name, status, version, len(orjson.dumps(status)))
    except TypeError:
        # It nests deeper than a state does.
        return Stored(name, {}, version)


def _read_evidence(prefix: str, document: object) -> ProcessEvidence:
    return read_evidence(*_members(prefix, document))


def _members(prefix: str, document: object) -> tuple[str, Json, str]:
    """Return the name behind *prefix*, status and version of *document*.

    The name of an object without the prefix, which is that of another installation, is empty.
    """
    match document:
        case {"metadata": {"name": str(name), "resourceVersion": str(version)}, **rest}:
            status = rest.get("status")
            own = name.removeprefix(prefix) if name.startswith(prefix) else ""
            return own, status if own and isinstance(status, dict) else {}, version
    raise UnreadableError("an object without a name or a resourceVersion")

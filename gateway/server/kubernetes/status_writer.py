"""Writes the result of custom resources into the cluster: a condition ``Ready``, and Events when it changes.

Every replica writes. It first waits for a short random time, and then skips each object whose condition is
already right: another replica has written it. Two that write at the same moment write the same condition, and
an Event of the same name, which the API server stores once.

A status is written where the object has another one, an Event when ``Ready`` changes to or from ``False``.
Neither is written in a loop: the same status at most once a minute, and a limited number of Events a minute.
Events contain the names of fields and no values, because users may read Events who may not read the object.

A ValidatingAdmissionPolicy also has ``typeChecking`` and ``observedGeneration``, as in the API server.

Source: k8s.io/kubernetes pkg/controller/validatingadmissionpolicystatus; k8s.io/apimachinery
pkg/apis/meta/v1 types.go, Condition; k8s.io/api events/v1 types.go; KEP-383.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.base.text import rfc3339
from gateway.config.merge.custom_resource import PLURALS
from gateway.config.yaml.documents import GATEWAY_VERSION, POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.merge.custom_resource import CustomResource, Key
    from gateway.config.merge.resource_status import ResourceStatus
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "admission-gateway-status"
CONDITION: Final = "Ready"
EVENTS_PATH: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
"""Events about cluster-scoped objects are in this namespace."""
MAX_MESSAGE_CHARS: Final = 4096
"""The API allows eight times as many."""
MAX_PROBLEMS: Final = 20
JITTER_S: Final = 2.0
"""Longest random delay before statuses are written. The watch shows another replica's write much sooner."""
WRITE_SAME_AGAIN_AFTER_S: Final = 60.0
MAX_EVENTS_PER_MINUTE: Final = 30
RETRY_AFTER_S: Final = 10.0
_MAX_NOTE_CHARS: Final = 900
_UNDECLARED: Final = "field not declared in schema"
_TYPE_CHECKING: Final = ("observedGeneration", "typeChecking")
_NOT_FOUND, _CONFLICT = 404, 409
_ABOUT_ONE_OBJECT: Final = (400, 403, 422)
"""Statuses that concern one object, so that requests for other objects may succeed."""


def first_of(problems: list[str]) -> list[str]:
    """Return the first ``MAX_PROBLEMS`` of *problems*, and how many more there are."""
    more = len(problems) - MAX_PROBLEMS
    return problems if more <= 0 else [*problems[:MAX_PROBLEMS], f"and {more} more"]


def condition_of(status: ResourceStatus) -> dict[str, Any]:
    """Return the condition for *status*, without ``lastTransitionTime``."""
    problems = first_of([str(replace(one, where="")) for one in status.problems])
    message = "\n".join([*problems, f"Effect: {status.effect}."]) if problems else status.note
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[: MAX_MESSAGE_CHARS - 3] + "..."
    return {
        "type": CONDITION,
        "status": "True" if status.is_in_force else "False",
        "reason": status.reason,
        "message": message,
        "observedGeneration": status.resource.generation,
    }


def type_checking_of(status: ResourceStatus) -> dict[str, Any]:
    """Return the other fields of the *status*: those that the API server writes about expressions."""
    resource = status.resource
    if resource.kind != POLICY or status.problems:
        return {}
    warnings = [{"fieldRef": one.field_ref, "warning": one.warning} for one in status.type_warnings]
    # An empty mapping in place of one with members would be null after the API server's merge, and refused.
    checking = {"typeChecking": {"expressionWarnings": warnings}} if warnings else {}
    return {"observedGeneration": resource.generation, **checking}


class StatusWriter:
    """The task that writes statuses. Make it on a running event loop."""

    def __init__(
        self, access: ClusterAccess, latest: Callable[[Key], CustomResource | None], instance: str
    ) -> None:
        """*latest* returns a resource as the watch last showed it. *instance* is this process in Events."""
        self._access = access
        self._latest = latest
        self._instance = instance
        self._statuses: Sequence[ResourceStatus] = ()
        self._wake = asyncio.Event()
        self._now = asyncio.get_running_loop().time
        self._written: dict[Key, tuple[object, float]] = {}
        """By resource, the condition that was last written or refused, and when."""
        self._events: deque[float] = deque(maxlen=MAX_EVENTS_PER_MINUTE)
        """When the last Events were created."""
        self._timer: asyncio.TimerHandle | None = None
        self._omits_type_checking = False
        self._has_warned = False
        self._has_warned_of_events = False

    def use(self, statuses: Sequence[ResourceStatus]) -> None:
        """Write the conditions of *statuses*, those of all resources, from now on."""
        self._statuses = statuses
        self._wake_in(random.uniform(0, JITTER_S))  # noqa: S311

    def _wake_in(self, seconds: float) -> None:
        # One timer, the earliest, whatever the number of resources.
        loop = asyncio.get_running_loop()
        if self._timer is not None and loop.time() < self._timer.when() <= loop.time() + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._wake.set)

    async def run(self) -> None:
        """Write statuses that have changed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.write_all()
                self._has_warned = False
            except ClusterError as error:
                if not self._has_warned:
                    self._has_warned = True
                    log.warning("cannot write the status of custom resources: %s", error)
                self._wake_in(RETRY_AFTER_S)
            except Exception:
                log.exception("cannot write the status of custom resources: internal error")

    async def write_all(self) -> None:
        """Write every status that differs now.

        Raises:
            ClusterError: the API server refused one, or gave no answer.
        """
        # In random order, so that replicas that write at the same time begin with different objects.
        statuses = random.sample(self._statuses, len(self._statuses))
        keys = {status.resource.key for status in statuses}
        self._written = {key: value for key, value in self._written.items() if key in keys}
        refusal: ClusterError | None = None
        async with self._access.api() as api:
            for status in statuses:
                try:
                    await self._write(api, status)
                except ClusterError as error:
                    if error.status not in _ABOUT_ONE_OBJECT:
                        raise
                    # An object that is refused, such as by a webhook, does not delay the others.
                    refusal = error
        if refusal is not None:
            raise refusal

    async def _write(self, api: ApiClient, status: ResourceStatus) -> None:
        resource, wanted = status.resource, condition_of(status)
        others = {} if self._omits_type_checking else type_checking_of(status)
        latest = self._latest(resource.key)
        if latest is None:
            return
        found = _condition(latest)
        present = _status(latest)
        is_condition_right = all(found.get(name) == value for name, value in wanted.items())
        if is_condition_right and all(present.get(name) == others.get(name) for name in _TYPE_CHECKING):
            return
        state, now = (resource.uid, wanted, others), self._now()
        last, at = self._written.get(resource.key, (None, 0.0))
        if last == state and now - at < WRITE_SAME_AGAIN_AFTER_S:
            self._wake_in(WRITE_SAME_AGAIN_AFTER_S)
            return
        self._written[resource.key] = state, now
        since = found.get("lastTransitionTime") if found.get("status") == wanted["status"] else None
        condition = {
            **wanted,
            "lastTransitionTime": since or rfc3339(time.time()),
        }
        document = {
            "apiVersion": GATEWAY_VERSION,
            "kind": resource.kind,
            # With the uid, so that a new object of the same name does not get the old one's status.
            "metadata": {
                "name": resource.name,
                **({"namespace": resource.namespace} if resource.namespace else {}),
                **({"uid": resource.uid} if resource.uid else {}),
            },
            "status": {"conditions": [condition], **others},
        }
        scope = f"/namespaces/{quote(resource.namespace, safe='')}" if resource.namespace else ""
        name = quote(resource.name, safe="")
        path = f"/apis/{GATEWAY_VERSION}{scope}/{PLURALS[resource.kind]}/{name}/status"
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        try:
            await api.patch(path, params, orjson.dumps(document), "application/apply-patch+yaml")
        except ClusterError as error:
            if others and _UNDECLARED in str(error):
                self._omits_type_checking = True
                log.warning(
                    "status without typeChecking: the CustomResourceDefinitions in the cluster are older "
                    "than the gateway; apply deploy/chart/files/crds.yaml, then restart the gateway"
                )
                del self._written[resource.key]
                await self._write(api, status)
                return
            if error.status not in _ABOUT_ONE_OBJECT:
                del self._written[resource.key]
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
            # The object was deleted or replaced; the watch will show that.
            log.debug("status not written: %s: %s", resource.where, error)
            return
        # In the namespace of a namespaced object the gateway may not create Events.
        if not resource.namespace and "False" in (wanted["status"], found.get("status")):
            await self._create_event(api, status, wanted)

    async def _create_event(self, api: ApiClient, status: ResourceStatus, condition: dict[str, Any]) -> None:
        now = self._now()
        if len(self._events) == MAX_EVENTS_PER_MINUTE and now - self._events[0] < 60.0:
            return
        self._events.append(now)
        try:
            await api.write("POST", EVENTS_PATH, self._event(status, condition))
        except ClusterError as error:
            # A conflict: another replica has created it.
            if error.status != _CONFLICT and not self._has_warned_of_events:
                self._has_warned_of_events = True
                log.warning("cannot create Events for custom resources: %s", error)

    def _event(self, status: ResourceStatus, condition: dict[str, Any]) -> dict[str, Any]:
        resource = status.resource
        is_ready = condition["status"] == "True"
        fields = ", ".join(dict.fromkeys(one.field or "the object" for one in status.problems))
        fields = fields if len(fields) <= _MAX_NOTE_CHARS else fields[: _MAX_NOTE_CHARS - 3] + "..."
        why = f"refused because of {fields}; its status says why" if fields else status.note[:_MAX_NOTE_CHARS]
        note = "in force again" if is_ready else why
        content = orjson.dumps((resource.uid, condition), option=orjson.OPT_SORT_KEYS)
        moment = rfc3339(time.time(), 6)
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                # The same in every replica, so that the API server stores one.
                "name": f"{resource.name[:200].rstrip('.-')}.{hashlib.sha256(content).hexdigest()[:16]}",
                "namespace": "default",
            },
            "eventTime": moment,
            "reportingController": "admission-gateway.io/gateway",
            "reportingInstance": self._instance,
            "action": "Judge",
            "reason": status.reason,
            "type": "Normal" if is_ready else "Warning",
            "note": note,
            "regarding": {
                "apiVersion": GATEWAY_VERSION,
                "kind": resource.kind,
                "name": resource.name,
                **({"uid": resource.uid} if resource.uid else {}),
            },
        }


def _status(resource: CustomResource) -> dict[str, Any]:
    """Return the status of *resource*; empty if it has none."""
    found = resource.document.get("status")
    return found if isinstance(found, dict) else {}


def _condition(resource: CustomResource) -> dict[str, Any]:
    """Return the condition ``Ready`` of *resource*; empty if it has none."""
    match _status(resource):
        case {"conditions": list(conditions)}:
            for condition in conditions:
                if isinstance(condition, dict) and condition.get("type") == CONDITION:
                    return condition
    return {}

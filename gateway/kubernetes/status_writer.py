"""Tells the authors of custom resources what came of them: a condition ``Ready``, and Events when it changes.

One process at a time writes (``lease.py``), by its own view; all see the same objects. A status
is written when the object has another one, an Event when it turned to or from ``False``. Neither is written
in a loop, whatever becomes of it: the same status once a minute at most, and so many Events a minute.

Events, which people read who may not read the object, name fields and no values.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, Condition; k8s.io/api events/v1 types.go; KEP-383.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from gateway.config.custom import PLURALS
from gateway.config.documents import GATEWAY_VERSION
from gateway.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.custom import CustomResource, Judgement
    from gateway.kubernetes.access import ClusterAccess
    from gateway.kubernetes.api_client import ApiClient

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "admission-gateway-status"
CONDITION: Final = "Ready"
EVENTS_PATH: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
"""Events of what is in no namespace are kept there."""
MAX_MESSAGE_CHARS: Final = 4096
"""The API allows eight times as many, which nobody reads."""
MAX_PROBLEMS: Final = 20
SAME_AGAIN_AFTER_S: Final = 60.0
EVENTS_A_MINUTE: Final = 30
TRY_AGAIN_AFTER_S: Final = 10.0
_MAX_NOTE_CHARS: Final = 900
_NOT_FOUND, _CONFLICT = 404, 409
_ABOUT_ONE: Final = (400, 403, 422)
"""Of a request, whatever becomes of others."""


def first_of(problems: list[str]) -> list[str]:
    """Return as many of *problems* as anybody reads: their author chooses how many there are."""
    more = len(problems) - MAX_PROBLEMS
    return problems if more <= 0 else [*problems[:MAX_PROBLEMS], f"and {more} more"]


def condition_of(judgement: Judgement) -> dict[str, Any]:
    """Return the condition that tells of *judgement*, without its time."""
    problems = first_of([str(replace(one, where="")) for one in judgement.problems])
    message = "\n".join([*problems, f"Now {judgement.remains}."]) if problems else "in force"
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[: MAX_MESSAGE_CHARS - 3] + "..."
    return {
        "type": CONDITION,
        "status": "False" if problems else "True",
        "reason": judgement.reason,
        "message": message,
        "observedGeneration": judgement.resource.generation,
    }


class StatusWriter:
    """The task that writes statuses while its process holds the lease. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess, may_write: Callable[[], bool], instance: str) -> None:
        """*may_write* says whether this process, called *instance*, is the one; :meth:`wake` when it is."""
        self._access = access
        self._may_write = may_write
        self._instance = instance
        self._judgements: Sequence[Judgement] = ()
        self._wake = asyncio.Event()
        self._now = asyncio.get_running_loop().time
        self._written: dict[tuple[str, str], tuple[object, float]] = {}
        """By resource, what was written last, or refused, and when."""
        self._events: deque[float] = deque(maxlen=EVENTS_A_MINUTE)
        """When the last ones were made."""
        self._later: asyncio.TimerHandle | None = None
        self._is_told = False
        self._is_event_told = False

    def tell(self, judgements: Sequence[Judgement]) -> None:
        """Have *judgements*, those of all resources, be what statuses say from now on."""
        self._judgements = judgements
        self.wake()

    def wake(self) -> None:
        """Look now whether there is something to write."""
        self._wake.set()

    def _wake_in(self, seconds: float) -> None:
        # One timer, the earliest, whatever the number of resources: what is not due then asks for the next.
        loop = asyncio.get_running_loop()
        if self._later is not None and loop.time() < self._later.when() <= loop.time() + seconds:
            return
        if self._later is not None:
            self._later.cancel()
        self._later = loop.call_later(seconds, self.wake)

    async def run(self) -> None:
        """Write what is to be written, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._may_write():
                continue
            try:
                await self._write_all()
                self._is_told = False
            except ClusterError as error:
                if not self._is_told:
                    self._is_told = True
                    log.warning("the status of custom resources cannot be written: %s", error)
                self._wake_in(TRY_AGAIN_AFTER_S)
            except Exception:
                log.exception("a status cannot be written: internal error")

    async def _write_all(self) -> None:
        judgements = self._judgements
        there = {judgement.resource.key for judgement in judgements}
        self._written = {key: value for key, value in self._written.items() if key in there}
        refusal: ClusterError | None = None
        async with self._access.api() as api:
            for judgement in judgements:
                if not self._may_write():
                    break
                try:
                    await self._write(api, judgement)
                except ClusterError as error:
                    if error.status not in _ABOUT_ONE:
                        raise
                    # One object that is refused, such as by a webhook, does not keep all after it waiting.
                    refusal = error
        if refusal is not None:
            raise refusal

    async def _write(self, api: ApiClient, judgement: Judgement) -> None:
        resource, wanted = judgement.resource, condition_of(judgement)
        found = _condition(resource)
        if all(found.get(name) == value for name, value in wanted.items()):
            return
        state, now = (resource.uid, wanted), self._now()
        last, at = self._written.get(resource.key, (None, 0.0))
        if last == state and now - at < SAME_AGAIN_AFTER_S:
            self._wake_in(SAME_AGAIN_AFTER_S)
            return
        self._written[resource.key] = state, now
        since = found.get("lastTransitionTime") if found.get("status") == wanted["status"] else None
        condition = {
            **wanted,
            "lastTransitionTime": since or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        document = {
            "apiVersion": GATEWAY_VERSION,
            "kind": resource.kind,
            # With the uid, so that a new object of the same name is not told what the old one did.
            "metadata": {"name": resource.name, **({"uid": resource.uid} if resource.uid else {})},
            "status": {"conditions": [condition]},
        }
        path = f"/apis/{GATEWAY_VERSION}/{PLURALS[resource.kind]}/{quote(resource.name, safe='')}/status"
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        try:
            await api.patch(path, params, orjson.dumps(document), "application/apply-patch+yaml")
        except ClusterError as error:
            if error.status not in _ABOUT_ONE:
                del self._written[resource.key]
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
            # It went meanwhile, or is another one, of which the watch will tell.
            log.debug("%s: %s", resource.where, error)
            return
        if wanted["status"] == "False" or found.get("status") == "False":
            await self._tell_event(api, judgement, wanted)

    async def _tell_event(self, api: ApiClient, judgement: Judgement, condition: dict[str, Any]) -> None:
        now = self._now()
        if len(self._events) == EVENTS_A_MINUTE and now - self._events[0] < 60.0:
            return
        self._events.append(now)
        try:
            await api.write("POST", EVENTS_PATH, self._event(judgement, condition))
        except ClusterError as error:
            if error.status != _CONFLICT and not self._is_event_told:
                self._is_event_told = True
                log.warning("%s: no event can be made: %s", judgement.resource.where, error)

    def _event(self, judgement: Judgement, condition: dict[str, Any]) -> dict[str, Any]:
        resource = judgement.resource
        is_ready = condition["status"] == "True"
        fields = ", ".join(dict.fromkeys(one.field or "the object" for one in judgement.problems))
        fields = fields if len(fields) <= _MAX_NOTE_CHARS else fields[: _MAX_NOTE_CHARS - 3] + "..."
        note = "in force again" if is_ready else f"refused because of {fields}; its status says why"
        said = orjson.dumps((resource.uid, condition), option=orjson.OPT_SORT_KEYS)
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                # The same for the same, should two processes tell of it.
                "name": f"{resource.name[:200].rstrip('.-')}.{hashlib.sha256(said).hexdigest()[:16]}",
                "namespace": "default",
            },
            "eventTime": moment,
            "reportingController": "admission-gateway.io/gateway",
            "reportingInstance": self._instance,
            "action": "Judge",
            "reason": judgement.reason,
            "type": "Normal" if is_ready else "Warning",
            "note": note,
            "regarding": {
                "apiVersion": GATEWAY_VERSION,
                "kind": resource.kind,
                "name": resource.name,
                **({"uid": resource.uid} if resource.uid else {}),
            },
        }


def _condition(resource: CustomResource) -> dict[str, Any]:
    """Return the condition that *resource* has; empty if it has none."""
    match resource.document.get("status"):
        case {"conditions": list(conditions)}:
            for condition in conditions:
                if isinstance(condition, dict) and condition.get("type") == CONDITION:
                    return condition
    return {}

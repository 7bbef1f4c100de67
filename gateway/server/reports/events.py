"""Creates an Event about an object when a request to change or delete it was denied.

An object that is being created does not exist, so there are no Events about it; its controller usually
creates one, such as FailedCreate of a ReplicaSet.

Source: k8s.io/api events/v1 types.go.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from admission_gateway_worker.text import printable
from gateway.base.errors import ClusterError
from gateway.base.text import rfc3339

if TYPE_CHECKING:
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.reports.finding import Finding

log = logging.getLogger(__name__)

SAME_AFTER_S: Final = 600
"""Seconds until there is another Event about the same object, webhook and message."""
MAX_PER_MINUTE: Final = 30
MAX_PENDING: Final = 100
_MAX_NOTE_BYTES: Final = 1024
_KEPT: Final = 4096
"""Events that are remembered so that they are not repeated."""
_CONFLICT: Final = 409
_NO_NAME: Final = re.compile(r"[^a-z0-9-]+")
"""Characters of names, such as those of roles, that the name of an Event may not have."""


class EventWriter:
    """The task that creates Events. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess, instance: str) -> None:
        """*instance* is this process in Events."""
        self.dropped = 0
        """Events that were not created: too many at once, or refused by the API server."""
        self._access = access
        self._instance = instance
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_PENDING)
        self._names: OrderedDict[str, None] = OrderedDict()
        self._has_warned = False

    def add(self, finding: Finding) -> None:
        """Create an Event about *finding*, unless there is one already."""
        event = event_of(finding, self._instance)
        name = event["metadata"]["name"]
        if name in self._names:
            return
        if self._queue.full():
            self.dropped += 1
            return
        self._names[name] = None
        if len(self._names) > _KEPT:
            self._names.popitem(last=False)
        self._queue.put_nowait(event)

    async def run(self) -> None:
        """Create Events, at most ``MAX_PER_MINUTE``, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._create(event)
            except ClusterError as error:
                self.dropped += 1
                if not self._has_warned:
                    self._has_warned = True
                    log.warning("an Event about a denial was not created: %s", error)
            except Exception:
                self.dropped += 1
                log.exception("an Event about a denial was not created: internal error")
            else:
                self._has_warned = False
            await asyncio.sleep(60 / MAX_PER_MINUTE)

    async def _create(self, event: dict[str, Any]) -> None:
        namespace = quote(event["metadata"]["namespace"], safe="")
        try:
            async with self._access.api() as api:
                await api.write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
        except ClusterError as error:
            # Another replica has created it.
            if error.status != _CONFLICT:
                raise


def event_of(finding: Finding, instance: str) -> dict[str, Any]:
    """Return the Event about *finding*; its name is the same in all replicas for ``SAME_AFTER_S``."""
    about = finding.about
    period = int(finding.time) // SAME_AFTER_S
    same = repr((about, finding.webhook, finding.configuration, finding.message, finding.operation, period))
    note = f'{finding.operation} denied by webhook "{finding.webhook}": {finding.message or "no explanation"}'
    regarding = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
    }
    digest = hashlib.sha256(same.encode(errors="replace")).hexdigest()[:16]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # Events about cluster-scoped objects are in the namespace "default".
        "metadata": {
            "name": f"{_NO_NAME.sub('-', about.name[:200].lower()).strip('.-') or 'object'}.{digest}",
            "namespace": about.namespace or "default",
        },
        "eventTime": rfc3339(time.time(), 6),
        "reportingController": "admission-gateway.io/gateway",
        "reportingInstance": instance,
        "action": "Deny",
        "reason": "AdmissionDenied",
        "type": "Warning",
        "note": printable(note, _MAX_NOTE_BYTES).encode()[:_MAX_NOTE_BYTES].decode(errors="ignore"),
        "regarding": {name: value for name, value in regarding.items() if value},
    }

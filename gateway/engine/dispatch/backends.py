"""The backends of webhooks as the driver sees them: worker pools and HTTPS servers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gateway.base.work_queue import WorkQueue
from gateway.engine.dispatch.parameters import ParameterTable
from gateway.engine.dispatch.verdict_cache import VerdictCache
from gateway.pure.core.webhook import HttpsClient, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.engine.dispatch.calls import Endpoint, Sheds
    from gateway.pure.core.conditions import ConditionTask, TaskResult
    from gateway.pure.core.verdict import Failed
    from gateway.pure.core.webhook import PolicyRef


class Backend(Protocol):
    """The backend of a webhook's client: a worker pool with its endpoints, or an HTTPS server."""

    def choose(self, sheds: Sheds = "None") -> Endpoint | Failed:
        """Return the endpoint of the next calls; Failed if there is none.

        Where all endpoints are full, a call that *sheds* allows to end is ended.
        """

    def alternative_to(self, endpoint: Endpoint, *, may_reuse: bool) -> Endpoint | None:
        """Return another endpoint; *endpoint* itself where it is the only one and *may_reuse*."""

    async def close(self, grace_s: float) -> None:
        """Close all connections; calls in flight get up to *grace_s* seconds."""


@dataclass(frozen=True, slots=True)
class Backends:
    """The backends of one configuration, and what their reviews share."""

    pools: Mapping[str, Backend]
    resolve: Callable[[ConditionTask, float, Callable[[TaskResult], None]], Callable[[], None]]
    """Completes the tasks of matchConditions, see ``ConditionResolver.resolve``."""
    now: Callable[[], float] = time.monotonic
    """The clock of deadlines, in seconds."""
    read_queue: WorkQueue = field(default_factory=WorkQueue)
    """The queue in which large reviews are parsed."""
    servers: Mapping[HttpsClient, Backend] = field(default_factory=dict)
    """The HTTPS servers."""
    verdicts: VerdictCache = field(default_factory=VerdictCache)
    parameters: ParameterTable = field(default_factory=ParameterTable)
    """The parameters of calls."""
    _patch_queues: dict[str | HttpsClient, WorkQueue] = field(default_factory=dict)

    def patch_queue(self, backend: str | HttpsClient) -> WorkQueue:
        """Return the queue in which large patches of *backend* are applied; each backend has its own."""
        return self._patch_queues.setdefault(backend, WorkQueue())

    def find(self, client: WorkerRef | HttpsClient | PolicyRef) -> Backend | None:
        """Return the backend of *client*, if there is one."""
        if isinstance(client, WorkerRef):
            return self.pools.get(client.pool)
        return self.servers.get(client) if isinstance(client, HttpsClient) else None

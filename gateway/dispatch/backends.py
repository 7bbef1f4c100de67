"""Whom calls go to, as far as the dispatcher knows: worker pools, and servers that are asked over HTTPS."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gateway.core.webhook import HttpsClient, WorkerRef
from gateway.work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.conditions.resolver import TaskResult
    from gateway.core.call import Call
    from gateway.core.conditions import ConditionTask
    from gateway.core.verdict import Failed
    from gateway.dispatch.calls import CallGroup
    from gateway.dispatch.outlier_detection import State
    from gateway.dispatch.pool import Pool


class Endpoint(Protocol):
    """One address that can be asked."""

    @property
    def state(self) -> State:
        """What is known of it; ``ready`` is in rotation."""

    @property
    def is_full(self) -> bool:
        """Whether it has as many calls in flight as it may."""

    def reserve(self, group: CallGroup, call: Call) -> None:
        """Add *call* to those of *group*, which is to be submitted; from now on it is in flight."""

    def submit(self, group: CallGroup) -> None:
        """Ask; the observer is told each verdict, at the deadline at the latest."""

    def withdraw(self, group: CallGroup, index: int, code: str) -> None:
        """Cancel a call and count it with status *code*; the observer is not called."""

    def count_retries(self, number: int) -> None:
        """Count calls that are asked here since somebody else was lost with them."""


class Backend(Protocol):
    """Whom a webhook's client stands for: a worker pool with its endpoints, or an HTTPS server."""

    def choose(self, *, may_shed: bool = False) -> Endpoint | Failed:
        """Return who takes the next calls, or why nobody does.

        Where all are full, a call of a webhook with failurePolicy Ignore is ended for it, if *may_shed*.
        """

    def another(self, endpoint: Endpoint, *, may_reuse: bool) -> Endpoint | None:
        """Return who could be asked instead of *endpoint*; itself, where it is alone and *may_reuse*."""

    async def close(self, grace_s: float) -> None:
        """End everything; calls in flight get up to *grace_s* seconds."""


@dataclass(frozen=True, slots=True)
class Backends:
    """All that can be asked."""

    pools: Mapping[str, Pool]
    resolve: Callable[[ConditionTask, float, Callable[[TaskResult], None]], Callable[[], None]]
    """Completes the tasks of matchConditions, see ``ConditionResolver.resolve``."""
    now: Callable[[], float] = time.monotonic
    """The clock of deadlines, in seconds."""
    turns: WorkQueue = field(default_factory=WorkQueue)
    """Where large reviews wait to be read."""
    servers: Mapping[HttpsClient, Backend] = field(default_factory=dict)
    """Those that are asked over HTTPS."""
    _patch_turns: dict[str | HttpsClient, WorkQueue] = field(default_factory=dict)

    def patch_queue(self, backend: str | HttpsClient) -> WorkQueue:
        """Return where large patches of *backend* wait to be applied, apart from those of others."""
        return self._patch_turns.setdefault(backend, WorkQueue())

    def find(self, client: WorkerRef | HttpsClient) -> Backend | None:
        """Return who is to be asked for *client*, if there is somebody."""
        return self.pools.get(client.pool) if isinstance(client, WorkerRef) else self.servers.get(client)

"""Whether workers serve the policies that webhooks name, and whether a pool has a reachable worker.

Both are checked about once a second. A change is logged, and ``/readyz?verbose`` has the present state.
A pool that is lost and found again and again is logged at most once in ``QUIET_S`` seconds.

A worker that does not serve ListPolicies is not checked. One that serves CheckParameters judges parameters
itself. A worker is asked again when it connects again, so that its answers are those of its present process.
One that lacks a policy made of a document of another engine is asked every ``ASK_AGAIN_S`` seconds: it reads
that document, too, and may be some seconds behind the gateway.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.engine.dispatch.policy_listing import PolicyListing
from gateway.engine.policy_mismatch import (
    MAX_NAMES,
    ask,
    declared_schemas,
    listed,
    parameter_mismatches,
    policy_key,
    policy_mismatches,
)
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.engine.dispatch.endpoint import WorkerEndpoint
    from gateway.engine.dispatch.parameters import ParameterTable
    from gateway.engine.dispatch.pool import Pool
    from gateway.engine.policy_mismatch import PolicyMismatch
    from gateway.observe.telemetry.metrics import Metrics
    from gateway.pure.core.webhook import Webhook

    Clients = Sequence[tuple[Webhook, WorkerRef]]

log = logging.getLogger(__name__)

LOST_AFTER_S: Final = 2.0
"""How long a pool is without a reachable worker before that is logged: a restart takes less."""
QUIET_S: Final = 30.0
ASK_AGAIN_S: Final = 5.0
MAX_ASKED: Final = 8
"""Workers that are asked at a time."""


@dataclass(slots=True)
class _Asked:
    """The answers of one worker."""

    connected_count: int
    """How often it had connected by then."""
    revision: int
    """Increases with each answer of any worker."""
    clients: object
    """Those about whose parameters it was asked."""
    listing: PolicyListing
    at: float
    """When it was asked."""


@dataclass(slots=True)
class _WatchedPool:
    """One pool of the configuration in force."""

    pool: Pool
    webhooks: Sequence[Webhook]
    clients: Clients = ()
    """Webhooks with their clients and those of their candidates, which the pool serves."""
    lost_at: float | None = None
    """When no worker was reachable first. None while one is."""
    is_logged: bool = False
    """Whether it was logged that no worker is reachable."""
    logged_at: float = float("-inf")
    losses: int = 0
    """How often the last worker was lost since this was last logged."""
    mismatches: Mapping[tuple[str, ...], PolicyMismatch] = field(default_factory=dict)
    compared: object = None
    """The revisions of the answers of which ``mismatches`` is the result."""

    @property
    def is_behind(self) -> bool:
        """Whether a worker lacks a policy that it will make of a document of another engine."""
        return any(one.reason == "not_served" and one.is_of_engine for one in self.mismatches.values())

    def effect(self) -> str:
        """Return what follows for the webhooks while no worker is reachable."""
        closed = [hook.name for hook in self.webhooks if hook.failure_policy == "Fail"]
        opened = [hook.name for hook in self.webhooks if hook.failure_policy != "Fail"]
        parts = [f"webhooks that fail closed: {listed(closed)}"] if closed else []
        parts += [f"webhooks that fail open: {listed(opened)}"] if opened else []
        return "; ".join(parts) or "no webhook uses it"


class PolicyCheck:
    """Watches the pools of the configuration in force. Make it on a running event loop."""

    def __init__(
        self,
        metrics: Metrics,
        now: Callable[[], float],
        parameters: ParameterTable,
        *,
        logs: bool = True,
    ) -> None:
        """*parameters* is told what workers declare. Without *logs* a change is not logged."""
        self._metrics = metrics
        self._log = log if logs else logging.Logger(__name__, logging.CRITICAL + 1)
        self._parameters = parameters
        self._now = now
        self._pools: dict[str, _WatchedPool] = {}
        self._asked: dict[WorkerEndpoint, _Asked] = {}
        self.revision = 0
        """Increases when a worker has been asked."""
        self._tasks: dict[WorkerEndpoint, asyncio.Task[None]] = {}
        self._limit = asyncio.Semaphore(MAX_ASKED)

    def activate(self, config: Config, pools: Mapping[str, Pool]) -> None:
        """Watch *pools*, those of *config*, from now on; log those without a reachable worker at once."""
        webhooks: dict[str, list[Webhook]] = {name: [] for name in pools}
        clients: dict[str, list[tuple[Webhook, WorkerRef]]] = {name: [] for name in pools}
        for webhook in config.webhooks:
            for client in webhook.clients:
                if isinstance(client, WorkerRef) and client.pool in clients:
                    clients[client.pool].append((webhook, client))
            if isinstance(webhook.client, WorkerRef) and webhook.client.pool in webhooks:
                webhooks[webhook.client.pool].append(webhook)
        before, self._pools = self._pools, {}
        for name, pool in pools.items():
            watched = before.get(name)
            if watched is None or watched.pool is not pool:
                watched = _WatchedPool(pool, ())
                # What other workers declared does not hold for these.
                self._parameters.declare(name, {})
                if not pool.is_reachable:
                    # The configuration has waited for its workers already.
                    watched.lost_at = self._now() - LOST_AFTER_S
            watched.webhooks, watched.clients, watched.compared = webhooks[name], clients[name], None
            self._pools[name] = watched
        for name in before.keys() - self._pools.keys():
            self._parameters.declare(name, {})
        self.check()

    def check(self) -> None:
        """Compare the present state with the last one, and log the difference."""
        for name, watched in self._pools.items():
            self._check_reachability(name, watched)
            if watched.clients:
                for endpoint in watched.pool.endpoints:
                    self._ask(endpoint, watched)
            self._check_policies(name, watched)
        present = {endpoint for watched in self._pools.values() for endpoint in watched.pool.endpoints}
        for endpoint in self._asked.keys() - present:
            del self._asked[endpoint]
        self._metrics.policy_mismatches = {
            (one.webhook.name, one.webhook.phase, one.reason): len(one.workers)
            for one in self.mismatches()
            # No call that decides fails for a candidate, and the alert is critical.
            if not one.is_of_candidate
        }

    def unreachable(self) -> list[tuple[str, str]]:
        """Return the name of each pool without a reachable worker, and the effect."""
        return [(name, one.effect()) for name, one in self._pools.items() if one.lost_at is not None]

    def mismatches(self) -> list[PolicyMismatch]:
        """Return the policies that are not as the webhooks need them."""
        return [one for watched in self._pools.values() for one in watched.mismatches.values()]

    def warnings(self) -> list[str]:
        """Return a line for each fault that there is now."""
        lost = [
            f"worker pool {name}: no worker is reachable; {effect}" for name, effect in self.unreachable()
        ]
        return lost + [str(one) for one in self.mismatches()]

    async def read_all(self) -> list[tuple[str, str]]:
        """Ask all workers that are connected; return place and reason of those without a list of policies.

        A worker that does not serve ListPolicies is none of these.
        """
        self.check()
        await asyncio.gather(*self._tasks.values())
        self.check()
        return [
            (f"worker {endpoint.address}", asked.listing.why)
            for endpoint, asked in self._asked.items()
            if asked.listing.policies is None and "UNIMPLEMENTED" not in asked.listing.why
        ]

    def versions(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the versions that the workers of a pool have of a policy, by pool and policy, sorted.

        A policy that no worker lists is left out. A worker that does not tell has an empty version.
        """
        found: dict[tuple[str, str], set[str]] = {}
        for name, watched in self._pools.items():
            for endpoint in watched.pool.endpoints:
                asked = self._asked.get(endpoint)
                for policy, version in asked.listing.versions.items() if asked is not None else ():
                    found.setdefault((name, policy), set()).add(version)
        return {key: tuple(sorted(versions)) for key, versions in found.items()}

    def unjudged(self) -> list[tuple[str, str]]:
        """Return place and reason of the workers that did not judge all parameters."""
        return [
            (f"worker {endpoint.address}", asked.listing.unchecked)
            for endpoint, asked in self._asked.items()
            if asked.listing.unchecked
        ]

    async def close(self) -> None:
        """End the calls that are under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_reachability(self, name: str, watched: _WatchedPool) -> None:
        now = self._now()
        if watched.pool.is_reachable:
            if watched.is_logged and watched.lost_at is not None:
                self._log.info(
                    "worker pool reachable again: %s, after %.0f s; its webhooks are called",
                    *(name, now - watched.lost_at),
                )
            watched.lost_at, watched.is_logged = None, False
            return
        if watched.lost_at is None:
            watched.lost_at = now
            watched.losses += 1
        is_due = now - watched.lost_at >= LOST_AFTER_S and now - watched.logged_at >= QUIET_S
        if watched.is_logged or not is_due:
            return
        often = f" (lost {watched.losses} times since the last such record)" if watched.losses > 1 else ""
        why = watched.pool.unreachable_reason or "not connected yet"
        self._log.warning(
            "worker pool unreachable: %s: no worker is reachable%s; %s: %s",
            name,
            often,
            watched.effect(),
            why,
        )
        watched.is_logged, watched.logged_at, watched.losses = True, now, 0

    def _ask(self, endpoint: WorkerEndpoint, watched: _WatchedPool) -> None:
        """Ask a worker that has connected since the last time, or not about the present parameters."""
        if endpoint in self._tasks or endpoint.lost_reason:
            return
        known = self._asked.get(endpoint)
        if endpoint.connected_count > (0 if known is None else known.connected_count) or (
            known is not None and watched.is_behind and self._now() - known.at >= ASK_AGAIN_S
        ):
            known = None
        elif known is None or known.clients is watched.clients:
            return
        listing = None if known is None else known.listing
        task = asyncio.get_running_loop().create_task(self._read(endpoint, watched.clients, listing))
        self._tasks[endpoint] = task
        task.add_done_callback(lambda _: self._tasks.pop(endpoint))

    async def _read(self, endpoint: WorkerEndpoint, clients: Clients, listing: PolicyListing | None) -> None:
        """Ask for the list, unless it is known, and about the parameters of *clients*."""
        count = endpoint.connected_count
        try:
            async with self._limit:
                listing = await ask(endpoint, [worker for _, worker in clients], listing)
        except Exception as error:
            # Without a result the next check would try again, each second.
            log.exception("policies of a worker are not known: %s: internal error", endpoint.address)
            listing = PolicyListing(None, f"internal error: {type(error).__name__}")
        if listing.why:
            log.debug("policies of a worker are not known: %s: %s", endpoint.address, listing.why)
        elif listing.unchecked:
            log.debug("parameters are not judged by a worker: %s: %s", endpoint.address, listing.unchecked)
        self.revision += 1
        self._asked[endpoint] = _Asked(count, self.revision, clients, listing, self._now())
        for name, one in self._pools.items():
            if endpoint in one.pool.endpoints:
                self._check_policies(name, one)

    def _check_policies(self, name: str, watched: _WatchedPool) -> None:
        lists, listings, versions = {}, {}, []
        for endpoint in watched.pool.endpoints:
            asked = self._asked.get(endpoint)
            if asked is not None and asked.listing.policies is not None:
                listing = listings[endpoint.address] = asked.listing
                lists[endpoint.address] = listing.policies or {}
                versions.append(asked.revision)
        if not lists and watched.mismatches:
            # Nothing is known anew, such as while the workers are replaced.
            wanted = {policy_key(hook, client) for hook, client in watched.clients}
            watched.mismatches = {key: one for key, one in watched.mismatches.items() if key[:-1] in wanted}
        if not lists or versions == watched.compared:
            return
        watched.compared = versions
        before = watched.mismatches
        self._parameters.declare(name, declared_schemas(watched.clients, listings.values()))
        mismatches = [
            *policy_mismatches(watched.clients, lists),
            *parameter_mismatches(watched.clients, listings),
        ]
        found = {one.key: one for one in mismatches}
        new = [one for key, one in found.items() if key not in before]
        for one in new[:MAX_NAMES]:
            self._log.warning("policy mismatch: %s", one)
        if len(new) > MAX_NAMES:
            self._log.warning("policy mismatch: %d more; /readyz?verbose has all", len(new) - MAX_NAMES)
        over = [one for key, one in before.items() if key not in found]
        if over:
            self._log.info("policy mismatch over: %s", listed([one.webhook.name for one in over]))
        watched.mismatches = found

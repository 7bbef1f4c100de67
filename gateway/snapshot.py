"""A loaded configuration made ready to serve: what each path selects, and which pools are asked.

Pools outlive snapshots: one whose settings did not change keeps its connections through a reload.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gateway.admit import Snapshot
from gateway.core.matching import Selection
from gateway.core.speculation import ChangeMemory
from gateway.dispatch.deadlines import Deadlines
from gateway.dispatch.dispatcher import Workers
from gateway.dispatch.pool import Pool, tls_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.model import Config, WorkerPool
    from gateway.core.webhook import Phase, Webhook
    from gateway.telemetry.metrics import Metrics


def selections(config: Config) -> dict[str, Selection]:
    """Return what every path of the front end selects.

    For each phase: ``/mutate`` all webhooks, ``/mutate/NAME`` those of one configuration, ``/mutate.fail``
    and ``/mutate.ignore`` those with that failurePolicy, so that the gateway can be registered once for each.
    """
    paths: dict[str, Selection] = {}
    phases: tuple[tuple[Phase, Sequence[Webhook]], ...] = (
        ("mutate", config.mutating),
        ("validate", config.validating),
    )
    for phase, webhooks in phases:
        paths[f"/{phase}"] = Selection(phase, webhooks)
        for policy in ("Fail", "Ignore"):
            chosen = [webhook for webhook in webhooks if webhook.failure_policy == policy]
            paths[f"/{phase}.{policy.lower()}"] = Selection(phase, chosen)
        for name in sorted(name for of, name in config.configurations if of == phase):
            chosen = [webhook for webhook in webhooks if webhook.configuration == name]
            paths[f"/{phase}/{name}"] = Selection(phase, chosen)
    return paths


RETIRE_AFTER_S: Final = 31.0
"""Reviews that began with the old configuration, and may still call, have all ended by then."""


async def _retire(pool: Pool) -> None:
    await asyncio.sleep(RETIRE_AFTER_S)
    await pool.close(0.0)


def _is_current(pool: Pool, settings: WorkerPool) -> bool:
    return pool.settings == settings and pool.tls_files == tls_fingerprint(settings)


class Pools:
    """The worker pools of a process, kept in step with the configuration in force."""

    def __init__(self, metrics: Metrics, targets: Callable[[WorkerPool], Sequence[str]]) -> None:
        self._metrics = metrics
        self._targets = targets
        self._deadlines = Deadlines(asyncio.get_running_loop())
        self._pools: dict[str, Pool] = {}
        self._retiring: dict[asyncio.Task[None], Pool] = {}

    async def snapshot(self, config: Config) -> Snapshot:
        """Return *config* ready to serve. Pools that it no longer wants end after ``RETIRE_AFTER_S``.

        Raises:
            ConfigError: a pool's TLS files cannot be read; the pools stay as they were.
        """
        kept = {
            name: self._pools[name]
            for name, settings in config.pools.items()
            if name in self._pools and _is_current(self._pools[name], settings)
        }
        made = {
            name: Pool(settings, self._targets(settings), self._deadlines, self._metrics.pool(name))
            for name, settings in config.pools.items()
            if name not in kept
        }
        try:
            await asyncio.gather(*(pool.start() for pool in made.values()))
        except BaseException:
            # Cancelled, too: a gateway can be told to stop while it starts.
            await asyncio.gather(*(pool.close(0.0) for pool in made.values()))
            raise
        gone = [pool for name, pool in self._pools.items() if name not in kept]
        self._pools = {**kept, **made}
        for pool in gone:
            task = asyncio.create_task(_retire(pool))
            self._retiring[task] = pool
            task.add_done_callback(self._retiring.pop)
        return Snapshot(
            selections(config),
            Workers(dict(self._pools), config.namespaces, self._deadlines.now),
            {name: namespace.labels for name, namespace in config.namespaces.items()},
            ChangeMemory(),
            config.gateway.audit_level,
        )

    def fingerprint(self) -> object:
        """Return what differs once a TLS file of a pool has changed."""
        return tuple(tls_fingerprint(pool.settings) for pool in self._pools.values())

    async def wait_until_ready(self, timeout_s: float) -> list[str]:
        """Return the names of pools of which no worker was reached within *timeout_s* seconds."""
        pools = list(self._pools.values())
        reached = await asyncio.gather(*(pool.wait_until_ready(timeout_s) for pool in pools))
        return [pool.settings.name for pool, is_ready in zip(pools, reached, strict=True) if not is_ready]

    async def close(self, grace_s: float) -> None:
        """End all pools; calls in flight get up to *grace_s* seconds."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        pools = [*self._pools.values(), *retiring.values()]
        await asyncio.gather(*(pool.close(grace_s) for pool in pools))

    def count_endpoints(self) -> None:
        """Bring the gauge of endpoints by state up to date."""
        gauge = self._metrics.worker_endpoints
        gauge.clear()
        for name, pool in self._pools.items():
            for state in ("ready", "connecting", "down", "draining"):
                count = sum(endpoint.state == state for endpoint in pool.endpoints)
                gauge.labels(name, state).set(count)

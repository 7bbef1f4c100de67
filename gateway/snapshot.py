"""A loaded configuration made ready to serve: its paths, and the pools that are asked.

Pools outlive snapshots: what has the same settings keeps its connections through a reload.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.conditions.resolver import ConditionResolver, FairExecutor
from gateway.config.files import fingerprint
from gateway.core.speculation import ChangeMemory
from gateway.core.webhook import HttpsClient
from gateway.dispatch.backends import Backends
from gateway.dispatch.outlier_detection import PREFERENCE
from gateway.dispatch.pool import Pool, tls_fingerprint
from gateway.dispatch.timer_wheel import TimerWheel
from gateway.work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.conditions.resolver import Authorize
    from gateway.config.kubeconfig import KubeconfigUser
    from gateway.config.model import AuditLevel, Config, WorkerPool
    from gateway.config.webhook_users import WebhookUsers
    from gateway.core.namespace import Namespace
    from gateway.core.verdict import Failed
    from gateway.dispatch.backends import Backend
    from gateway.dispatch.https.server import HttpsServer
    from gateway.paths import Paths
    from gateway.telemetry.metrics import Metrics

    FoundNamespace = Namespace | Failed | None
    """A namespace; None: there is none of that name; Failed: the look-up failed."""
    NamespaceLookUp = Callable[[str, float, Callable[[FoundNamespace], None]], Callable[[], None]]
    """Looks up a namespace by name within a timeout in seconds, and returns a function that cancels this.
    The callback is called once, with the result, and never before the look-up has returned."""

log = logging.getLogger(__name__)

OWN_WORKERS_WITHIN_S: Final = 10.0
OTHER_WORKERS_WITHIN_S: Final = 2.0
"""How long new pools are waited for before reviews are sent to them, so that the first find a worker: those
that the gateway starts itself, and others. It goes on without those that are missing, since failurePolicy
covers them."""

RETIRE_AFTER_S: Final = 31.0
"""Reviews that began with the old configuration, and may still call, have all ended by then."""

BODIES_WEIGHT: Final = 16
"""Of reading large reviews beside large answers of one HTTPS server, however many of these there are."""


async def _retire(backend: Backend) -> None:
    await asyncio.sleep(RETIRE_AFTER_S)
    await backend.close(0.0)


def _clients(config: Config) -> set[HttpsClient]:
    webhooks = (*config.mutating, *config.validating)
    return {webhook.client for webhook in webhooks if isinstance(webhook.client, HttpsClient)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One configuration in force. A review keeps the one it started with, whatever is loaded meanwhile."""

    paths: Paths
    """What each path of the front end selects."""
    backends: Backends
    namespaces: Mapping[str, Namespace]
    """By name. Those of a watched cluster follow it; a review sees its own as it was when it started."""
    look_up: NamespaceLookUp | None
    """Whom to ask for a namespace that is not among them; None: there are no others."""
    memory: ChangeMemory
    audit_level: AuditLevel


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The part of a cluster that reviews read."""

    namespaces: Mapping[str, Namespace]
    look_up: NamespaceLookUp | None
    authorize: Authorize


@dataclass(frozen=True, slots=True)
class Prepared:
    """The pools for a configuration that is not in force yet, by name."""

    config: Config
    kept: Mapping[str, Pool]
    made: Mapping[str, Pool]
    """New ones, which nobody has called yet."""
    kept_servers: Mapping[HttpsClient, HttpsServer]
    made_servers: Mapping[HttpsClient, HttpsServer]
    """Likewise; they are connected to with the first call."""

    async def wait_until_ready(self, others_within_s: float = OTHER_WORKERS_WITHIN_S) -> None:
        """Wait a while for the new pools to reach a worker each; what is missing then is logged."""
        reached = await asyncio.gather(
            *(
                pool.wait_until_ready(OWN_WORKERS_WITHIN_S if pool.settings.command else others_within_s)
                for pool in self.made.values()
            )
        )
        for name, is_ready in zip(self.made, reached, strict=True):
            if not is_ready:
                log.warning("worker pool %s: no worker reached yet", name)


class Pools:
    """The worker pools of a process, kept in step with the configuration in force."""

    def __init__(self, metrics: Metrics, targets: Callable[[WorkerPool], Sequence[str]]) -> None:
        self._metrics = metrics
        self._targets = targets
        self._timers = TimerWheel(asyncio.get_running_loop())
        self._turns = WorkQueue(weight=BODIES_WEIGHT)
        self._pools: dict[str, Pool] = {}
        self._servers: dict[HttpsClient, HttpsServer] = {}
        self._users: WebhookUsers | None = None
        """Whom the servers know the gateway as."""
        self._user_files: object = fingerprint(())
        """Of the files that they come from, as these were then."""
        self._retiring: dict[asyncio.Task[None], Backend] = {}
        self._executor = FairExecutor()

    async def prepare(self, config: Config, *, rereads_files: bool = True) -> Prepared:
        """Return the pools that *config* wants, those that are new connecting; none is in use yet.

        Without *rereads_files* a pool with the same settings is kept, whatever became of its TLS files.

        Raises:
            ConfigError: a pool's TLS files cannot be read, or an HTTPS server's certificates not used; the
                pools stay as they were.
        """
        users = config.gateway.webhook_users
        wanted = {client: users.find(client) if users else None for client in _clients(config)}
        kept_servers = {
            client: server
            for client, server in self._servers.items()
            if client in wanted and server.user == wanted[client]
        }
        kept = {
            name: self._pools[name]
            for name, settings in config.pools.items()
            if name in self._pools
            and self._pools[name].settings == settings
            and not (rereads_files and self._pools[name].tls_files != tls_fingerprint(settings))
        }
        made = {
            name: Pool(settings, self._targets(settings), self._timers, self._metrics.pool(name))
            for name, settings in config.pools.items()
            if name not in kept
        }
        made_servers: dict[HttpsClient, HttpsServer] = {}
        prepared = Prepared(config, kept, made, kept_servers, made_servers)
        try:
            for client in wanted.keys() - kept_servers.keys():
                made_servers[client] = self._server(client, wanted[client])
            await asyncio.gather(*(pool.start() for pool in made.values()))
        except BaseException:
            # Cancelled, too: a gateway can be told to stop while it starts.
            await self.discard(prepared)
            raise
        return prepared

    def _server(self, client: HttpsClient, user: KubeconfigUser | None) -> HttpsServer:
        # Without HTTPS webhooks nothing of what they need is loaded.
        from gateway.dispatch.https.server import POOL, HttpsServer

        return HttpsServer(client, user, self._timers, self._metrics.pool(POOL))

    async def discard(self, prepared: Prepared) -> None:
        """End the new pools of *prepared*, which is not to be used."""
        unused: list[Backend] = [*prepared.made.values(), *prepared.made_servers.values()]
        await asyncio.gather(*(backend.close(0.0) for backend in unused))

    def use(self, prepared: Prepared, paths: Paths, cluster: ClusterView | None = None) -> Snapshot:
        """Put the *prepared* pools in use, and return the snapshot of their configuration.

        Pools of the configuration before that are not kept end after ``RETIRE_AFTER_S``.
        """
        gone: list[Backend] = [pool for name, pool in self._pools.items() if name not in prepared.kept]
        gone += [server for client, server in self._servers.items() if client not in prepared.kept_servers]
        self._pools = {**prepared.kept, **prepared.made}
        self._servers = {**prepared.kept_servers, **prepared.made_servers}
        for backend in gone:
            task = asyncio.create_task(_retire(backend))
            self._retiring[task] = backend
            task.add_done_callback(self._retiring.pop)
        config = prepared.config
        self._users = config.gateway.webhook_users
        self._user_files = self._users_fingerprint()
        resolver = ConditionResolver(self._executor, None if cluster is None else cluster.authorize)
        backends = Backends(
            dict(self._pools),
            resolver.resolve,
            self._timers.now,
            turns=self._turns,
            servers=dict(self._servers),
        )
        return Snapshot(
            paths,
            backends,
            config.namespaces if cluster is None else cluster.namespaces,
            None if cluster is None else cluster.look_up,
            ChangeMemory(),
            config.gateway.audit_level,
        )

    def fingerprint(self) -> object:
        """Return what differs from ``made_of`` once a file with TLS settings or credentials has changed."""
        pools = tuple(tls_fingerprint(pool.settings) for pool in self._pools.values())
        return pools, self._users_fingerprint()

    @property
    def made_of(self) -> object:
        """The fingerprint that the files had when the pools were made of them."""
        return tuple(pool.tls_files for pool in self._pools.values()), self._user_files

    def _users_fingerprint(self) -> object:
        return fingerprint(self._users.files if self._users is not None else ())

    async def close(self, grace_s: float) -> None:
        """End all pools; calls in flight get up to *grace_s* seconds."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        backends: list[Backend] = [*self._pools.values(), *self._servers.values(), *retiring.values()]
        await asyncio.gather(*(backend.close(grace_s) for backend in backends))
        self._executor.close()

    def count_endpoints(self) -> None:
        """Bring the gauge of endpoints by state up to date."""
        gauge = self._metrics.worker_endpoints
        gauge.clear()
        for name, pool in self._pools.items():
            for state in PREFERENCE:
                count = sum(endpoint.state == state for endpoint in pool.endpoints)
                gauge.labels(name, state).set(count)

"""A loaded configuration ready to serve: its paths, and the pools that it calls.

Pools with the same settings keep their connections through a reload.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.base.files import fingerprint
from gateway.base.together import together
from gateway.base.work_queue import WorkQueue
from gateway.config.kinds.image_review import user_of
from gateway.engine.dispatch.backends import Backends
from gateway.engine.dispatch.parameters import ParameterTable
from gateway.engine.dispatch.pool import PREFERENCE, Pool, tls_fingerprint
from gateway.engine.dispatch.timer_wheel import TimerWheel
from gateway.engine.dispatch.verdict_cache import VerdictCache
from gateway.engine.stages import Stages
from gateway.pure.conditions.resolver import ConditionResolver, FairExecutor
from gateway.pure.core.speculation import ChangeRates
from gateway.pure.core.webhook import CaBundleSource, HttpsClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from gateway.config.kinds.kubeconfig import KubeconfigUser
    from gateway.config.kinds.webhook_users import WebhookUsers
    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.model import Config
    from gateway.engine.cluster_source import ClusterView, NamespaceLookUp
    from gateway.engine.credentials.ca_bundle import CaBundle
    from gateway.engine.dispatch.backends import Backend
    from gateway.engine.dispatch.https.policy_backend import PolicyBackend
    from gateway.engine.dispatch.https.server import HttpsServer
    from gateway.engine.moved import MovedPolicies
    from gateway.engine.paths import Paths
    from gateway.observe.telemetry.metrics import Metrics
    from gateway.pure.core.annotations import AuditLevel
    from gateway.pure.core.decision import DecisionReference
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import FollowedSchemas, Params

log = logging.getLogger(__name__)

OWN_WORKERS_WITHIN_S: Final = 10.0
OTHER_WORKERS_WITHIN_S: Final = 2.0
"""How long a new configuration waits for its new pools to reach a worker: pools whose workers the gateway
starts, and others. After that it comes into force without them, since failurePolicy covers them."""

RETIRE_AFTER_S: Final = 31.0
"""All reviews that began with the old configuration have ended by then."""

BODIES_WEIGHT: Final = 16
"""Weight of the queue of large reviews; that of the large answers of an HTTPS server is 1."""


async def _retire(backend: Backend) -> None:
    await asyncio.sleep(RETIRE_AFTER_S)
    await backend.close(0.0)


def _clients(config: Config) -> set[HttpsClient]:
    of_webhooks = {
        client for webhook in config.webhooks for client in webhook.clients if isinstance(client, HttpsClient)
    }
    return of_webhooks.union(config.gateway.policies.backend_clients)


def _user(users: WebhookUsers | None, client: HttpsClient) -> KubeconfigUser | None:
    """Return the gateway's credentials for *client*; policies must not use any."""
    if client.image_review is not None:
        return user_of(client)
    return None if users is None or client.backend is not None else users.find(client)


def _users_fingerprint(users: WebhookUsers | None, clients: Iterable[HttpsClient]) -> object:
    kubeconfigs = [client.image_review.kubeconfig for client in clients if client.image_review]
    files = users.files if users is not None else ()
    return fingerprint((*files, *map(Path, kubeconfigs)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One configuration in force. A review keeps the snapshot that it started with through reloads."""

    paths: Paths
    """The webhooks that each path of the front end selects."""
    backends: Backends
    namespaces: Mapping[str, Namespace]
    """By name. A watched cluster updates it; a review uses its namespace as it was at the start."""
    look_up: NamespaceLookUp | None
    """Looks up a namespace that is not in ``namespaces``. None if there are no others."""
    memory: ChangeRates
    audit_level: AuditLevel
    digest: str
    """The digest of the configuration."""
    decision_reference: DecisionReference = "None"
    """Where a refusal names the command that shows its decision."""
    params: Params | None = None
    """The objects of the cluster from which policies take parameters. None without a cluster."""
    schemas: FollowedSchemas | None = None
    """The schemas of the kinds of the cluster. None without a cluster."""
    has_go_types: bool = True
    """Whether values of expressions have Go types, as in Kubernetes from 1.37 on."""
    moved: MovedPolicies | None = None
    """The policies that API servers evaluate instead. None if all are evaluated."""
    rejects_conflicts: bool = False
    """Whether a mutating webhook or policy may not overwrite what another one wrote."""
    stages: Stages = field(default_factory=Stages)
    """Those of rollout plans, which all snapshots of an engine share."""


@dataclass(frozen=True, slots=True)
class StagedPools:
    """The pools of a configuration that is not in force yet, by name."""

    config: Config
    kept: Mapping[str, Pool]
    made: Mapping[str, Pool]
    """New pools."""
    kept_servers: Mapping[HttpsClient, HttpsServer]
    made_servers: Mapping[HttpsClient, HttpsServer]
    """New servers; the first call connects to them."""
    user_files: object
    """The fingerprint of the files of credentials before the servers were made."""

    @property
    def by_name(self) -> dict[str, Pool]:
        """All pools."""
        return {**self.kept, **self.made}

    @property
    def servers(self) -> dict[HttpsClient, HttpsServer]:
        """All servers."""
        return {**self.kept_servers, **self.made_servers}

    async def wait_until_ready(self, own_within_s: float, others_within_s: float) -> None:
        """Wait a while for each new pool to reach a worker, and for new root certificates to be read."""
        bundles = {server.bundle for server in self.made_servers.values() if server.bundle is not None}
        await together(
            *(
                pool.wait_until_ready(own_within_s if pool.settings.command else others_within_s)
                for pool in self.made.values()
            ),
            *(bundle.wait_until_read(others_within_s) for bundle in bundles),
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clocks and the threads of an engine. Tests in virtual time have others than a process."""

    now: Callable[[], float] = time.monotonic
    """The clock of deadlines, in seconds."""
    cpu_s: Callable[[], float] = time.thread_time
    """Seconds of CPU time of the event loop's thread."""
    compute: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread
    """Calls a function that takes long, without a delay of the event loop, and returns its result."""


class Pools:
    """The worker pools and HTTPS servers of the configuration in force."""

    def __init__(
        self,
        metrics: Metrics,
        targets: Callable[[WorkerPool], Sequence[str]],
        surroundings: Surroundings,
    ) -> None:
        self._metrics = metrics
        self._targets = targets
        self._timers = TimerWheel(asyncio.get_running_loop(), surroundings.now)
        self._read_queue = WorkQueue(surroundings.cpu_s, weight=BODIES_WEIGHT)
        self._pools: dict[str, Pool] = {}
        self._servers: dict[HttpsClient, HttpsServer] = {}
        self._users: WebhookUsers | None = None
        """The gateway's credentials at HTTPS servers."""
        self._user_files: object = fingerprint(())
        """The fingerprint of the files of the credentials when they were put in use."""
        self._retiring: dict[asyncio.Task[None], Backend] = {}
        self._executor = FairExecutor()
        self.parameters = ParameterTable()
        """The parameters of calls, by all configurations."""
        self.stages = Stages()

    async def stage(
        self,
        config: Config,
        bundles: Mapping[CaBundleSource, CaBundle] | None = None,
        *,
        rereads_files: bool = True,
    ) -> StagedPools:
        """Return the pools of *config*; new ones are connecting, and none is in use yet.

        *bundles* has the root certificates that are followed; webhooks with another source are not called.
        Without *rereads_files* a pool with the same settings is kept even if its TLS files have changed.

        Raises:
            ConfigError: the TLS files of a pool or the certificates of an HTTPS server cannot be used; the
                pools stay unchanged.
        """
        users = config.gateway.webhook_users
        wanted = {client: _user(users, client) for client in _clients(config)}
        known = bundles or {}
        followed = {client: known.get(client.ca_from) for client in wanted if client.ca_from is not None}
        kept_servers = {
            client: server
            for client, server in self._servers.items()
            if client in wanted
            and server.user == wanted[client]
            and (client not in followed or server.bundle is followed[client])
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
        user_files = _users_fingerprint(users, wanted)
        staged = StagedPools(config, kept, made, kept_servers, made_servers, user_files)
        try:
            for client in wanted.keys() - kept_servers.keys():
                made_servers[client] = self._server(client, wanted[client], followed.get(client))
            await together(*(pool.start() for pool in made.values()))
        except BaseException:
            # Also on cancellation: a gateway can be stopped while it starts.
            await self.abandon(staged)
            raise
        return staged

    def _server(
        self, client: HttpsClient, user: KubeconfigUser | None, bundle: CaBundle | None
    ) -> HttpsServer:
        # Imported late: a gateway without HTTPS webhooks does not need it.
        from gateway.engine.dispatch.https.image_review import ImageReviewServer
        from gateway.engine.dispatch.https.policy_backend import PolicyBackend
        from gateway.engine.dispatch.https.server import POOL, HttpsServer

        kind = HttpsServer if client.image_review is None else ImageReviewServer
        if client.backend is not None:
            kind = PolicyBackend
        return kind(client, user, self._timers, self._metrics.pool(POOL), bundle)

    async def abandon(self, staged: StagedPools) -> None:
        """Close the new pools of *staged*, which does not come into force."""
        unused: list[Backend] = [*staged.made.values(), *staged.made_servers.values()]
        await asyncio.shield(together(*(backend.close(0.0) for backend in unused)))

    def snapshot(
        self, staged: StagedPools, paths: Paths, digest: str, cluster: ClusterView | None = None
    ) -> Snapshot:
        """Return the snapshot of the configuration of *staged*, whose paths and digest are given."""
        config = staged.config
        named = {
            client.backend.name: cast("PolicyBackend", server).get
            for client, server in staged.servers.items()
            if client.backend is not None
        }
        resolver = ConditionResolver(
            self._executor,
            None if cluster is None else cluster.authorize,
            None if cluster is None else cluster.look_up_param,
            named,
        )
        backends = Backends(
            staged.by_name,
            resolver.resolve,
            self._timers.now,
            read_queue=self._read_queue,
            servers=staged.servers,
            verdicts=VerdictCache(config.webhooks, self._metrics.cache_lookups, self._timers.now),
            parameters=self.parameters,
        )
        return Snapshot(
            paths,
            backends,
            config.namespaces if cluster is None else cluster.namespaces,
            None if cluster is None else cluster.look_up,
            ChangeRates(),
            config.gateway.audit_level,
            digest,
            config.gateway.decision_reference,
            None if cluster is None else cluster.params,
            None if cluster is None else cluster.schemas,
            config.gateway.has_go_types,
            None if cluster is None else cluster.moved,
            config.gateway.conflicts == "Reject",
            self.stages,
        )

    def activate(self, staged: StagedPools) -> None:
        """Put the *staged* pools in use.

        Pools of the configuration before that are not kept end after ``RETIRE_AFTER_S``.
        """
        gone: list[Backend] = [pool for name, pool in self._pools.items() if name not in staged.kept]
        gone += [server for client, server in self._servers.items() if client not in staged.kept_servers]
        self._pools = staged.by_name
        self._servers = staged.servers
        for backend in gone:
            task = asyncio.create_task(_retire(backend))
            self._retiring[task] = backend
            task.add_done_callback(self._retiring.pop)
        self._users, self._user_files = staged.config.gateway.webhook_users, staged.user_files

    @property
    def by_name(self) -> Mapping[str, Pool]:
        """The pools in use."""
        return self._pools

    @property
    def deadlines(self) -> int:
        """The number of open deadlines, of calls and their hedges."""
        return len(self._timers)

    def fingerprint(self) -> object:
        """Return a value that changes with the TLS files and credentials, see ``fingerprint_in_use``."""
        pools = tuple(tls_fingerprint(pool.settings) for pool in self._pools.values())
        return pools, _users_fingerprint(self._users, self._servers)

    @property
    def fingerprint_in_use(self) -> object:
        """The fingerprint of the files when the pools were made."""
        return tuple(pool.tls_files for pool in self._pools.values()), self._user_files

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
        """Update the gauges of endpoints by state, and of their calls in flight."""
        gauge = self._metrics.worker_endpoints
        in_flight = self._metrics.worker_calls_in_flight
        limit = self._metrics.worker_calls_in_flight_limit
        for one in (gauge, in_flight, limit):
            one.clear()
        for name, pool in self._pools.items():
            for state in PREFERENCE:
                count = sum(endpoint.state == state for endpoint in pool.endpoints)
                gauge.labels(name, state).set(count)
            in_flight.labels(name).set(sum(endpoint.calls.count for endpoint in pool.endpoints))
            limit.labels(name).set(len(pool.endpoints) * pool.settings.max_in_flight)

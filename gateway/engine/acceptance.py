"""Decides whether a configuration comes into force in place of another one: its workers have to accept it.

It is refused if all reachable workers of a pool reject the policy of a webhook or its parameters, see
``gateway.engine.policy_mismatch.rejection``. Of custom resources, only the one that is to blame is refused.
What is in force already is not judged: an unchanged webhook blocks no other change, whatever its workers say
by now. A candidate is not judged either, because it never decides a request, and may wait for its workers.
The first configuration comes into force in any case: a gateway that does not start is worse. Of several
processes, one that starts again beside the others refuses what they refuse, see ``gateway.engine.siblings``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ConfigError, Problem
from gateway.config.merge.digest import digest
from gateway.engine.paths import Paths
from gateway.engine.policy_mismatch import ask, in_steps, rejection
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.config.merge.custom_resource import Key
    from gateway.config.merge.merged import Merged
    from gateway.config.merge.model import Config
    from gateway.engine.cluster_source import ClusterSource
    from gateway.engine.dispatch.endpoint import WorkerEndpoint
    from gateway.engine.dispatch.policy_listing import PolicyListing
    from gateway.engine.dispatch.pool import Pool
    from gateway.engine.policy_mismatch import Rejection
    from gateway.engine.siblings import Siblings
    from gateway.engine.snapshot import Pools, Snapshot
    from gateway.pure.core.webhook import Webhook

_ASKED_AT_A_TIME: Final = 8
"""Workers of one pool."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A webhook whose client is judged."""

    webhook: Webhook
    client: WorkerRef
    is_new: bool
    """Whether the webhook has another client than before; otherwise its pool has changed."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A client that its workers reject."""

    judged: Judged
    rejection: Rejection

    @property
    def problem(self) -> Problem:
        """The problem of the webhook."""
        return self.rejection.problem(self.judged.client)


class RejectedError(Exception):
    """Workers reject a configuration."""

    def __init__(self, rejected: Sequence[Rejected], digest_: str) -> None:
        super().__init__("; ".join(str(one.problem) for one in rejected))
        self.rejected = rejected
        self.digest = digest_
        """That of the configuration."""


def to_judge(config: Config, in_force: Config | None) -> list[Judged]:
    """Return the clients of the webhooks of *config* that are not in force with the same pool."""
    pools = {} if in_force is None else in_force.pools
    changed = {name for name, pool in config.pools.items() if pools.get(name) != pool}
    known = {(_identity(hook), hook.client) for hook in (() if in_force is None else in_force.webhooks)}
    found = []
    for hook in config.webhooks:
        client = hook.client
        if isinstance(client, WorkerRef):
            is_new = (_identity(hook), client) not in known
            if is_new or client.pool in changed:
                found.append(Judged(hook, client, is_new))
    return found


def _identity(hook: Webhook) -> tuple[str, str, str]:
    return hook.phase, hook.configuration, hook.name


async def judge(wanted: Sequence[Judged], pools: Mapping[str, Pool]) -> tuple[list[Rejected], bool]:
    """Return those of *wanted* that all reachable workers of their pool reject, in the same order.

    Also return whether a worker was reachable in each pool.
    """
    clients: dict[str, set[WorkerRef]] = {}
    for one in wanted:
        clients.setdefault(one.client.pool, set()).add(one.client)
    asked = [name for name in clients if name in pools]
    answers = await asyncio.gather(*(_ask_pool(pools[name].endpoints, clients[name]) for name in asked))
    found = {client: why for answer in answers for client, why in (answer or {}).items()}
    rejected = [Rejected(one, found[one.client]) for one in wanted if one.client in found] if found else []
    return rejected, None not in answers


async def _ask_pool(
    endpoints: Sequence[WorkerEndpoint], clients: set[WorkerRef]
) -> dict[WorkerRef, Rejection] | None:
    """Return the *clients* that no worker accepts, of those that are reachable, and why.

    None: no worker is reachable.
    """
    limit = asyncio.Semaphore(_ASKED_AT_A_TIME)

    async def ask_one(endpoint: WorkerEndpoint) -> PolicyListing:
        async with limit:
            return await ask(endpoint, clients)

    listings: list[PolicyListing] = []
    undecided = clients
    tasks = [asyncio.create_task(ask_one(endpoint)) for endpoint in endpoints]
    try:
        for task in asyncio.as_completed(tasks):
            listing = await task
            listings.append(listing)
            if listing.is_reached:
                undecided = {
                    client async for client in in_steps(undecided) if rejection(client, [listing]) is not None
                }
            if not undecided:
                # One worker that accepts is enough: a slow one delays no reload.
                break
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not any(listing.is_reached for listing in listings):
        return None
    found = {client: rejection(client, listings) async for client in in_steps(undecided)}
    return {client: why for client, why in found.items() if why is not None}


class Acceptance:
    """Makes the snapshot of the next configuration, unless its workers reject it."""

    def __init__(
        self,
        pools: Pools,
        on_config: Callable[[Config], None],
        require_webhooks: Callable[[Config, Config | None], None],
        siblings: Siblings | None = None,
    ) -> None:
        """*on_config* is called with a configuration before it is judged.

        After a rejection it is called with the one that stays in force. *require_webhooks* raises a
        ConfigError for a configuration without webhooks. *siblings* are the other processes of the gateway.
        """
        self._siblings = siblings
        self._pools = pools
        self._on_config = on_config
        self._require_webhooks = require_webhooks
        self.is_rejected = False
        """Whether workers rejected a part of the last configuration. They may accept it later."""

    async def accept(
        self, files: Config, in_force: Config | None, cluster: ClusterSource, *, rereads_files: bool
    ) -> tuple[Merged, Snapshot | None]:
        """Return *files* with the custom resources of *cluster*, and the snapshot of this configuration.

        Without *rereads_files* the snapshot is None if the configuration is equal to *in_force*.

        Raises:
            ConfigError: the configuration cannot be used, or workers reject a part of it that is in files.
        """
        try:
            return await self._accept(files, in_force, cluster, rereads_files=rereads_files)
        except BaseException:
            cluster.abandon()
            raise

    async def _accept(
        self, files: Config, in_force: Config | None, cluster: ClusterSource, *, rereads_files: bool
    ) -> tuple[Merged, Snapshot | None]:
        self.is_rejected = False
        rejected: dict[Key, tuple[Problem, ...]] = {}
        while True:
            merged = await cluster.merge(files, rejected)
            config = merged.config
            self._require_webhooks(config, in_force)
            if not rereads_files and config == in_force:
                return merged, None
            try:
                return merged, await self._snapshot(config, in_force, cluster, rereads_files=rereads_files)
            except RejectedError as error:
                self.is_rejected = True
                if in_force is not None:
                    self._on_config(in_force)
                blamed = [_blame(one, files, merged) for one in error.rejected]
                of_files = {problem for problem, key in blamed if key is None or key in rejected}
                if of_files:
                    if self._siblings is not None:
                        self._siblings.refused(error.digest, sorted(of_files))
                    raise ConfigError(sorted(of_files)) from None
                for problem, key in blamed:
                    assert key is not None
                    rejected[key] = (*rejected.get(key, ()), problem)

    async def _snapshot(
        self, config: Config, in_force: Config | None, cluster: ClusterSource, *, rereads_files: bool
    ) -> Snapshot:
        """Return the snapshot of *config* when its workers are ready, or have had time to become so.

        Raises:
            RejectedError: workers reject what is not *in_force*.
            ConfigError: it cannot be used, or another process refuses it.
        """
        bundles = cluster.stage(config)
        prepared = await self._pools.prepare(config, bundles, rereads_files=rereads_files)
        try:
            self._on_config(config)
            await asyncio.gather(prepared.wait_until_ready(), cluster.wait_until_synced())
            # In a thread: with the thousands of webhooks of a large cluster this would delay reviews.
            paths, digest_, wanted = await asyncio.to_thread(
                lambda: (Paths(config), digest(config), to_judge(config, in_force))
            )
            if in_force is not None or self._has_to_judge_first(digest_):
                await self._judge(wanted, {**prepared.kept, **prepared.made}, digest_)
        except BaseException:
            await self._pools.discard(prepared)
            raise
        if self._siblings is not None:
            self._siblings.in_force(config, digest_)
        return self._pools.use(prepared, paths, digest_, cluster.view)

    def _has_to_judge_first(self, digest_: str) -> bool:
        """Whether the first configuration is judged: this process starts beside others with another one."""
        return self._siblings is not None and self._siblings.have_another_than(digest_)

    async def _judge(self, wanted: Sequence[Judged], pools: Mapping[str, Pool], digest_: str) -> None:
        """Raise RejectedError or ConfigError if workers reject *wanted*, by what all processes know."""
        rejected, is_known = await judge(wanted, pools)
        if rejected:
            raise RejectedError(rejected, digest_)
        siblings = self._siblings
        if not is_known and siblings is not None and (problems := await siblings.follow(digest_)):
            raise ConfigError(list(problems))


def _blame(rejected: Rejected, files: Config, merged: Merged) -> tuple[Problem, Key | None]:
    """Return the problem, and the custom resource that is refused for it; None: the files are."""
    problem, judged = rejected.problem, rejected.judged
    if judged.is_new:
        keys = {read.resource.where: key for key, read in merged.read.items()}
        return problem, keys.get(problem.where)
    read = merged.read.get(("WorkerPool", judged.client.pool))
    if read is None or judged.client.pool in files.pools:
        return problem, None
    message = f"{problem.where}: {problem.field}: {problem.message}"
    return Problem(read.resource.where, "spec", message), read.resource.key

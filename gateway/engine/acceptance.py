"""Decides whether the workers of a configuration accept it; otherwise it does not come into force.

It is refused if all reachable workers of a pool reject the policy of a webhook or its parameters, see
``gateway.engine.policy_mismatch.rejection``. Of custom resources, only the one that is to blame is refused.
What is in force already is not judged: an unchanged webhook blocks no other change, whatever its workers say
by now. A candidate is not judged either, because it never decides a request, and may wait for its workers.
Nor is a policy that was made of a document of another engine: its worker reads the same document, and may be
some seconds behind the gateway. Until then a call fails by the failurePolicy.
The first configuration comes into force in any case: a gateway that does not start is worse. Of several
processes, one that starts again beside the others refuses what they refuse, see ``gateway.engine.siblings``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.errors import Problem
from gateway.base.together import together
from gateway.engine.policy_mismatch import ask, in_steps, rejection
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.config.merge.custom_resource import Key
    from gateway.config.merge.merged import Merged
    from gateway.config.merge.model import Config
    from gateway.engine.dispatch.endpoint import WorkerEndpoint
    from gateway.engine.dispatch.policy_listing import PolicyListing
    from gateway.engine.dispatch.pool import Pool
    from gateway.engine.policy_mismatch import Rejection
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
        if isinstance(client, WorkerRef) and not client.kind:
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
    answers = await together(*(_ask_pool(pools[name].endpoints, clients[name]) for name in asked))
    found = {client: why for answer in answers for client, why in (answer or {}).items()}
    rejected = [Rejected(one, found[one.client]) for one in wanted if one.client in found] if found else []
    return rejected, None not in answers


async def _ask_pool(
    endpoints: Sequence[WorkerEndpoint], clients: set[WorkerRef]
) -> dict[WorkerRef, Rejection] | None:
    """Return the *clients* that no reachable worker accepts, and why, or None if no worker is reachable."""
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


def blame(rejected: Rejected, files: Config, merged: Merged) -> tuple[Problem, Key | None]:
    """Return the problem, and the custom resource that is refused for it, or None if the files are."""
    problem, judged = rejected.problem, rejected.judged
    if judged.is_new:
        keys = {read.resource.where: key for key, read in merged.read.items()}
        return problem, keys.get(problem.where)
    read = merged.read.get(("WorkerPool", judged.client.pool))
    if read is None or judged.client.pool in files.pools:
        return problem, None
    message = f"{problem.where}: {problem.field}: {problem.message}"
    return Problem(read.resource.where, "spec", message), read.resource.key

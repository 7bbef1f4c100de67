"""Judges webhooks with ready-made policies without a worker: the gateway is installed with these policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.engine.dispatch.policy_listing import PolicyListing
from gateway.engine.policy_mismatch import parameter_key, rejection
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.base.errors import Problem
    from gateway.config.merge.model import Config


def ready_made_problems(config: Config) -> list[Problem]:
    """Return a problem for each webhook whose policy is not a ready-made one, or cannot use its parameters.

    Webhooks of other pools are not judged.
    """
    pools = {name for name, pool in config.pools.items() if pool.serves_ready_made}
    clients = [
        client
        for hook in config.webhooks
        for client in hook.clients
        if isinstance(client, WorkerRef) and client.pool in pools
    ]
    if not clients:
        return []
    listing = _listing(clients)
    found = {client: rejection(client, [listing], is_ready_made=True) for client in clients}
    return sorted(one.problem(client) for client, one in found.items() if one is not None)


def _listing(clients: Iterable[WorkerRef]) -> PolicyListing:
    """Return what a worker with all ready-made policies says about *clients*."""
    # Imported late: it loads all policies.
    from admission_gateway_worker.policies import definitions, server_of

    served = server_of(definitions()).policies
    return PolicyListing(
        {name: policy.mutating for name, policy in served.items()},
        schemas={name: policy.parameters_schema for name, policy in served.items()},
        checked={
            parameter_key(client): served[client.policy].prepared.problem(
                served[client.policy], client.parameters
            )
            for client in clients
            if client.policy in served
        },
    )

"""Sample policies, to read and to run: ``python -m admission_gateway_worker.samples``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from admission_gateway_worker import PolicyServer
from admission_gateway_worker.samples.mutating import (
    always_pull_images,
    default_resources,
    inject_sidecar,
    team_from_namespace,
)
from admission_gateway_worker.samples.validating import (
    REPLICAS_SCHEMA,
    deny_latest_tag,
    deny_privileged,
    limit_replicas,
    max_replicas,
    protect_busy,
    require_labels,
    warn_no_memory_limit,
)

if TYPE_CHECKING:
    from admission_gateway_worker import Review

SLEEP_S: Final = 60.0
"""Twice the longest timeout of a webhook."""


async def sleeps(review: Review) -> None:
    """Answers too late for anyone: after a minute, or when it is cancelled."""
    await asyncio.sleep(SLEEP_S)


def fails(review: Review) -> None:
    """Has a bug that shows on every review."""
    raise RuntimeError(f"this policy always fails (review {review.uid})")


server: Final = PolicyServer()
"""Serves all of them."""

server.policy("require-labels")(require_labels)
server.policy("deny-latest-tag")(deny_latest_tag)
server.policy("deny-privileged")(deny_privileged)
server.policy("always-pull-images", mutating=True)(always_pull_images)
server.policy("inject-sidecar", mutating=True)(inject_sidecar)
server.policy("default-resources", mutating=True)(default_resources)
server.policy("warn-no-memory-limit")(warn_no_memory_limit)
server.policy("protect-busy")(protect_busy)
server.policy("team-from-namespace", mutating=True)(team_from_namespace)
server.policy("limit-replicas", parameters=REPLICAS_SCHEMA, prepare=max_replicas)(limit_replicas)
server.policy("sleeps")(sleeps)
server.policy("fails")(fails)

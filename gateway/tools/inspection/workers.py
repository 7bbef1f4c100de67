"""``admission-gateway check --workers``: whether workers accept policies and parameters of the webhooks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gateway.config.kinds import addresses
from gateway.tools.inspection.model import Finding
from gateway.tools.offline.gateway import local_engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.config.merge.model import Config
    from gateway.engine.dispatch.pool import Pool
    from gateway.engine.policy_check import PolicyCheck
    from gateway.tools.inspection.model import Severity

REACHED_WITHIN_S: Final = 5.0


def in_network(config: Config) -> tuple[Config, list[str]]:
    """Return *config* without the pools whose workers only the gateway's own machine has, and their names."""
    local = [
        name
        for name, pool in config.pools.items()
        if pool.command or any(map(addresses.is_local, pool.targets))
    ]
    others = {name: pool for name, pool in config.pools.items() if name not in local}
    return replace(config, pools=others), local


async def check_workers(config: Config, reached_within_s: float = REACHED_WITHIN_S) -> list[Finding]:
    """Return the findings about the workers of *config*, errors first.

    Workers with a command are started, and stopped in the end. Each pool has *reached_within_s* seconds until
    a worker is reachable.

    Raises:
        ConfigError: TLS files of a pool cannot be used.
    """
    async with local_engine(reached_within_s) as engine:
        # The findings have all that it would log.
        watch = engine.policy_check(logs=False)
        try:
            change = engine.activate(await engine.prepare(config))
            watch.activate(change.config, change.pools)
            return sorted(await _findings(watch, change.pools))
        finally:
            await watch.close()


async def _findings(watch: PolicyCheck, pools: Mapping[str, Pool]) -> list[Finding]:
    found: list[Finding] = [
        Finding("warning", where, message, "the policies cannot be compared")
        for where, message in await watch.read_all()
    ]
    found += [
        Finding(
            "warning",
            where,
            f"parameters are not judged by the policies themselves: {why}",
            "a call fails if a policy cannot use them",
        )
        for where, why in watch.unjudged()
    ]
    for name, effect in watch.unreachable():
        why = pools[name].unreachable_reason or "not connected yet"
        message = f"no worker is reachable ({why}); {effect}"
        advice = "start its workers, or correct its targets"
        found.append(Finding("error", f"worker pool {name}", message, advice))
    for one in watch.mismatches():
        is_harmless = one.reason == "other_kind" or one.is_of_candidate
        severity: Severity = "warning" if is_harmless else "error"
        found.append(Finding(severity, one.place, one.message, "correct the webhook, or update the workers"))
    return found

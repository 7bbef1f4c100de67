"""``audit --continuous``: the rounds of an audit that follows the cluster, and what each publishes."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import ClusterError, ConfigError, GatewayError
from gateway.config.merge.load import load
from gateway.server.kubernetes import select_cluster as cluster
from gateway.server.kubernetes.access import ClusterAccess
from gateway.tools.audit import metrics
from gateway.tools.audit.follow import Follower
from gateway.tools.audit.report import MAX_EXAMPLES, document
from gateway.tools.cli.audit import about, options_of, pace_of, print_report, write_reports, write_results
from gateway.tools.cli.replay_sources import with_cluster
from gateway.tools.offline.gateway import offline_gateway

if TYPE_CHECKING:
    import argparse

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.tools.audit.run import Pass
    from gateway.tools.audit.store import Store
    from gateway.tools.offline.gateway import OfflineGateway

_INTERVAL_S: Final = 600.0
_FIRST_PAUSE_S: Final = 1.0
_LEAST_PAUSE_S: Final = 1.0
"""After a failure."""
_METRICS_EVERY_S: Final = 2.0
_METRICS_SHARE: Final = 10.0
"""By how much the pause between two renewals of the metrics is longer than they take."""


async def continuously(parsed: argparse.Namespace, store: Store) -> None:
    """Follow the cluster until SIGTERM or SIGINT. What fails is repeated, and its error is printed.

    Raises:
        OSError: the port of the metrics cannot be listened on.
    """
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    failures = 0
    with ExitStack() as stack:
        port: metrics.MetricsPort | None = None
        if parsed.metrics_listen is not None:
            port = stack.enter_context(metrics.served(*parsed.metrics_listen))
            logs.print_error(f"metrics on port {port.port}")
        following = _Following(parsed, store, port)
        interval_s = following.interval_s
        while not ended.is_set():
            making = asyncio.create_task(following.round())
            ending = asyncio.create_task(ended.wait())
            await asyncio.wait((making, ending), return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            if not making.done():
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)
                break
            try:
                making.result()
                failures, wait_s = 0, 0.0
            except ConfigError as error:
                logs.print_error(*error.problems)
                failures, wait_s = failures + 1, interval_s
            except (GatewayError, OSError, sqlite3.Error) as error:
                logs.print_error(f"admission-gateway: {error}")
                failures += 1
                wait_s = min(_FIRST_PAUSE_S * 2.0 ** min(failures, 20), interval_s)
            if wait_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(wait_s, _LEAST_PAUSE_S)):
                        await ended.wait()
        await following.close()


class _Following:
    """The rounds of a continuous audit: each with the configuration as it is when the round begins."""

    def __init__(self, parsed: argparse.Namespace, store: Store, port: metrics.MetricsPort | None) -> None:
        self.interval_s: float = _INTERVAL_S if parsed.interval is None else parsed.interval
        """How long a round lasts."""
        self._parsed = parsed
        self._store = store
        self._port = port
        self._follower: Follower | None = None
        self._access: ClusterAccess | None = None
        self._target: KubernetesSettings | None = None
        self._told: list[str] = []
        """Problems that are printed already."""

    async def round(self) -> None:
        """Follow the cluster for the interval.

        The result is printed and written once everything is evaluated, or else at the end. Metrics are
        renewed after changes.

        Raises:
            ConfigError: the configuration cannot be used.
            GatewayError: the cluster, or the state, cannot be used.
        """
        config = load(self._parsed.config)
        target = cluster.select(config.gateway.kubernetes, self._parsed.kubeconfig, self._parsed.context)
        if self._follower is None or target != self._target:
            await self.close()
            await self._start(target)
        assert self._follower is not None
        follower, is_written, fresh_at = self._follower, False, 0.0
        async with offline_gateway(with_cluster(config, target)) as gateway:
            await follower.use(gateway, time.time())
            deadline = time.monotonic() + self.interval_s
            while (now := time.monotonic()) < deadline:
                # The state of watches changes without an event.
                wait_s = deadline - now if follower.is_settled else _FIRST_PAUSE_S
                if follower.is_settled and not is_written:
                    await self._publish(gateway)
                    is_written = True
                elif is_written and follower.has_changed and self._port is not None:
                    wait_s = min(wait_s, max(0.0, fresh_at - now))
                    if follower.is_settled and now >= fresh_at:
                        self._port.content = self._exposition(gateway)
                        # Of many findings the metrics take a while, which they may not always do.
                        took_s = time.monotonic() - now
                        fresh_at = time.monotonic() + max(_METRICS_EVERY_S, took_s * _METRICS_SHARE)
                try:
                    await follower.step(wait_s)
                except ClusterError as error:
                    logs.print_error(f"admission-gateway: {error}")
                    await asyncio.sleep(_FIRST_PAUSE_S)
                problems = follower.problems
                logs.print_error(*(f"admission-gateway: {one}" for one in problems if one not in self._told))
                self._told = problems
            if not is_written:
                await self._publish(gateway)

    async def _start(self, target: KubernetesSettings) -> None:

        access = ClusterAccess(target)
        follower = Follower(target, access, self._store, pace_of(self._parsed), options_of(self._parsed))
        self._follower, self._access, self._target = follower, access, target
        await follower.start()

    async def close(self) -> None:
        """End the watches."""
        follower, access, self._follower, self._access = self._follower, self._access, None, None
        if follower is not None:
            await follower.close()
        if access is not None:
            await access.close()

    def _report(self, gateway: OfflineGateway, this: Pass, max_examples: int) -> dict[str, Any]:

        now = time.time()
        told = {
            **about(self._parsed, gateway),
            "began": now,
            "seconds": round(now - this.began, 3),
            "intervalSeconds": self.interval_s,
        }

        return document(self._store, this, told, max_examples)

    def _exposition(self, gateway: OfflineGateway) -> bytes:

        assert self._follower is not None
        self._follower.has_changed = False
        return metrics.exposition(self._report(gateway, self._follower.result(), 0))

    async def _publish(self, gateway: OfflineGateway) -> None:
        """Print and write the result as it is."""
        assert self._follower is not None
        assert self._access is not None
        self._follower.has_changed = False
        this = self._follower.result()
        if self._parsed.reports:
            async with self._access.api() as api:
                this.found.problems += await write_reports(
                    api, gateway, self._store, self._follower.pace, time.time(), is_complete=this.is_complete
                )
        report = self._report(gateway, this, MAX_EXAMPLES)
        write_results(self._parsed, self._store, report)
        print_report(report, self._parsed)
        if self._port is not None:
            self._port.content = metrics.exposition(report)

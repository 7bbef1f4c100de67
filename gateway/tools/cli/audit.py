"""``admission-gateway audit``: the stored objects of a cluster against the configuration.

Exit status: 0 nothing is denied, 1 something is, 2 wrong usage, configuration or input, 3 nothing is denied,
and not all objects were read or have a verdict.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base import logs
from gateway.base.errors import ClusterError, ConfigError, GatewayError
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.arguments import add_config, add_kubernetes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit import metrics
    from gateway.tools.audit.follow import Follower
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.run import Options, Pass
    from gateway.tools.audit.store import Store
    from gateway.tools.offline.gateway import OfflineGateway

DENIED: Final = 1
WRONG: Final = 2
INCOMPLETE: Final = 3
_REQUESTS_PER_SECOND: Final = 10.0
_MAX_RATE: Final = 10_000.0
_MAX_PORT: Final = 65_535
_INTERVAL_S: Final = 600.0
_FIRST_PAUSE_S: Final = 1.0
_LINES_OF_A_PASS: Final = 2
_LEAST_PAUSE_S: Final = 1.0
"""After a failure."""
_METRICS_EVERY_S: Final = 2.0
_METRICS_SHARE: Final = 10.0
"""By how much the pause between two renewals of the metrics is longer than they take."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add_config(parser)
    cluster.add_arguments(parser, "whose objects are read")
    add(
        "--kinds",
        metavar="RESOURCE[.GROUP],…",
        type=_kinds,
        default=frozenset(),
        help="of the kinds that webhooks have rules for, read only these, such as pods,deployments.apps",
    )
    add("--include-secrets", action="store_true", help="read Secrets, too, if webhooks have rules for them")
    add(
        "--owner-label",
        metavar="KEY",
        default="team",
        help="label of objects and namespaces that names whose they are (default: team)",
    )
    add(
        "--state",
        metavar="FILE",
        type=Path,
        help="keep the verdicts in this SQLite file, and evaluate only what may have another one since",
    )
    add(
        "--max-age",
        metavar="DURATION",
        type=_duration,
        default=86_400.0,
        help="with --state: how long verdicts hold that depend on more than the object (default: 24h)",
    )
    add("--jsonl", metavar="FILE", help="write all findings, one JSON object a line; - is standard output")
    add("--sqlite", metavar="FILE", type=Path, help="write all findings into a SQLite database")
    add(
        "--reports",
        action="store_true",
        help="write a report of each namespace into the cluster: numbers, and the first findings",
    )
    add(
        "--requests-per-second",
        metavar="N",
        type=_rate,
        default=_REQUESTS_PER_SECOND,
        help=f"at most N requests a second to the API server (default: {_REQUESTS_PER_SECOND:g})",
    )
    add(
        "--objects-per-second",
        metavar="N",
        type=_rate,
        default=0.0,
        help="at most N objects a second (default: no limit)",
    )
    add(
        "--max-cpu",
        metavar="CPUS",
        type=_rate,
        default=0.0,
        help="use at most so much of a CPU, such as 0.5, without the workers (default: no limit)",
    )
    add_kubernetes(parser, "also say what it changes, and who writes objects in versions that it removes")
    add("--metrics-file", metavar="FILE", type=Path, help="write the numbers as metrics of Prometheus")
    add("--continuous", action="store_true", help="follow the cluster until SIGTERM")
    add(
        "--interval",
        metavar="DURATION",
        type=_duration,
        help="with --continuous: how often the configuration is read again, and results are written"
        " (default: 10m)",
    )
    add(
        "--metrics-listen",
        metavar="HOST:PORT",
        type=_address,
        help="with --continuous: serve the numbers as metrics at /metrics",
    )
    add("--exit-zero", action="store_true", help="exit with 0 although something is denied")
    add("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def _kinds(text: str) -> frozenset[str]:
    return frozenset(filter(None, (part.strip().lower() for part in text.split(","))))


def _rate(text: str) -> float:
    import argparse

    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 < found <= _MAX_RATE:
        raise argparse.ArgumentTypeError(f"found {text[:20]}, expected a number above 0, up to {_MAX_RATE:g}")
    return found


def _address(text: str) -> tuple[str, int]:
    import argparse

    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise argparse.ArgumentTypeError(f"found {text[:60]}, expected HOST:PORT")
    return host.strip("[]"), int(port)


def _duration(text: str) -> float:
    import argparse

    from gateway.pure.core.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text[:20]}, expected a duration such as 30m") from None


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print the summary, and return the exit status. *refuse* exits with an error."""
    import sqlite3

    import uvloop

    from gateway.tools.audit.store import Store

    _check(parsed, refuse)
    try:
        store = Store(parsed.state)
        try:
            if parsed.continuous:
                uvloop.run(_continuously(parsed, store))
                return 0
            report = uvloop.run(_audit(parsed, store))
            _write(parsed, store, report)
        finally:
            store.close()
    except ConfigError as error:
        logs.print_error(*error.problems)
        return WRONG
    except sqlite3.Error as error:
        logs.print_error(f"admission-gateway: {parsed.state or 'the temporary state'}: {error}")
        return WRONG
    except (GatewayError, OSError) as error:
        logs.print_error(f"admission-gateway: {error}")
        return INCOMPLETE if isinstance(error, ClusterError) else WRONG
    return _print(report, parsed)


def _check(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    """Call *refuse*, which exits with an error, if options of *parsed* exclude each other."""
    if parsed.json and parsed.jsonl == "-":
        refuse("--json excludes --jsonl -")
    if not parsed.continuous and (parsed.metrics_listen or parsed.interval is not None):
        refuse("--interval and --metrics-listen need --continuous")
    if parsed.continuous and parsed.kubernetes is not None:
        refuse("--continuous excludes --kubernetes")


async def _continuously(parsed: argparse.Namespace, store: Store) -> None:
    """Follow the cluster until SIGTERM or SIGINT. What fails is repeated, and its error is printed.

    Raises:
        OSError: the port of the metrics cannot be listened on.
    """
    import asyncio
    import signal
    import sqlite3
    from contextlib import ExitStack

    from gateway.tools.audit import metrics

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    interval_s = _INTERVAL_S if parsed.interval is None else parsed.interval
    failures = 0
    with ExitStack() as stack:
        port: metrics.MetricsPort | None = None
        if parsed.metrics_listen is not None:
            port = stack.enter_context(metrics.served(*parsed.metrics_listen))
            logs.print_error(f"metrics on port {port.port}")
        following = _Following(parsed, store, port)
        while not ended.is_set():
            making = asyncio.create_task(following.round(interval_s))
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
        self._parsed = parsed
        self._store = store
        self._port = port
        self._follower: Follower | None = None
        self._access: ClusterAccess | None = None
        self._target: KubernetesSettings | None = None
        self._told: list[str] = []
        """Problems that are printed already."""

    async def round(self, lasts_s: float) -> None:
        """Follow the cluster for *lasts_s* seconds.

        The result is printed and written once everything is evaluated, or else at the end. Metrics are
        renewed after changes.

        Raises:
            ConfigError: the configuration cannot be used.
            GatewayError: the cluster, or the state, cannot be used.
        """
        import asyncio
        import time

        from gateway.config.merge.load import load
        from gateway.tools.cli.replay_sources import with_cluster
        from gateway.tools.offline.gateway import offline_gateway

        config = load(self._parsed.config)
        target = cluster.select(config.gateway.kubernetes, self._parsed.kubeconfig, self._parsed.context)
        if self._follower is None or target != self._target:
            await self.close()
            await self._start(target)
        assert self._follower is not None
        follower, is_written, fresh_at = self._follower, False, 0.0
        async with offline_gateway(with_cluster(config, target)) as gateway:
            await follower.use(gateway, time.time())
            deadline = time.monotonic() + lasts_s
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
        from gateway.server.kubernetes.access import ClusterAccess
        from gateway.tools.audit.follow import Follower

        access = ClusterAccess(target)
        follower = Follower(target, access, self._store, _pace(self._parsed), _options(self._parsed))
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
        import time

        now = time.time()
        about = {**_about(self._parsed, gateway), "began": now, "seconds": round(now - this.began, 3)}
        from gateway.tools.audit.report import document

        return document(self._store, this, about, max_examples)

    def _exposition(self, gateway: OfflineGateway) -> bytes:
        from gateway.tools.audit import metrics

        assert self._follower is not None
        self._follower.has_changed = False
        return metrics.exposition(self._report(gateway, self._follower.result(), 0))

    async def _publish(self, gateway: OfflineGateway) -> None:
        """Print and write the result as it is."""
        import time

        from gateway.tools.audit import metrics
        from gateway.tools.audit.report import MAX_EXAMPLES

        assert self._follower is not None
        assert self._access is not None
        self._follower.has_changed = False
        this = self._follower.result()
        if self._parsed.reports:
            async with self._access.api() as api:
                this.found.problems += await _write_reports(
                    api, gateway, self._store, self._follower.pace, time.time(), is_complete=this.is_complete
                )
        report = self._report(gateway, this, MAX_EXAMPLES)
        _write(self._parsed, self._store, report)
        _print(report, self._parsed)
        if self._port is not None:
            self._port.content = metrics.exposition(report)


async def _audit(parsed: argparse.Namespace, store: Store) -> dict[str, Any]:
    """Make one pass with the configuration as it is now, and return the JSON of its report.

    Raises:
        ConfigError: the configuration cannot be used.
        GatewayError: the cluster, or the state, cannot be used.
    """
    import time

    from gateway.base.progress import Progress
    from gateway.config.merge.load import load
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.tools.audit.report import document
    from gateway.tools.audit.run import Audit
    from gateway.tools.cli.replay_sources import with_cluster
    from gateway.tools.offline.gateway import offline_gateway

    shown = 0
    config = load(parsed.config)
    target = cluster.select(config.gateway.kubernetes, parsed.kubeconfig, parsed.context)
    access = ClusterAccess(target)
    pace = _pace(parsed)
    with Progress("percent of the objects", 100) as progress:

        def done(part: float) -> None:
            nonlocal shown
            while shown < int(part * 100):
                shown += 1
                progress.advance()

        try:
            async with offline_gateway(with_cluster(config, target)) as gateway, access.api() as api:
                now = time.time()
                this = await Audit(api, gateway, store, pace, _options(parsed)).run(now, done)
                if parsed.reports:
                    this.found.problems += await _write_reports(
                        api, gateway, store, pace, now, is_complete=this.is_complete
                    )
                about = _about(parsed, gateway)
        finally:
            await access.close()
    if parsed.kubernetes is not None:
        from gateway.tools.audit.writers import forecast

        about["forecast"] = forecast(gateway.config, this, parsed.kubernetes)
    return document(store, this, {**about, "began": now, "seconds": round(time.time() - now, 3)})


def _options(parsed: argparse.Namespace) -> Options:
    from gateway.tools.audit.run import Options

    return Options(
        parsed.kinds, parsed.include_secrets, parsed.owner_label, parsed.max_age, parsed.kubernetes
    )


def _pace(parsed: argparse.Namespace) -> Pace:
    from gateway.tools.audit.pace import Pace

    return Pace(parsed.requests_per_second, parsed.objects_per_second, parsed.max_cpu)


def _about(parsed: argparse.Namespace, gateway: OfflineGateway) -> dict[str, Any]:
    """Return what the report says about the audit itself."""
    from gateway.tools.replay.run import left_out_webhooks

    left = left_out_webhooks(gateway.config)
    return {
        "configuration": " ".join(map(str, parsed.config)),
        "digest": gateway.digest,
        "ownerLabel": parsed.owner_label,
        "webhooksLeftOut": [f"{phase} {name}/{webhook}" for phase, name, webhook in left],
    }


async def _write_reports(
    api: ApiClient, gateway: OfflineGateway, store: Store, pace: Pace, now: float, *, is_complete: bool
) -> list[str]:
    """Write the reports into the cluster, and return what could not be written.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    from gateway.config.kinds.report_settings import ReportSettings
    from gateway.tools.audit.reports import AuditReports

    settings = gateway.config.gateway.reports or ReportSettings()
    return await AuditReports(api, store, pace, settings.max_results, now).write(is_complete=is_complete)


def _write(parsed: argparse.Namespace, store: Store, report: dict[str, Any]) -> None:
    """Write all findings into the files that *parsed* names."""
    if parsed.jsonl == "-":
        for one in store.results():
            logs.print_text(orjson.dumps(one).decode() + "\n")
    elif parsed.jsonl is not None:
        from gateway.tools.audit.files import replaced

        with replaced(Path(parsed.jsonl)) as file:
            file.writelines(orjson.dumps(one) + b"\n" for one in store.results())
    if parsed.sqlite is not None:
        store.export(parsed.sqlite)
    if parsed.metrics_file is not None:
        from gateway.tools.audit import metrics

        metrics.write(report, parsed.metrics_file)


def _print(report: dict[str, Any], parsed: argparse.Namespace) -> int:
    """Print *report*, and return the exit status."""
    from gateway.base.text import printable_json
    from gateway.tools.audit import writers
    from gateway.tools.audit.report import as_text

    if parsed.json and parsed.continuous:
        logs.print_text(orjson.dumps(report).decode() + "\n")
    elif parsed.json:
        text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode()
        logs.print_text(printable_json(text) + "\n")
    elif parsed.jsonl != "-":
        logs.print_output(*islice(as_text(report), _LINES_OF_A_PASS if parsed.continuous else None))
        if "forecast" in report and not parsed.continuous:
            logs.print_output(*writers.as_text(report["forecast"]))
    if report["stopped"]:
        logs.print_error(f"admission-gateway: {report['stopped']}")
    stops = any(one["level"] == "error" for one in report.get("forecast", {}).get("findings", ()))
    if (report["denied"] or report["refusedAtRestart"] or stops) and not parsed.exit_zero:
        return DENIED
    return 0 if report["complete"] and not report["failed"] else INCOMPLETE

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

    from gateway.tools.audit.store import Store

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
"""Between two passes, however long they take."""


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
    add("--continuous", action="store_true", help="go on with passes until SIGTERM")
    add(
        "--interval",
        metavar="DURATION",
        type=_duration,
        help="with --continuous: from the begin of a pass to that of the next one (default: 10m)",
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


async def _continuously(parsed: argparse.Namespace, store: Store) -> None:
    """Make passes until SIGTERM or SIGINT. One that fails is repeated, and its error is printed.

    Raises:
        OSError: the port of the metrics cannot be listened on.
    """
    import asyncio
    import signal
    import sqlite3
    import time
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
        while not ended.is_set():
            began = time.monotonic()
            making = asyncio.create_task(_audit(parsed, store))
            ending = asyncio.create_task(ended.wait())
            await asyncio.wait((making, ending), return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            if not making.done():
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)
                return
            try:
                report = making.result()
                _write(parsed, store, report)
                _print(report, parsed)
                if port is not None:
                    port.content = metrics.exposition(report)
                failures, wait_s = 0, began + interval_s - time.monotonic()
            except ConfigError as error:
                logs.print_error(*error.problems)
                failures, wait_s = failures + 1, interval_s
            except (GatewayError, OSError, sqlite3.Error) as error:
                logs.print_error(f"admission-gateway: {error}")
                failures += 1
                wait_s = min(_FIRST_PAUSE_S * 2.0 ** min(failures, 20), interval_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, _LEAST_PAUSE_S)):
                    await ended.wait()


async def _audit(parsed: argparse.Namespace, store: Store) -> dict[str, Any]:
    """Make one pass with the configuration as it is now, and return the JSON of its report.

    Raises:
        ConfigError: the configuration cannot be used.
        GatewayError: the cluster, or the state, cannot be used.
    """
    import time

    from gateway.base.progress import Progress
    from gateway.config.kinds.report_settings import ReportSettings
    from gateway.config.merge.load import load
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.report import document
    from gateway.tools.audit.reports import AuditReports
    from gateway.tools.audit.run import Audit, Options
    from gateway.tools.cli.replay_sources import with_cluster
    from gateway.tools.offline.gateway import offline_gateway
    from gateway.tools.replay.run import left_out_webhooks

    shown = 0
    config = load(parsed.config)
    target = cluster.select(config.gateway.kubernetes, parsed.kubeconfig, parsed.context)
    options = Options(
        parsed.kinds, parsed.include_secrets, parsed.owner_label, parsed.max_age, parsed.kubernetes
    )
    access = ClusterAccess(target)
    pace = Pace(parsed.requests_per_second, parsed.objects_per_second, parsed.max_cpu)
    with Progress("percent of the objects", 100) as progress:

        def done(part: float) -> None:
            nonlocal shown
            while shown < int(part * 100):
                shown += 1
                progress.advance()

        try:
            async with offline_gateway(with_cluster(config, target)) as gateway, access.api() as api:
                now = time.time()
                this = await Audit(api, gateway, store, pace, options).run(now, done)
                if parsed.reports:
                    settings = gateway.config.gateway.reports or ReportSettings()
                    reports = AuditReports(api, store, pace, settings.max_results, now)
                    this.found.problems += await reports.write(is_complete=this.is_complete)
                left = left_out_webhooks(gateway.config)
                digest = gateway.digest
        finally:
            await access.close()
    about: dict[str, Any] = {
        "configuration": " ".join(map(str, parsed.config)),
        "digest": digest,
        "ownerLabel": options.owner_label,
        "webhooksLeftOut": [f"{phase} {name}/{webhook}" for phase, name, webhook in left],
    }
    if parsed.kubernetes is not None:
        from gateway.tools.audit.writers import forecast

        about["forecast"] = forecast(gateway.config, this, parsed.kubernetes)
    return document(store, this, {**about, "began": now, "seconds": round(time.time() - now, 3)})


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

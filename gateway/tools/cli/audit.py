"""``admission-gateway audit``: the stored objects of a cluster against the configuration.

Exit status: 0 nothing is denied, 1 something is, 2 wrong usage, configuration or input, 3 nothing is denied,
and not all objects were read or have a verdict.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base import logs
from gateway.base.errors import ClusterError, ConfigError, GatewayError
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.arguments import add_config, add_kubernetes
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.run import Options
    from gateway.tools.audit.store import Store
    from gateway.tools.offline.gateway import OfflineGateway

DENIED: Final = 1
WRONG: Final = 2
INCOMPLETE: Final = 3
_REQUESTS_PER_SECOND: Final = 10.0
_MAX_RATE: Final = 10_000.0
_MAX_PORT: Final = 65_535
_LINES_OF_A_PASS: Final = 2

HELP: Final = Help(
    "Review the stored objects of a cluster as if they were created now. Print which would be refused "
    "or changed.",
    (
        ("all objects that webhooks have rules for", "audit --config config"),
        ("again, but only what has changed", "audit --config config --state audit.db"),
    ),
    "docs/audit.md",
)


def add_arguments(parser: Parser) -> None:
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
    add_kubernetes(parser, "also say what it changes, and who writes or requests versions that it removes")
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
                from gateway.tools.cli.audit_continuous import continuously

                uvloop.run(continuously(parsed, store))
                return 0
            report = uvloop.run(_audit(parsed, store))
            write_results(parsed, store, report)
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
    return print_report(report, parsed)


def _check(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    """Call *refuse*, which exits with an error, if options of *parsed* exclude each other."""
    if parsed.json and parsed.jsonl == "-":
        refuse("--json excludes --jsonl -")
    if not parsed.continuous and (parsed.metrics_listen or parsed.interval is not None):
        refuse("--interval and --metrics-listen need --continuous")
    if parsed.continuous and parsed.kubernetes is not None:
        refuse("--continuous excludes --kubernetes")


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
    pace = pace_of(parsed)
    with Progress("percent of the objects", 100) as progress:

        def done(part: float) -> None:
            nonlocal shown
            while shown < int(part * 100):
                shown += 1
                progress.advance()

        try:
            async with offline_gateway(with_cluster(config, target)) as gateway, access.api() as api:
                now = time.time()
                this = await Audit(api, gateway, store, pace, options_of(parsed)).run(now, done)
                if parsed.reports:
                    this.found.problems += await write_reports(
                        api, gateway, store, pace, now, is_complete=this.is_complete
                    )
                told = about(parsed, gateway)
                if parsed.kubernetes is not None:
                    from gateway.tools.audit.live_use import live_use
                    from gateway.tools.audit.writers import forecast

                    requested = await live_use(api, parsed.kubernetes)
                    told["forecast"] = forecast(gateway.config, this, parsed.kubernetes, requested)
        finally:
            await access.close()
    return document(store, this, {**told, "began": now, "seconds": round(time.time() - now, 3)})


def options_of(parsed: argparse.Namespace) -> Options:
    """Return what the audit is about."""
    from gateway.tools.audit.run import Options

    return Options(
        parsed.kinds, parsed.include_secrets, parsed.owner_label, parsed.max_age, parsed.kubernetes
    )


def pace_of(parsed: argparse.Namespace) -> Pace:
    """Return the bounds of the audit."""
    from gateway.tools.audit.pace import Pace

    return Pace(parsed.requests_per_second, parsed.objects_per_second, parsed.max_cpu)


def about(parsed: argparse.Namespace, gateway: OfflineGateway) -> dict[str, Any]:
    """Return what the report says about the audit itself."""
    from gateway.tools.replay.run import left_out_webhooks

    left = left_out_webhooks(gateway.config)
    return {
        "configuration": " ".join(map(str, parsed.config)),
        "digest": gateway.digest,
        "ownerLabel": parsed.owner_label,
        "webhooksLeftOut": [f"{phase} {name}/{webhook}" for phase, name, webhook in left],
    }


async def write_reports(
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


def write_results(parsed: argparse.Namespace, store: Store, report: dict[str, Any]) -> None:
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


def print_report(report: dict[str, Any], parsed: argparse.Namespace) -> int:
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

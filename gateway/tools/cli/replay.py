"""``admission-gateway replay``: runs recorded reviews through another configuration.

Exit status: 0 within the thresholds, 1 beyond one or nothing was replayed, 2 wrong usage, configuration or
input.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base import logs
from gateway.base.errors import ClusterError, ConfigError, GatewayError
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli import replay_sources
from gateway.tools.cli.arguments import add_config, add_configurations, load_config
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config
    from gateway.engine.dry_run import DryRun
    from gateway.pure.core.namespace import Namespace
    from gateway.tools.replay.cases import Case, Found
    from gateway.tools.replay.run import Results

WRONG: Final = 2
_MAX_DAYS: Final = 366
_THRESHOLDS: Final = {
    "max_newly_denied": "newlyDenied",
    "max_newly_allowed": "newlyAllowed",
    "max_other_messages": "otherMessage",
    "max_other_objects": "otherObject",
    "max_failures": "failures",
    "max_changed_again": "changedAgain",
}

HELP: Final = Help(
    "Run recorded reviews through a configuration, and report which of them it answers otherwise.",
    (
        ("what would this configuration have denied?", "replay recordings --config config"),
        (
            "compare two configurations by objects in files",
            "replay --objects manifests --config config --against old",
        ),
    ),
    "docs/replay.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    replay_sources.add_arguments(parser)
    add_config(parser)
    what = "compare with this configuration, run in the same way, instead of the answers at the time"
    add_configurations(parser, "--against", what)
    for option, name in _THRESHOLDS.items():
        add(
            f"--{option.replace('_', '-')}",
            metavar="N",
            type=_number,
            help=f"exit with 1 if more reviews have this difference: {name}",
        )
    add("--json", action="store_true", help="print the report as JSON")
    add("--html", metavar="FILE", type=Path, help="also write the report as a page, in one file")
    add(
        "--write-exceptions",
        metavar="FILE",
        type=Path,
        help="write PolicyExceptions with which nothing is newly denied to this file, which must not exist",
    )
    add(
        "--exceptions-expire-after",
        metavar="DAYS",
        type=_number,
        default=30,
        help="with --write-exceptions: when they end (default: 30)",
    )
    add(
        "--exceptions-max-percent",
        metavar="N",
        type=_number,
        default=50,
        help="with --write-exceptions: write none that cover more of a webhook's requests (default: 50)",
    )
    add(
        "--exceptions-owner-label",
        metavar="LABEL",
        default="",
        help="with --write-exceptions: label of namespaces with the owner (default: owner, else team)",
    )
    add(
        "--plan",
        action="store_true",
        help="print what the rollout plans of the configuration would have done instead of a comparison",
    )
    add("--latency", action="store_true", help="add the times of calls, which differ from run to run")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def _number(text: str) -> int:
    import argparse

    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"found {text[:20]}, expected a number from 0")
    return int(text)


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print the report, and return the exit status. *refuse* exits with an error."""
    import uvloop

    replay_sources.check(parsed, refuse)
    if (file := parsed.write_exceptions) is not None:
        if file.exists():
            refuse(f"--write-exceptions: {file} exists, and its exceptions may be in use")
        if not file.parent.is_dir():
            refuse(f"--write-exceptions: {file.parent} is not a folder")
    if parsed.plan and (parsed.against or parsed.write_exceptions or parsed.html):
        refuse("--plan: not together with --against, --write-exceptions or --html")
    if parsed.plan and (parsed.objects or parsed.cluster_objects):
        refuse("--plan: expected RECORDING or --audit-log, whose reviews have times")
    if not 0 < parsed.exceptions_expire_after <= _MAX_DAYS:
        refuse(f"--exceptions-expire-after: expected 1 to {_MAX_DAYS} days")
    try:
        target = _cluster(parsed)
        configs = [load_config(paths) for paths in (parsed.config, parsed.against) if paths]
        if parsed.plan:
            return _print_plans(uvloop.run(_plans(parsed, configs[0], target)), parsed)
        document = uvloop.run(_replay(parsed, configs, target))
        if parsed.html is not None:
            from gateway.server.pages.render import render_file
            from gateway.tools.replay.report import TITLES

            parsed.html.write_bytes(render_file("replay", document, titles=TITLES))
    except ConfigError as error:
        logs.print_error(*error.problems)
        return WRONG
    except (GatewayError, OSError) as error:
        logs.print_error(f"admission-gateway: {error}")
        return 1 if isinstance(error, ClusterError) else WRONG
    return _print(document, parsed)


def _print(document: dict[str, Any], parsed: argparse.Namespace) -> int:
    """Print the report *document*, and return the exit status."""
    from gateway.base.text import printable_json
    from gateway.tools.replay.text import as_text

    if parsed.json:
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()
        logs.print_text(printable_json(text) + "\n")
    else:
        logs.print_output(*as_text(document))
    status = 0
    for option, kind in _THRESHOLDS.items():
        limit = getattr(parsed, option)
        if limit is not None and document[kind] > limit:
            logs.print_error(f"--{option.replace('_', '-')}: found {document[kind]}, at most {limit} allowed")
            status = 1
    for problem in document.get("writtenExceptions", {}).get("problems", ()):
        logs.print_error(f"no exceptions are written: {problem}")
        status = 1
    if document["stopped"] or not document["replayed"]:
        logs.print_error(f"admission-gateway: {document['stopped'] or 'no review was replayed'}")
        status = 1
    return status


def _print_plans(document: dict[str, Any], parsed: argparse.Namespace) -> int:
    """Print what plans would have done, and return the exit status."""
    from gateway.base.text import printable_json
    from gateway.tools.replay.plans import as_text

    if parsed.json:
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()
        logs.print_text(printable_json(text) + "\n")
    else:
        logs.print_output(*as_text(document))
    for problem in (*document["problems"], *filter(None, [document["stopped"]])):
        logs.print_error(f"warning: {problem}")
    return 1 if document["stopped"] or not document["plans"] else 0


async def _plans(
    parsed: argparse.Namespace, config: Config, target: KubernetesSettings | None
) -> dict[str, Any]:
    """Return what the plans of *config* would have done, as JSON.

    Raises:
        GatewayError: it has none.
    """
    from gateway.tools.replay.cases import Found
    from gateway.tools.replay.plans import PlanResults, without_stages
    from gateway.tools.replay.run import left_out_webhooks, now

    results, found = PlanResults(config), Found()
    if not results.has_plans:
        raise GatewayError(f"{' '.join(map(str, parsed.config))}: no webhook has a rollout.plan")
    left_out = set(left_out_webhooks(config))
    await _pass(
        parsed,
        [without_stages(config)],
        target,
        found,
        results,
        now(),
        left_out,
        calls_again=False,
        observe=results.note,
    )
    document = results.document()
    document["notes"] |= {why: number for why, number in sorted(found.left_out.items()) if number}
    return {**document, "problems": found.problems, "stopped": results.stopped}


def _cluster(parsed: argparse.Namespace) -> KubernetesSettings | None:
    """Return the cluster of the command. None if it does not use one."""
    if parsed.kubeconfig is None and parsed.context is None and not parsed.cluster_objects:
        return None
    return cluster.select(None, parsed.kubeconfig, parsed.context)


async def _replay(
    parsed: argparse.Namespace, configs: list[Config], target: KubernetesSettings | None
) -> dict[str, Any]:
    """Return the JSON of the report."""
    from gateway.tools.replay.cases import Found
    from gateway.tools.replay.report import Report
    from gateway.tools.replay.run import left_out_webhooks, now
    from gateway.tools.replay.write_exceptions import Settings, write_exceptions

    found, report, began = Found(), Report(), now()
    left_out = list(dict.fromkeys(key for config in configs for key in left_out_webhooks(config)))
    digests: list[str] = []

    async def one_pass(config: Config, results: Results, about: Found) -> None:
        sides = [config, *configs[1:]]
        is_first = not digests
        digests.extend(
            await _pass(parsed, sides, target, about, results, began, set(left_out), calls_again=is_first)
        )

    written = None
    if parsed.write_exceptions is None:
        await one_pass(configs[0], report, found)
    else:
        settings = Settings(
            parsed.write_exceptions,
            parsed.exceptions_expire_after,
            parsed.exceptions_max_percent,
            parsed.exceptions_owner_label,
        )
        written = await write_exceptions(one_pass, configs[0], parsed.config, report, found, began, settings)
    about: dict[str, object] = {
        "configuration": " ".join(map(str, parsed.config)),
        "digest": digests[0],
        "against": " ".join(map(str, parsed.against)),
        "comparedWith": " ".join(map(str, parsed.against)) or _answers_of_source(parsed),
        "againstDigest": digests[1] if configs[1:] else "",
        "webhooksLeftOut": [f"{phase} {name}/{webhook}" for phase, name, webhook in left_out],
    }
    document = report.document(found, about, with_times=parsed.latency)
    if written is not None:
        document["writtenExceptions"] = written.document(parsed.write_exceptions)
    return document


async def _pass(
    parsed: argparse.Namespace,
    configs: list[Config],
    target: KubernetesSettings | None,
    found: Found,
    results: Results,
    began: float,
    left_out: set[tuple[str, str, str]],
    *,
    calls_again: bool,
    observe: Callable[[Case, DryRun, Namespace | None], None] | None = None,
) -> list[str]:
    """Replay the source through *configs* into *results*, and return the digests of the configurations.

    *calls_again*: mutating webhooks are called once more on their own results. *observe* is as in ``Side``.
    """
    from contextlib import AsyncExitStack

    from gateway.base.progress import Progress
    from gateway.tools.offline.gateway import offline_gateway
    from gateway.tools.replay.run import Replay, Side

    configs = [replay_sources.with_cluster(config, target) for config in configs]
    async with AsyncExitStack() as stack:
        gateways = [
            await stack.enter_async_context(offline_gateway(config, uses_cluster=target is not None))
            for config in configs
        ]
        sides = [
            Side(gateway, began, config.gateway.kubernetes is not None and target is None)
            for gateway, config in zip(gateways, configs, strict=True)
        ]
        sides[0].calls_again = calls_again
        sides[0].observe = observe
        namespaces = replay_sources.Namespaces(parsed.namespaces, configs[0], target)
        stack.push_async_callback(namespaces.close)
        under_way = Replay(results, found, sides[0], sides[1] if len(sides) > 1 else None, namespaces.find)
        progress = stack.enter_context(Progress("percent of the input", 100))
        shown = [0]

        def done() -> None:
            while shown[0] < int(found.read * 100):
                shown[0] += 1
                progress.advance()

        await under_way.run(replay_sources.cases(parsed, configs[0], target, found, left_out), done)
    return [gateway.digest for gateway in gateways]


def _answers_of_source(parsed: argparse.Namespace) -> str:
    """Return what results are compared with where no other configuration is given."""
    answers = {
        "the recorded answers": parsed.files,
        "the answers in the audit log": parsed.audit_log,
        "an admission of each object, which has no recorded answer": (
            parsed.objects or parsed.cluster_objects
        ),
    }
    return ", and with ".join(text for text, is_given in answers.items() if is_given)

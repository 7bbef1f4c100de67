"""``admission-gateway migrate prove``: whether a configuration answers reviews as the old engine does.

Exit status: 0 equal, 1 different, 2 wrong usage, configuration or input, 3 not known: calls failed, or
nothing was compared.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway.base import logs
from gateway.base.errors import ClusterError, ConfigError, GatewayError, Problem
from gateway.base.report_lines import NOT_CALLED, counted, number_of, section
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli import replay_sources
from gateway.tools.cli.arguments import add_config, add_configurations
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.migrating.proof import Proof
    from gateway.tools.replay.cases import Case, Found

    Json = dict[str, Any]

WRONG: Final = 2
UNKNOWN: Final = 3
OLD: Final = "old"
"""The folder with the old engine's webhooks beside the new configuration, as ``migrate`` writes both."""

HELP: Final = Help(
    "Run reviews through the old engine's webhooks and through the configuration that replaces them, "
    "and compare the answers.",
    (
        ("with recorded reviews", "migrate prove recordings --config migration/config"),
        ("with the objects of the cluster", "migrate prove --cluster-objects --config migration/config"),
    ),
    "docs/migrate-engines.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    replay_sources.add_arguments(parser)
    add_config(parser)
    what = f"webhook configurations of the old engine (default: the folder {OLD} beside --config)"
    add_configurations(parser, "--old", what)
    add(
        "--connect",
        metavar="SERVER=HOST:PORT",
        action="append",
        default=[],
        type=_connection,
        help="where to reach a server of --old, NAMESPACE/SERVICE or a host of a URL, such as the port of "
        "kubectl port-forward; may be repeated",
    )
    add(
        "--exclude-namespace",
        metavar="NAMESPACE",
        action="append",
        default=[],
        help="leave out reviews in it, such as the old engine's own; may be repeated",
    )
    add("--exact", action="store_true", help="compare messages and warnings as they are, with their order")
    add(
        "--output",
        metavar="DIR",
        type=Path,
        help="write a test case for each difference, for the command test",
    )
    add("--force", action="store_true", help="with --output: replace existing files")
    add("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def _connection(text: str) -> tuple[str, tuple[str, int]]:
    server, _, address = text.partition("=")
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
    if not server or not host or not is_port or server.count("/") > 1 or not server.isprintable():
        raise argparse.ArgumentTypeError(f"found {text[:100]}, expected NAMESPACE/SERVICE=HOST:PORT")
    namespace, slash, name = server.partition("/")
    return f"{name}.{namespace}.svc" if slash else server, (host, int(port))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print the report, and return the exit status. *refuse* exits with an error."""
    import uvloop

    from gateway.config.merge.load import load

    replay_sources.check(parsed, refuse)
    if parsed.force and parsed.output is None:
        refuse("--force needs --output")
    beside = parsed.config[0].parent / OLD
    if not parsed.old and not beside.is_dir():
        refuse(f"expected --old: there is no folder {beside}")
    old_paths = parsed.old or [beside]
    try:
        new, old = load(parsed.config), _connected(load(old_paths), dict(parsed.connect))
        problem = _unusable(old)
        if problem:
            raise ConfigError([Problem(str(old_paths[0]), "", problem)])
        target = _cluster(parsed, new, old)
        proof, found, left_out = uvloop.run(_prove(parsed, new, old, target))
        about: Json = {
            "configuration": " ".join(map(str, parsed.config)),
            "old": " ".join(map(str, old_paths)),
            "webhooksLeftOut": left_out,
        }
        cases = _write(parsed, proof)
    except ConfigError as error:
        logs.print_error(*error.problems)
        return WRONG
    except (GatewayError, OSError) as error:
        logs.print_error(f"admission-gateway: {error}")
        return UNKNOWN if isinstance(error, ClusterError) else WRONG
    document = proof.document(found, about, cases)
    if parsed.json:
        from gateway.base.text import printable_json

        logs.print_text(printable_json(json.dumps(document, ensure_ascii=False, indent=2)) + "\n")
    else:
        logs.print_output(*_lines(document, parsed.output))
    return proof.status(found, left_out)


def _connected(config: Config, servers: Mapping[str, tuple[str, int]]) -> Config:
    """Return *config* with other addresses for the *servers*, by host.

    Raises:
        GatewayError: it has no such server.
    """
    from gateway.pure.core.webhook import HttpsClient

    used: set[str] = set()

    def of(webhooks: Iterable[Webhook]) -> Iterator[Webhook]:
        for one in webhooks:
            host = (urlsplit(one.client.url).hostname or "") if isinstance(one.client, HttpsClient) else ""
            if host in servers:
                used.add(host)
                assert isinstance(one.client, HttpsClient)
                yield replace(one, client=replace(one.client, connect_to=servers[host]))
            else:
                yield one

    config = replace(config, mutating=tuple(of(config.mutating)), validating=tuple(of(config.validating)))
    for host in servers:
        if host not in used:
            raise GatewayError(f"--connect: no webhook of --old is served by {host}")
    return config


def _unusable(old: Config) -> str:
    """Return why there is nothing to compare with in *old*. Empty if there is."""
    from gateway.pure.core.webhook import HttpsClient

    if not any(isinstance(one.client, HttpsClient) for one in old.webhooks):
        return "found no webhook with a url or service, expected the old engine's webhook configurations"
    return ""


def _cluster(parsed: argparse.Namespace, *configs: Config) -> KubernetesSettings | None:
    """Return the cluster of the command. None if it does not use one.

    Without options, it is used if a CA bundle of the old engine is followed there.
    """
    from gateway.pure.core.webhook import HttpsClient

    is_named = parsed.kubeconfig is not None or parsed.context is not None or parsed.cluster_objects
    clients = [one.client for config in configs for one in config.webhooks]
    if not is_named and not any(isinstance(one, HttpsClient) and one.ca_from for one in clients):
        return None
    return cluster.select(None, parsed.kubeconfig, parsed.context)


async def _prove(
    parsed: argparse.Namespace, new: Config, old: Config, target: KubernetesSettings | None
) -> tuple[Proof, Found, list[str]]:
    """Return what came of the reviews, what else their source has, and the webhooks that were not called."""
    from contextlib import AsyncExitStack

    from gateway.base.progress import Progress
    from gateway.tools.migrating.proof import Proof
    from gateway.tools.offline.gateway import offline_gateway
    from gateway.tools.replay.cases import Found
    from gateway.tools.replay.run import Replay, Side, left_out_webhooks, now

    configs = [replay_sources.with_cluster(config, target) for config in (new, old)]
    found, proof, began = Found(), Proof(parsed.exact), now()
    async with AsyncExitStack() as stack:
        sides = []
        for config in configs:
            gateway = await stack.enter_async_context(
                offline_gateway(config, uses_cluster=target is not None)
            )
            sides.append(Side(gateway, began, config.gateway.kubernetes is not None and target is None))
        namespaces = replay_sources.Namespaces(parsed.namespaces, new, target)
        stack.push_async_callback(namespaces.close)
        progress = stack.enter_context(Progress("percent of the input", 100))
        shown = [0]

        def done() -> None:
            while shown[0] < int(found.read * 100):
                shown[0] += 1
                progress.advance()

        # Objects of a cluster are those that any of both sides reviews.
        both = replace(new, mutating=new.mutating + old.mutating, validating=new.validating + old.validating)
        cases = replay_sources.cases(parsed, both, target, found, set())
        under_way = Replay(proof, found, sides[0], sides[1], namespaces.find)
        await under_way.run(_whole(cases, parsed.exclude_namespace, found), done)
    left_out = [
        f"{side}: {phase} {name}/{webhook}"
        for side, config in (("new", new), ("old", old))
        for phase, name, webhook in left_out_webhooks(config)
    ]
    return proof, found, left_out


async def _whole(cases: AsyncIterator[Case], excluded: Collection[str], found: Found) -> AsyncIterator[Case]:
    """Yield *cases* outside of *excluded* namespaces, for all webhooks of their phase.

    The path of a recording may be that of a part of them.
    """
    async for case in cases:
        name = case.request.get("namespace")
        kind = case.request.get("kind")
        if isinstance(kind, dict) and kind.get("kind") == "Namespace":
            name = case.request.get("name")
        if name in excluded:
            found.leave_out("in a namespace that is excluded")
        else:
            yield replace(case, path=f"/{case.phase}") if case.phase else case


def _write(parsed: argparse.Namespace, proof: Proof) -> list[str]:
    """Write the test with the differences of *proof*, and return the names of its cases."""
    from gateway.tools.importing.folder import write
    from gateway.tools.migrating.counterexamples import counterexamples

    if parsed.output is None or not proof.groups:
        return []
    texts, cases = counterexamples(proof, parsed.config, parsed.output)
    write(parsed.output, texts, force=parsed.force)
    return cases


def _lines(document: Json, output: Path | None) -> Iterator[str]:
    through = f"{number_of(document['compared'], 'review')} through {document['configuration']}"
    yield f"{through}, compared with the webhooks of {document['old']}"
    if not document["different"] and not document["undecided"] and document["compared"]:
        yield f"equal on {number_of(document['equal'], 'review')}; {document['notCompared']:,} not compared"
    else:
        counts = [f"{document[name]:,} {name}" for name in ("equal", "different", "undecided")]
        yield f"{', '.join(counts)}; {document['notCompared']:,} not compared"
    if document["stopped"]:
        yield f"stopped early: {document['stopped']}"
    for group in document["differences"]:
        yield ""
        yield from _group(group)
    if document["furtherDifferences"]:
        yield ""
        yield f"{document['furtherDifferences']:,} further reviews differ in other ways"
    if document["differences"] and output is not None:
        yield ""
        yield f"written as test cases: admission-gateway test {output}"
    yield from counted("failed", document["failures"], "reviews")
    yield from counted("not compared", document["notComparedByReason"], "reviews")
    yield from counted("compared, but", document["notes"], "reviews")
    yield from section(NOT_CALLED, document["webhooksLeftOut"])
    yield from section("input", document["problems"])


def _group(group: Json) -> Iterator[str]:
    example = group["example"]
    place = f" in {example['namespace']}" if example["namespace"] else ""
    user = f" by {example['user']}" if example["user"] else ""
    yield f"{number_of(group['count'], 'review')}: {group['operation']} {group['kind']}"
    yield f"  such as {example['name'] or '(generated name)'}{place}{user}, uid {example['uid']}"
    for one in group["found"]:
        of = f", {', '.join(one['webhooks'])}" if one["webhooks"] else ""
        yield f"  {one['difference']}{of}"
        yield from (f"    - {line}" for line in one["old"])
        yield from (f"    + {line}" for line in one["new"])
    if "case" in group:
        yield f"  case: {group['case']}"

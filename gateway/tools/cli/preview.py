"""``admission-gateway preview``: what admission would say to rendered manifests, before they are applied.

Exit status: 0 all allowed, 1 something denied, or refused by the version of ``--kubernetes``, 2 wrong usage,
configuration or input, 3 something could not be decided.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.base.errors import ClusterError, ConfigError, GatewayError
from gateway.engine.object_review import DEFAULT_GROUPS, DEFAULT_NAMESPACE
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli import preview_outputs, preview_validation
from gateway.tools.cli.arguments import add_config, add_kubernetes, load_config
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.config.merge.model import Config
    from gateway.pure.core.namespace import Namespace
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.preview.forecast import Forecast
    from gateway.tools.preview.manifests import Input
    from gateway.tools.preview.report import Report
    from gateway.tools.preview.run import CustomResource, Preview
    from gateway.tools.replay.plug_in_objects import PlugInObjects

    Previewer = Callable[[OfflineGateway], Preview]

WRONG: Final = 2
UNDECIDED: Final = 3
USER: Final = "admission-gateway:preview"
_MAX_KNOWN: Final = 20_000
"""Namespaces and CustomResourceDefinitions among the manifests that are kept."""

HELP: Final = Help(
    "Say what admission does to rendered manifests before you apply them: denials, warnings and "
    "changes, with file, line and column.",
    (
        ("manifests in a folder", "preview manifests --config config"),
        ("what helm or kustomize renders", "preview - --config config < rendered.yaml"),
    ),
    "docs/preview.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add("paths", metavar="DIR_OR_FILE", nargs="+", help="rendered manifests; - for standard input")
    add_config(parser)
    add(
        "--source-root",
        metavar="DIR",
        action="append",
        default=[],
        help="folder that Helm or kustomize rendered: findings are in its files; may be repeated "
        "(default for standard input: the working directory)",
    )
    preview_outputs.add_arguments(parser)
    add(
        "--expand",
        choices=("true", "false"),
        default="true",
        help="also review the objects that controllers create, such as the Pods of a Deployment "
        "(default: %(default)s)",
    )
    preview_validation.add_arguments(parser)
    add_kubernetes(parser, "also say what it changes for the manifests and the configuration")
    of_requests = parser.add_argument_group("for the requests")
    add = of_requests.add_argument
    add("--user", metavar="NAME", default=USER, help="user who creates the objects (default: %(default)s)")
    add(
        "--group",
        metavar="NAME",
        action="append",
        help=f"group of the user; may be repeated (default: {', '.join(DEFAULT_GROUPS)})",
    )
    add(
        "--namespace",
        metavar="NAME",
        default=DEFAULT_NAMESPACE,
        help="namespace of objects that name none (default: %(default)s)",
    )
    add(
        "--namespaces",
        metavar="FILE",
        type=Path,
        help="file with Namespaces, for their labels, besides those in the manifests",
    )
    cluster.add_arguments(parser, "that has the namespaces, and the objects that policies read")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: list[str]) -> int:
    """Print what the preview finds, and return the exit status."""
    import uvloop

    from gateway.tools.preview.forecast import Forecast
    from gateway.tools.preview.manifests import STDIN, Input

    if parsed.paths.count(STDIN) > 1:
        logs.print_error("admission-gateway: found - several times, expected it once")
        return WRONG
    if problem := preview_validation.problem(parsed):
        logs.print_error(f"admission-gateway: {problem}")
        return WRONG
    found = None
    try:
        config = load_config(parsed.config)
        found = Input(parsed.paths, parsed.source_root)
        forecast = None if parsed.kubernetes is None else Forecast(parsed.kubernetes)
        report = uvloop.run(_preview(parsed, config, found, forecast))
    except ConfigError as error:
        logs.print_error(*error.problems)
        return WRONG
    except ClusterError as error:
        logs.print_error(f"admission-gateway: the preview could not be completed: {error}")
        return UNDECIDED
    except (GatewayError, OSError) as error:
        logs.print_error(f"admission-gateway: {error}")
        return WRONG
    finally:
        if found is not None:
            found.close()
    if report.totals.stopped:
        logs.print_error(f"admission-gateway: the preview could not be completed: {report.totals.stopped}")
    elif not report.totals.objects:
        logs.print_error("admission-gateway: found no object of Kubernetes in the input")
    if report.totals.without_file and (parsed.sarif or parsed.code_quality):
        logs.print_error(
            f"admission-gateway: {report.totals.without_file:,} findings are in no file below the working "
            "directory, so SARIF and Code Quality do not show them; --source-root DIR names the folder that "
            "Helm or kustomize rendered"
        )
    status = report.totals.status
    return max(status, 1) if forecast is not None and forecast.errors else status


async def _preview(
    parsed: argparse.Namespace, config: Config, found: Input, forecast: Forecast | None
) -> Report:
    """Write the results, and return the report."""
    from contextlib import AsyncExitStack, aclosing
    from dataclasses import replace
    from functools import partial

    from gateway.tools.cli.replay_sources import Namespaces, with_cluster
    from gateway.tools.offline.gateway import offline_gateway
    from gateway.tools.preview.report import Report
    from gateway.tools.preview.run import Options, Preview
    from gateway.tools.replay.plug_in_objects import PlugInObjects
    from gateway.tools.replay.run import left_out_webhooks, now

    is_clustered = parsed.kubeconfig is not None or parsed.context is not None
    target = cluster.select(None, parsed.kubeconfig, parsed.context) if is_clustered else None
    config = with_cluster(config, target)
    async with AsyncExitStack() as stack:
        known = PlugInObjects(target, logs.print_error)
        stack.push_async_callback(known.close)
        written, custom_resources = _written(found, known, parsed.namespace)
        gateway = await stack.enter_async_context(offline_gateway(config, uses_cluster=is_clustered))
        others = Namespaces(parsed.namespaces, config, target)
        stack.push_async_callback(others.close)

        async def namespace(name: str) -> Namespace | None:
            return written.get(name) or await others.find(name) or _new_namespace(name, parsed.namespace)

        minor = config.gateway.kubernetes_minor
        validator = preview_validation.validator(parsed, minor, target, written, custom_resources, stack)
        options = Options(
            parsed.user,
            tuple(parsed.group or DEFAULT_GROUPS),
            parsed.namespace,
            expands=parsed.expand == "true",
            validation=validator,
            lacks_cluster=config.gateway.kubernetes is not None and not is_clustered,
            custom_resources=custom_resources,
        )
        at = now()

        def preview(of: OfflineGateway, options: Options = options) -> Preview:
            return Preview(of, options, at, namespace, known.of)

        left_out = [f"{phase} {name}/{webhook}" for phase, name, webhook in left_out_webhooks(config)]
        about = {
            "configuration": " ".join(map(str, parsed.config)),
            "digest": gateway.digest,
            "expanded": options.expands,
            "webhooksLeftOut": left_out,
        }
        if left_out:
            named = ", ".join(left_out)
            logs.print_error(f"not called, because their sideEffects allow no dry run: {named}")
        if forecast is not None:
            forecast.add_config(gateway.config, parsed.config)
            # What the version refuses, the forecast itself tells.
            answers = partial(preview, options=replace(options, validation=None))
            await _compute(forecast, gateway, answers, found, uses_cluster=is_clustered)
            about |= forecast.document()
        report = Report(preview_outputs.outputs(parsed, config, about, forecast))
        results = preview(gateway).run(found.read())
        try:
            async with aclosing(results):
                async for one in results:
                    report.add(one)
        except ClusterError as error:
            report.totals.stopped = str(error)
    report.end()
    if forecast is not None and not (parsed.json or parsed.argocd_ignore):
        logs.print_text("".join(f"{line}\n" for line in forecast.lines()))
    return report


async def _compute(
    forecast: Forecast, gateway: OfflineGateway, preview: Previewer, found: Input, *, uses_cluster: bool
) -> None:
    """Give *forecast* what it finds in the input."""
    from gateway.tools.offline.gateway import offline_gateway

    for one in found.read():
        forecast.add_object(one)
    other = forecast.config_of_answers(gateway.config)
    if other is not None:
        async with offline_gateway(other, uses_cluster=uses_cluster) as later:
            await forecast.add_answers(*(preview(each).run(found.read()) for each in (gateway, later)))


def _written(
    found: Input, known: PlugInObjects, default: str
) -> tuple[dict[str, Namespace], dict[tuple[str, str], CustomResource]]:
    """Return the Namespaces and the custom resources among the manifests, and give *known* what it needs."""
    from gateway.pure.workloads.known import KINDS
    from gateway.tools.preview.run import custom_resource_of
    from gateway.tools.replay.cases import namespace_of

    namespaces: dict[str, Namespace] = {}
    resources: dict[tuple[str, str], CustomResource] = {}
    words = "Namespace", "CustomResourceDefinition", *(kind for _, kind in KINDS)
    for one in found.mentioning(*words):
        known.add(one.object, default)
        kind = one.object.get("apiVersion"), one.object.get("kind")
        if kind == ("v1", "Namespace") and len(namespaces) < _MAX_KNOWN:
            namespace = namespace_of(one.object)
            if namespace is not None:
                namespaces[namespace.name] = namespace
        elif kind == ("apiextensions.k8s.io/v1", "CustomResourceDefinition") and len(resources) < _MAX_KNOWN:
            resource = custom_resource_of(one.object)
            if resource is not None:
                resources[resource[0]] = resource[1]
    return namespaces, resources


def _new_namespace(name: str, wanted: str) -> Namespace | None:
    """Return the namespace *name* as a new one, if it is the one of objects that name none."""
    from gateway.tools.replay.cases import namespace_of

    return (
        namespace_of({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if name == wanted
        else None
    )

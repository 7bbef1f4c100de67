"""Options of ``admission-gateway sync``; ``gateway.tools.importing.sync`` is the implementation."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.progress import Progress
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.arguments import add_selection
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.tools.importing.destinations import Destination

HELP: Final = Help(
    "Keep an imported configuration equal to objects that a controller writes in the cluster.",
    (
        ("once", "sync --output config"),
        (
            "after every change; the API server calls only the gateway",
            "sync --output config --unregister --watch",
        ),
    ),
    "docs/migrate.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    cluster.add_arguments(parser, "to read from")
    add_selection(parser, "follow")
    add("--output", metavar="DIR", type=Path, help="folder that import has written")
    add(
        "--as",
        dest="form",
        choices=("WebhookConfigurations", "CustomResources"),
        default="WebhookConfigurations",
        help="format, as for import; without --output, CustomResources in the cluster are updated",
    )
    add(
        "--unregister", action="store_true", help="disable the API server's direct calls to imported webhooks"
    )
    add("--restore", action="store_true", help="undo --unregister, and exit")
    add(
        "--prune",
        action="store_true",
        help="remove objects from the configuration that no longer exist in the cluster",
    )
    add("--watch", action="store_true", help="keep running, and update after every change")
    add(
        "--then",
        metavar="COMMAND",
        type=shlex.split,
        help="command to run at the start and after changes of rules or selectors, without a shell",
    )
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Synchronize, and return the exit status. *refuse* prints a usage error and exits."""
    from gateway.tools.importing.destinations import CustomResources, Folder
    from gateway.tools.importing.sync import Sync, run_once, watch
    from gateway.tools.importing.sync_plan import Choice

    as_resource = parsed.form == "CustomResources"
    if parsed.restore and (parsed.unregister or parsed.watch or parsed.then or parsed.prune):
        refuse("--restore cannot be combined with --unregister, --watch, --then or --prune")
    if parsed.output is None and not as_resource and not parsed.restore:
        refuse("--output DIR or --as CustomResources is needed")
    destination: Destination = CustomResources() if parsed.output is None else Folder(parsed.output)
    choice = Choice(parsed.name, parsed.exclude, as_resource)
    settings = cluster.select(None, parsed.kubeconfig, parsed.context)
    sync = Sync(destination, choice, parsed)
    if parsed.watch or parsed.then:
        # The command has the terminal.
        return asyncio.run(watch(settings, sync) if parsed.watch else run_once(settings, sync))
    with Progress("synchronizing"):
        return asyncio.run(run_once(settings, sync))

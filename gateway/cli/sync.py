"""Options of ``admission-gateway sync``; ``gateway.importing.sync`` is the implementation."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.kubernetes import select_cluster as cluster

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.importing.destinations import Destination


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add to *parser* what the command takes."""
    add = parser.add_argument
    cluster.add_arguments(parser, "whose webhook configurations are followed")
    add("--name", metavar="GLOB", action="append", default=[], help="only configurations of such a name")
    add(
        "--exclude", metavar="GLOB", action="append", default=[], help="leave these out; both may be repeated"
    )
    add("--output", metavar="DIR", type=Path, help="the folder that import has written")
    add(
        "--as",
        dest="form",
        choices=("WebhookConfigurations", "CustomResources"),
        default="WebhookConfigurations",
        help="as for import; CustomResources without --output are those of the cluster itself",
    )
    add("--unregister", action="store_true", help="have the API server no longer call what the gateway has")
    add(
        "--restore", action="store_true", help="have the API server call again what was unregistered, and end"
    )
    add("--prune", action="store_true", help="remove from the configuration what is gone from the cluster")
    add("--watch", action="store_true", help="go on until told to stop")
    add(
        "--then",
        metavar="COMMAND",
        type=shlex.split,
        help="run this, without a shell, at first and when rules or selectors have changed",
    )
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Follow the cluster, once or until told to stop, and return the exit status. *refuse* exits."""
    from gateway.importing.destinations import CustomResources, Folder
    from gateway.importing.sync import Sync, run_once, watch
    from gateway.importing.sync_plan import Choice

    as_resource = parsed.form == "CustomResources"
    if parsed.restore and (parsed.unregister or parsed.watch or parsed.then or parsed.prune):
        refuse("--restore stands alone: it goes back")
    if parsed.output is None and not as_resource and not parsed.restore:
        refuse("--output DIR or --as CustomResources is needed")
    destination: Destination = CustomResources() if parsed.output is None else Folder(parsed.output)
    choice = Choice(parsed.name, parsed.exclude, as_resource)
    settings = cluster.select(None, parsed.kubeconfig, parsed.context)
    sync = Sync(destination, choice, parsed)
    return asyncio.run(watch(settings, sync) if parsed.watch else run_once(settings, sync))

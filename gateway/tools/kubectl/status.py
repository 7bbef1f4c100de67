"""``kubectl admission status``: ``admission-gateway status --cluster`` with the options of kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.tools.cli import status
from gateway.tools.cli.parser import Help
from gateway.tools.kubectl.options import add_cluster

if TYPE_CHECKING:
    import argparse

HELP: Final = Help(
    "Show what the gateways of the cluster do, and what is wrong with them.",
    (
        ("all replicas", "admission status"),
        ("again and again, of a gateway in the namespace policies", "admission status -n policies --watch"),
    ),
    "docs/kubectl-plugin.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add_cluster(parser, "-n", "--namespace")
    status.add_watch(parser)
    parser.set_defaults(run=lambda parsed, _: status.run(parsed, parser.error))

"""``kubectl admission decisions``: ``admission-gateway decisions --cluster`` with the options of kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.tools.cli import decisions
from gateway.tools.cli.parser import Help
from gateway.tools.kubectl.options import add_cluster, add_namespace

if TYPE_CHECKING:
    import argparse

HELP: Final = Help(
    "Show recent denials and failures of all replicas, the latest first, and some other decisions.",
    (
        ("what was denied in a namespace?", "admission decisions --outcome Denied -n shop"),
        (
            "why? all about the decision with this uid",
            "admission decisions 705ab4f5-6393-11e8-b7cc-42010a800002",
        ),
    ),
    "docs/kubectl-plugin.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    parser.add_argument(
        "uid", metavar="UID", nargs="?", help="the review's uid: print this decision with all details"
    )
    add_namespace(parser, "only requests for objects in the namespace NS (default: all)")
    decisions.add_filters(parser)
    add_cluster(parser)
    parser.set_defaults(run=lambda parsed, _: decisions.run(parsed, parser.error))

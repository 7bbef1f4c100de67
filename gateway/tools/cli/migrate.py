"""``admission-gateway migrate``: from Gatekeeper, Kyverno or Kubewarden to the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.tools.cli import migrate_prove

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands to *parser*."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    summary = "whether a configuration answers reviews as the old engine does"
    prove = commands.add_parser("prove", help=summary, description=f"Find out {summary}.")
    migrate_prove.add_arguments(prove)

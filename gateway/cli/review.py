"""``admission-gateway review``: runs one AdmissionReview through the configured webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway import logs
from gateway.cli.arguments import add_config
from gateway.text import printable_json

if TYPE_CHECKING:
    import argparse

    from gateway.core.webhook import Phase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add("file", metavar="FILE", help="file with an AdmissionReview, JSON or YAML; - for standard input")
    add_config(parser)
    add(
        "--phase",
        choices=("mutate", "validate", "both"),
        default="both",
        help="phases to run (default: %(default)s)",
    )
    add("--explain", action="store_true", help="print for each webhook whether it matched, and its outcome")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: list[str]) -> int:
    """Print the response, and return the exit status."""
    import uvloop

    from gateway.config.load import load
    from gateway.offline import read_review, review

    config = load(parsed.config)
    phases: list[Phase] = ["mutate", "validate"] if parsed.phase == "both" else [parsed.phase]
    answer, lines = uvloop.run(review(config, read_review(parsed.file), phases))
    if parsed.explain:
        logs.print_error(*lines)
    logs.print_output(printable_json(answer.decode()))
    return 0

"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse


DEFAULT_STATE: Final = Path(".admission-gateway")
"""The folder of ``serve --state``."""


def add_config(
    parser: argparse.ArgumentParser,
    option: str = "--config",
    *,
    required: bool = True,
    what: str = "configuration files, or folders of configuration files",
) -> None:
    """Add ``--config``, or another *option* for configurations, to *parser*. *what* is its help."""
    parser.add_argument(
        option,
        metavar="DIR_OR_FILE",
        nargs="+",
        action="extend",
        type=Path,
        required=required,
        default=None if required else [],
        help=what,
    )


def add_selection(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add ``--name`` and ``--exclude``, which select objects; *verb* is the command's action in the help."""
    add = parser.add_argument
    add(
        "--name",
        metavar="GLOB",
        action="append",
        default=[],
        help=f"{verb} only such a NAME or KIND/NAME; may be repeated",
    )
    add(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help=f"do not {verb} these configurations; may be repeated",
    )


def add_kubernetes(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--kubernetes``; *what* it does is in the help."""
    parser.add_argument(
        "--kubernetes", metavar="VERSION", type=_minor, help=f"a version of Kubernetes, such as 1.38: {what}"
    )


def _minor(text: str) -> int:
    import argparse

    from gateway.tools.forecast.findings import minor_of

    try:
        return minor_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

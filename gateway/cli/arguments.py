"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_config(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add ``--config`` to *parser*."""
    parser.add_argument(
        "--config",
        metavar="DIR_OR_FILE",
        nargs="+",
        action="extend",
        type=Path,
        required=required,
        default=None if required else [],
        help="configuration files, or folders of configuration files",
    )

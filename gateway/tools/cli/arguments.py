"""Arguments that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.base.text import one_of, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gateway.config.merge.model import Config
    from gateway.tools.cli.parser import Parser


DEFAULT_STATE: Final = Path(".admission-gateway")
"""The folder of ``serve --state``."""


CONFIG_VARIABLE: Final = "ADMISSION_GATEWAY_CONFIG"
CONFIG_FILE: Final = Path("gateway.yaml")


def add_configurations(parser: argparse.ArgumentParser, option: str, what: str) -> None:
    """Add an *option* for configurations to *parser*. *what* is its help."""
    parser.add_argument(
        option, metavar="DIR_OR_FILE", nargs="+", action="extend", type=Path, default=[], help=what
    )


def add_config(parser: Parser, unless: str = "") -> None:
    """Add ``--config`` to *parser*. Without it, the command has the :func:`default_config`.

    No configuration is needed, or looked for, if the option *unless* is given.
    """
    what = f"configuration files, or folders of them (default: ${CONFIG_VARIABLE}, or else {CONFIG_FILE})"
    add_configurations(parser, "--config", what)

    def complete(parsed: argparse.Namespace) -> str:
        parsed.config_origin = ""
        if parsed.config or (unless and getattr(parsed, unless)):
            return ""
        parsed.config, parsed.config_origin = default_config()
        missing = [str(one) for one in parsed.config if not one.exists()]
        if missing:
            return f"{parsed.config_origin}: there is no file or folder {shown(missing[0])}"
        ways = ("--config", *([f"--{unless}"] if unless else []), f"${CONFIG_VARIABLE}", f"./{CONFIG_FILE}")
        return "" if parsed.config else f"there is no configuration: expected {one_of(ways)}"

    parser.complete = complete


def load_config(paths: Sequence[Path]) -> Config:
    """Return the configuration of *paths*; print a warning if nothing in it can deny or change a request.

    Raises:
        ConfigError: it cannot be used.
    """
    from gateway.config.merge.load import load

    config = load(paths)
    kubernetes = config.gateway.kubernetes
    if not config.webhooks and (kubernetes is None or not kubernetes.custom_resources):
        names = " ".join(map(str, paths))
        logs.print_error(f"warning: found no webhooks and no policies in {names}: every request is allowed")
    return config


def default_config() -> tuple[list[Path], str]:
    """Return the configuration of a command without ``--config``, and what names it; empty if nothing."""
    if value := os.environ.get(CONFIG_VARIABLE):
        return [Path(one) for one in value.split(os.pathsep) if one], f"${CONFIG_VARIABLE}"
    return ([CONFIG_FILE], "the working directory") if CONFIG_FILE.is_file() else ([], "")


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

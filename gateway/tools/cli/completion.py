"""``admission-gateway completion``: completion of commands, options and file names in a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    import argparse

SHELLS: Final = ("bash", "zsh", "fish")

HELP: Final = Help(
    "Print the completion of commands, options and file names for a shell.",
    (
        ("for bash, in ~/.bashrc: source <(…)", "completion bash"),
        ("for fish", "completion fish"),
    ),
    "docs/commands.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the output")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: list[str]) -> int:
    """Print the completion for a shell, and return the exit status."""
    import shtab

    from gateway.tools.cli import build_parser

    parser = build_parser()
    _complete_files(parser)
    logs.print_text(shtab.complete(parser, parsed.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments of *parser* and its commands whose values are files or folders."""
    import argparse

    import shtab

    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                _complete_files(command)
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if "FILE" in metavar or "DIR" in metavar or action.dest == "review":
            action.complete = shtab.DIRECTORY if metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]

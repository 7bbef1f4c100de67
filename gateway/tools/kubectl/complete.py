"""Completes the words of ``kubectl admission``: kubectl calls ``kubectl_complete-admission`` with them.

The last word is the one to complete. The output has a completion a line, then what the shell does with them.

Source: k8s.io/kubectl pkg/cmd/plugin/plugin_completion.go; spf13/cobra completions.go (ShellCompDirective).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from gateway.base import logs
from gateway.tools.kubectl import build_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES, _NO_FILES = 0, 4
"""Directives: complete file names if there is no completion, or do not."""
_FILE_OPTIONS: Final = ("FILE", "DIR")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Print the completions of *argv* (default: the arguments of the process), and exit."""
    words, directive = completions(list(sys.argv[1:] if argv is None else argv) or [""])
    logs.print_output(*words, f":{directive}")
    sys.exit(0)


def completions(words: Sequence[str]) -> tuple[list[str], int]:
    """Return what the last of *words* may become, and the directive."""
    parser: argparse.ArgumentParser = build_parser()
    *before, last = words
    for word in before:
        for action in parser._actions:  # noqa: SLF001 - argparse has no other way
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001
                parser = action.choices[word]
    actions = parser._actions  # noqa: SLF001 - as above
    named = [one for one in actions if before and before[-1] in one.option_strings and one.nargs != 0]
    if not named and last.startswith("-"):
        found = [option for one in actions for option in one.option_strings if option.startswith("--")]
    else:
        named = named or [one for one in actions if not one.option_strings]
        found = [str(choice) for one in named for choice in one.choices or ()]
    takes_files = any(part in str(one.metavar) for one in named for part in _FILE_OPTIONS)
    directive = _FILES if takes_files and not found else _NO_FILES
    return [word for word in found if word.startswith(last)], directive

"""The parser of the command line: what ``--help`` shows, and errors that name what was probably meant.

``argparse`` has no public access to its actions and groups.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn

from gateway.base import logs
from gateway.base.text import closest, meaning, one_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_MISSING: Final = "the following arguments are required"
"""How argparse's message begins."""
_OPTION: Final = re.compile(r"--?[A-Za-z]\S*")


@dataclass(frozen=True, slots=True)
class Help:
    """What ``--help`` of a command says besides its arguments."""

    description: str
    examples: tuple[tuple[str, str], ...]
    """What each example does, and its arguments, without the name of the program."""
    page: str
    """Page of the documentation, as a path in the repository."""


class Parser(argparse.ArgumentParser):
    """The parser of the program, of a command, or of a command of a command."""

    def __init__(
        self, prog: str | None = None, *, about: Help | None = None, description: str | None = None
    ) -> None:
        """*about* is what ``--help`` says besides the arguments."""
        super().__init__(prog, description=about.description if about else description)
        self.about = about
        self._given: Sequence[str] = ()
        self.sections: Mapping[str, Collection[str]] = {}
        """Titles, and the commands that ``--help`` has below each; if empty, all are below one title."""
        self.suggest: Callable[[str], str] = lambda _: ""
        """Returns the command that an unknown one probably means, if no name of a command is close."""
        self.complete: Callable[[argparse.Namespace], str] = lambda _: ""
        """Completes arguments that are not given; returns why it cannot, or nothing."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As in the standard library, except that an unknown argument is an error of this parser."""
        args = self._given = sys.argv[1:] if args is None else args
        # It makes other arguments look missing, or superfluous.
        if unknown := self._unknown_option(args):
            close = closest(unknown.strip("-"), (one.strip("-") for one in self._option_string_actions))
            self.error(f"unknown option {shown(unknown)}{meaning(f'--{close}' if close else '')}")
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unexpected argument {shown(left[0])}")
        if problem := self.complete(found):
            self.error(problem)
        return found, left

    def error(self, message: str) -> NoReturn:
        """Print a usage error in one line, and exit with status 2."""
        if message.startswith(_MISSING):
            message += self._taker()
        end = f" See {self.prog} --help" if message.endswith("?") else f"; see {self.prog} --help"
        logs.print_error(f"{self.prog}: {message}{end}")
        self.exit(2)

    def _taker(self) -> str:
        """Return which option took what is missing, as the end of a message; empty if none did."""
        for at, word in enumerate(self._given[:-2]):
            action = self._option_string_actions.get(word)
            taken = self._given[at + 2]
            if action is not None and action.nargs == "+" and not taken.startswith("-"):
                return f"; {word} took {shown(taken)} too: write it before {word}, or write -- before it"
        return ""

    def show_help(self) -> NoReturn:
        """Print the help to standard error, for a call without the command that it needs; exit with 2."""
        self.print_help(sys.stderr)
        self.exit(2)

    def format_help(self) -> str:
        """Return the help: usage, description, arguments, examples, and the page of the documentation."""
        formatter = self._get_formatter()
        formatter._prog = f"{self.prog} [OPTIONS]"
        needed = [one for one in self._actions if one.required or not one.option_strings]
        formatter.add_usage(None, needed, ())
        formatter.add_text(self.description)
        # The commands are more important than the options of the program.
        for group in sorted(
            self._action_groups, key=lambda one: one is self._optionals and bool(self.sections)
        ):
            for title, actions in self._sections_of(group):
                formatter.start_section(title)
                formatter.add_arguments(actions)
                formatter.end_section()
        return formatter.format_help() + "".join(f"{line}\n" for line in self._ending())

    def _sections_of(self, group: argparse._ArgumentGroup) -> list[tuple[str | None, list[argparse.Action]]]:
        """Return the titles and arguments of *group*; for that of the commands, the commands themselves."""
        (action, *_) = group._group_actions or (None,)
        if not isinstance(action, argparse._SubParsersAction):
            return [(group.title, group._group_actions)]
        commands = {one.dest: one for one in action._get_subactions()}
        sections = self.sections or {"commands": commands}
        return [(title, [commands[name] for name in names]) for title, names in sections.items()]

    def _ending(self) -> list[str]:
        page = [] if self.about is None else ["", f"documentation: {self.about.page}"]
        if self.about is None or not self.about.examples:
            return ["", f'"{self.prog} COMMAND --help" has options and examples of a command.', *page]
        program = self.prog.split()[0]
        pairs = ((f"  # {what}", f"  {program} {example}") for what, example in self.about.examples)
        return ["", "examples:", *chain.from_iterable(pairs), *page]

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a *value* that is none of the choices, and name the one that was probably meant."""
        if action.choices is None or value in action.choices:
            return
        names = list(map(str, action.choices))
        close = closest(str(value), names)
        if isinstance(action, argparse._SubParsersAction):
            meant = meaning(close or self.suggest(str(value)))
            raise argparse.ArgumentError(None, f"unknown command {shown(value)}{meant}")
        expected = f"found {shown(value)}, expected {one_of(names)}"
        raise argparse.ArgumentError(action, f"{expected}{meaning(close)}")

    def _unknown_option(self, arguments: Sequence[str]) -> str | None:
        """Return the first option in *arguments* that there is not."""
        known = self._option_string_actions
        for argument in arguments:
            # A value may follow the letter of an option.
            name = argument.partition("=")[0] if argument.startswith("--") else argument[:2]
            is_option = _OPTION.fullmatch(argument)
            is_rest = name in known and known[name].nargs == argparse.REMAINDER
            if argument == "--" or is_rest or (self._subparsers and not is_option):
                return None  # what follows belongs to something else
            if is_option and not any(one.startswith(name) for one in known):
                return name
        return None

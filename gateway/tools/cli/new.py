"""``admission-gateway new``: writes a project with a policy in one of the languages of the SDKs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.tools.cli.parser import Help
from gateway.tools.scaffold.languages import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Callable

HELP: Final = Help(
    "Write a project: a policy, its tests, and a configuration that runs it.",
    (
        ("a project in Python, in the new folder my-policies", "new python my-policies"),
        ("a project in Go", "new go my-policies"),
    ),
    "docs/write-a-policy.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to *parser*."""
    add = parser.add_argument
    add(
        "language",
        metavar="LANGUAGE",
        type=_language,
        choices=tuple(LANGUAGES),
        help=f"one of {', '.join(LANGUAGES)}",
    )
    add("name", metavar="NAME", help="name of the project: a new folder, lower-case letters, digits and -")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Write the project, and return the exit status. *refuse* prints a usage error and exits."""
    from gateway.tools.scaffold import project

    language = LANGUAGES[parsed.language]
    if message := project.name_problem(parsed.name, language):
        refuse(f"argument NAME: {message}")
    sdk = project.sdk_of_clone(language)
    files = project.render(language, parsed.name, sdk)
    project.write(Path(parsed.name), files)
    logs.print_output(
        *(f"{parsed.name}/{path}" for path in sorted(files)),
        "",
        f"Next ({parsed.name}/README.md has more):",
        "",
        f"  cd {parsed.name}",
        *(f"  {line}" for line in language.lines(parsed.name, sdk)),
        "  admission-gateway test tests",
        "  admission-gateway serve --dev --config gateway.yaml",
    )
    return 0


def _language(text: str) -> str:
    from gateway.tools.scaffold.project import language_problem

    if message := language_problem(text):
        raise argparse.ArgumentTypeError(message)
    return text

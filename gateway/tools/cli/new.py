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


_WITHOUT_SDK: Final = (
    "The project uses the released SDK of this version. If you cannot download it, use --sdk CLONE."
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
    add(
        "--sdk",
        metavar="DIR",
        type=Path,
        help="clone of the gateway's repository, whose SDK is copied into the project (default: the one that "
        "the gateway runs from, or else the project uses a released SDK)",
    )
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Write the project, and return the exit status. *refuse* prints a usage error and exits."""
    from gateway.tools.scaffold import project

    language = LANGUAGES[parsed.language]
    if message := project.name_problem(parsed.name, language):
        refuse(f"argument NAME: {message}")
    repository = parsed.sdk or project.clone()
    sdk = project.sdk_files(language, repository) if repository else {}
    files = project.render(language, parsed.name, sdk)
    project.write(Path(parsed.name), files)
    logs.print_output(
        *(f"{parsed.name}/{path}" for path in sorted(files.keys() - {f"sdk/{path}" for path in sdk})),
        f"{parsed.name}/sdk/: a copy of the SDK" if sdk else _WITHOUT_SDK,
        "",
        f"Next ({parsed.name}/README.md has more):",
        "",
        f"  cd {parsed.name}",
        *(f"  {line}" for line in language.lines(parsed.name, has_sdk=bool(sdk))),
        "  admission-gateway test tests",
        "  admission-gateway serve --dev --config gateway.yaml",
    )
    return 0


def _language(text: str) -> str:
    from gateway.tools.scaffold.project import language_problem

    if message := language_problem(text):
        raise argparse.ArgumentTypeError(message)
    return text

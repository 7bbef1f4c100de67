"""Selects the part of constraints.txt that one list of the projects needs, for ``pip install -r``.

constraints.txt also pins the development tools, which an image does not need. The names in the list are the
roots; the ``# via`` comments of pip-compile say which package requires which. Nothing is resolved again, and
no index is used. A missing package is noticed: with hashes required, pip refuses a package without one.

Source: pip documentation, "Secure installs" (hash-checking mode); pip-tools, ``--annotation-style split``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
OWN = {"admission-gateway": ROOT, "admission-gateway-worker": ROOT / "workers" / "python"}
"""The distributions of this repository, with their folders."""
LISTS = ("dependencies", "build-system")

_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")
_SEPARATORS = re.compile(r"[-_.]+")


def main() -> None:
    """Write the lines for the list given on the command line to standard output."""
    parser = argparse.ArgumentParser(description="Writes the part of constraints.txt that a list needs.")
    parser.add_argument(
        "list",
        choices=LISTS,
        help="of pyproject.toml: for the running program, or for the build of the wheel",
    )
    wanted = parser.parse_args().list
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    try:
        sys.stdout.write(select(constraints, roots_of(wanted)))
    except LookupError as error:
        sys.exit(f"pinned: {error.args[0]}")


def roots_of(wanted: str) -> list[str]:
    """Return the names in the list *wanted*, one of ``LISTS``, of each pyproject.toml.

    The running program has the optional dependencies for traces.
    """
    found: list[str] = []
    for folder in OWN.values():
        content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        project = content["project"]
        found += (
            project["dependencies"] + project.get("optional-dependencies", {}).get("tracing", [])
            if wanted == "dependencies"
            else content["build-system"]["requires"]
        )
    return sorted({_name(requirement) for requirement in found} - OWN.keys())


def select(constraints: str, roots: Iterable[str]) -> str:
    """Return the blocks of *constraints*, in their order, for *roots* and everything that they require.

    Raises:
        LookupError: a root is not pinned; the text names it.
    """
    blocks = _blocks(constraints)
    wanted = {_name(root) for root in roots}
    if missing := sorted(wanted - blocks.keys()):
        raise LookupError(f"constraints.txt does not pin {', '.join(missing)}; run `make constraints`")
    parents = {name: set(_parents(block)) for name, block in blocks.items()}
    while more := {name for name in parents.keys() - wanted if parents[name] & wanted}:
        wanted |= more
    return "".join(block for name, block in blocks.items() if name in wanted)


def _blocks(constraints: str) -> dict[str, str]:
    """Return the block of each pinned package by its normalised name: line, hashes and comment."""
    blocks: dict[str, str] = {}
    name = None
    for line in constraints.splitlines(keepends=True):
        if not line[0].isspace():
            name = None if line.startswith("#") else _name(line)
        if name is not None and line.strip():
            blocks[name] = blocks.get(name, "") + line
    return blocks


def _parents(block: str) -> Iterable[str]:
    """Return the names, packages or the project itself, in the ``# via`` comment of *block*."""
    for line in block.splitlines():
        _, hash_sign, comment = line.partition("#")
        text = comment.strip().removeprefix("via").strip()
        if hash_sign and text:
            yield _name(text)


def _name(requirement: str) -> str:
    """Return the name at the beginning of *requirement*, normalised as in PEP 503."""
    found = _NAME.match(requirement.strip())
    return _SEPARATORS.sub("-", found[0]).lower() if found else ""


if __name__ == "__main__":
    main()

"""Selects the part of constraints.txt that one distribution needs, for ``pip install -r``.

constraints.txt also pins the development tools, which an image does not need. The names in the list are the
roots; the ``# via`` comments of pip-compile say which package requires which. Nothing is resolved again, and
no index is used. A missing package is noticed: with hashes required, pip refuses a package without one.

Source: pip documentation, "Secure installs" (hash-checking mode); pip-tools, ``--annotation-style split``.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.sbom import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
OWN = {"admission-gateway": ROOT, "admission-gateway-worker": ROOT / "workers" / "python"}
"""The gateway and what it needs of this repository, with their folders."""
LISTS = (*OWN, "build-system")


def main() -> None:
    """Write the lines for the list given on the command line to standard output."""
    parser = argparse.ArgumentParser(description="Writes the part of constraints.txt that a list needs.")
    parser.add_argument(
        "list",
        choices=LISTS,
        help="a distribution of this repository, or what builds its wheels",
    )
    wanted = parser.parse_args().list
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    try:
        sys.stdout.write(select(constraints, roots_of(wanted)))
    except LookupError as error:
        sys.exit(f"pinned: {error.args[0]}")


def roots_of(wanted: str) -> list[str]:
    """Return the names in the list *wanted*, one of ``LISTS``.

    The gateway has the dependencies of the SDK and the optional ones for traces.
    """
    found: list[str] = []
    for name, folder in OWN.items():
        if wanted not in (name, "admission-gateway", "build-system"):
            continue
        content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        project = content["project"]
        found += (
            content["build-system"]["requires"]
            if wanted == "build-system"
            else project["dependencies"] + project.get("optional-dependencies", {}).get("tracing", [])
        )
    return sorted({normalised(requirement) for requirement in found} - OWN.keys())


def select(constraints: str, roots: Iterable[str]) -> str:
    """Return the blocks of *constraints*, in their order, for *roots* and everything that they require.

    Raises:
        LookupError: a root is not pinned; the text names it.
    """
    blocks = _blocks(constraints)
    wanted = {normalised(root) for root in roots}
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
            name = None if line.startswith("#") else normalised(line)
        if name is not None and line.strip():
            blocks[name] = blocks.get(name, "") + line
    return blocks


def _parents(block: str) -> Iterable[str]:
    """Return the names, packages or the project itself, in the ``# via`` comment of *block*."""
    for line in block.splitlines():
        _, hash_sign, comment = line.partition("#")
        text = comment.strip().removeprefix("via").strip()
        if hash_sign and text:
            yield normalised(text)


if __name__ == "__main__":
    main()

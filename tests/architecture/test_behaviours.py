"""The table of behaviours names tests that exist."""

from __future__ import annotations

import ast
import re
from typing import Final

from tests.kit import ROOT

TESTS: Final = ROOT / "tests"
_NAMED: Final = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")


def _table() -> list[list[str]]:
    lines = (TESTS / "README.md").read_text().partition("## Behaviours")[2].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def _names_in(file: str) -> set[str]:
    """The functions and the groups of rows of a module."""
    found: set[str] = set()
    for node in ast.parse((TESTS / file).read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_each_named_test_exists() -> None:
    named = [found for row in _table() for cell in row[1:] for found in _NAMED.findall(cell)]
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (TESTS / file).exists() or (name and name not in _names_in(file))
    ]
    assert not missing, f"tests/README.md names tests that do not exist: {missing}"


def test_each_behaviour_has_a_test() -> None:
    rows = [row for row in _table()[1:] if not row[0].startswith("**")]
    assert all(any(_NAMED.search(cell) for cell in row[1:]) for row in rows)


def test_each_group_of_rows_is_in_the_table() -> None:
    text = (TESTS / "README.md").read_text()
    groups = {name for name in _names_in("simulation/test_rows.py") if f"*{name}" in _rows_list()}
    assert len(groups) > 5
    assert [name for name in groups if f"test_rows.py::{name}`" not in text] == []


def _rows_list() -> str:
    source = (TESTS / "simulation" / "test_rows.py").read_text()
    return source[source.index("ROWS = [") :]

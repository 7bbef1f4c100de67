"""The shape of the tree: imported names, packages of the wheel, generated code, no paths of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from setuptools import find_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MAX_NAMES = 40
"""Names that a module may import from the product: so much of the rest its reader has to know.

There is no limit of lines: ruff bounds the complexity of a function (C901), and a module ends where its
reason to change ends."""

DISTRIBUTIONS = {
    "gateway": ROOT,
    "admission_gateway_worker": ROOT / "workers" / "python",
    "admission_gateway_conformance": ROOT / "workers" / "conformance",
}
PACKAGES = sorted(
    path.parent for package, root in DISTRIBUTIONS.items() for path in (root / package).glob("**/__init__.py")
)
MODULES = sorted(path for package in PACKAGES if package.name != "pb" for path in package.glob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_names(source: str) -> int:
    """Return how many names *source* imports from the product, those for types among them."""
    product = tuple(DISTRIBUTIONS)
    return sum(
        len(node.names)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in product
    )


def test_no_module_imports_too_many_names() -> None:
    found = {named(path): imported_names(path.read_text()) for path in MODULES}
    assert {name: number for name, number in found.items() if number > MAX_NAMES} == {}


def test_names_of_the_product_are_counted() -> None:
    source = """
import gateway
from gateway.base import logs, text
from gatewayx import a
def late():
    from admission_gateway_worker.review import Review
"""
    assert imported_names(source) == 3


@pytest.mark.parametrize(("package", "root"), DISTRIBUTIONS.items())
def test_a_wheel_has_the_packages_of_its_distribution(package: str, root: Path) -> None:
    chosen = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    finder = chosen["packages"]["find"]
    assert finder["namespaces"] is False
    found = find_packages(str(root), include=finder["include"])
    ours = [path.relative_to(root) for path in PACKAGES if path.is_relative_to(root / package)]
    assert sorted(found) == [path.as_posix().replace("/", ".") for path in ours]


def test_generated_code_is_up_to_date() -> None:
    check = [sys.executable, str(ROOT / "protos" / "generate.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Folders made by tools, or without text of the project.
NOT_OURS = {"__pycache__", "build", "dist", "node_modules", "results", "target"}
FOREIGN = re.compile(
    r"""
    (?<![\w.~}$-]) / (?:root|work|home|Users|mnt|private) / [\w.-]   # a path of one machine
    | file:///(?!\$|\{)
    | --(?:extra-)?index-url | --trusted-host | --find-links
    | https?://[\w.-]*(?:artifactory|nexus|devpi|pypi|jfrog|mirror)[\w.-]*
    | https?://(?:registry|repo\d?|index|proxy)\.[\w.-]+
    | "resolved":                                                    # npm's lock file says where it was found
    """,
    re.VERBOSE,
)


def texts() -> Iterator[Path]:
    """Yield every text file of the tree."""
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.is_symlink():
                continue
            if path.is_dir():
                is_hidden = path.name.startswith(".") and path.name not in (".ci", ".github")
                if not is_hidden and path.name not in NOT_OURS and not path.name.endswith(".egg-info"):
                    pending.append(path)
            elif path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", "Dockerfile", ".gitignore"):
                yield path


TEXT_SUFFIXES = {
    ".cfg",
    ".go",
    ".ini",
    ".j2",
    ".java",
    ".js",
    ".json",
    ".md",
    ".mod",
    ".proto",
    ".py",
    ".pyi",
    ".rs",
    ".sh",
    ".toml",
    ".ts",
    ".txt",
    ".xml",
    ".yaml",
    ".yml",
}


def test_no_path_of_one_machine_and_no_registry_is_written_down() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in texts()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := FOREIGN.search(line))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_foreign"),
    [
        ("see /home/someone/x", True),
        ('path = "/mnt/x"', True),
        ("(/Users/someone)", True),
        ("--trusted-host=x", True),
        ("https://pypi.example/simple", True),
        ("https://mirror.example/simple", True),
        ('"resolved": "x-1.0.0.tgz"', True),
        ("https://registry.example/x-1.0.0.tgz", True),
        ("https://repo1.example/maven2", True),
        ("/var/run/secrets/kubernetes.io", False),
        ("tests/home/x", False),
        ("~/home/x", False),
        ("https://kubernetes.io/docs", False),
        ("http://maven.apache.org/POM/4.0.0", False),
    ],
)
def test_foreign_text_is_found(line: str, is_foreign: bool) -> None:
    assert bool(FOREIGN.search(line)) is is_foreign

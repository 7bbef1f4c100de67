"""The SDK as it would be published, installed in an empty project by the steps of its README."""

from __future__ import annotations

import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from deploy import artifacts
from tests.languages.projects import Shell, become_a_worker, publish
from tests.languages.toolchains import PYTHON

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.languages.projects import Published
    from tests.languages.toolchains import Language


pytestmark = pytest.mark.xdist_group("published")


@pytest.mark.timeout(3600)
def test_an_empty_project_becomes_a_worker_by_the_steps_of_the_readme(
    tmp_path: Path, processes: ExitStack, language: Language, published: Published
) -> None:
    become_a_worker(tmp_path, processes, language, published)


def names_in(folder: Path) -> set[str]:
    """Return the names of the files of the archives below *folder*."""
    found: set[str] = set()
    for path in folder.rglob("*"):
        if path.suffix in (".tgz", ".crate"):
            with tarfile.open(path) as archive:
                found |= {name.partition("/")[2] for name in archive.getnames()}
        elif path.suffix in (".zip", ".jar"):
            with zipfile.ZipFile(path) as archive:
                found |= {name.rpartition("@")[2].partition("/")[2] for name in archive.namelist()}
    return found


def test_the_python_sdk_installs_without_the_gateway(tmp_path: Path) -> None:
    shell = Shell(tmp_path, publish(PYTHON, tmp_path))
    shell.run("pip install admission-gateway-worker && pip check")
    shell.run("python -c 'import admission_gateway_worker.samples'")
    shell.run("! python -c 'import gateway' && ! python -c 'import grpc'")


NEEDED = {
    "go": {"LICENSE", "README.md", "go.mod", "server.go", "internal/workerpb/worker.pb.go"},
    "typescript": {
        "LICENSE",
        "README.md",
        "package.json",
        "dist/index.js",
        "dist/index.d.ts",
        "dist/worker.proto",
    },
    "rust": {"LICENSE", "README.md", "Cargo.toml", "build.rs", "worker.proto", "src/lib.rs"},
    "java": {"LICENSE"},
}


def test_an_artifact_has_what_it_needs_and_neither_samples_nor_build_products(
    tmp_path: Path, language: Language
) -> None:
    if language is PYTHON:
        pytest.skip("tests/deploy/test_artifacts.py looks into Python's distributions")
    names = names_in(artifacts.build(language.name, tmp_path))
    assert names >= NEEDED[language.name]
    folders = {part for name in names for part in name.split("/")[:-1]}
    unwanted = {"target", "node_modules", "test", "tracing"}
    # A Go module has its tests and samples, as every one has.
    assert not folders & (unwanted if language.name == "go" else {*unwanted, "samples", "tests"})

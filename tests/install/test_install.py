"""``make install`` from an index with newer versions of all packages, by the oldest and the newest pip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from packaging.requirements import Requirement

from deploy.artifacts import copy_sources
from deploy.sbom import normalised
from tests.install.index import NEWER, Index
from tests.kit import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN_S: Final = 1500.0
"""A bound for a stuck installation, not an expectation."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * WITHIN_S)]
LOCK: Final = ROOT / "constraints.txt"
OLDEST: Final = Path(__file__).with_name("oldest-pip.txt")
EDITABLE: Final = {"admission-gateway", "admission-gateway-worker", "admission-gateway-conformance"}
VERSIONS: Final = """\
import importlib.metadata as metadata
for one in metadata.distributions():
    print(one.metadata["Name"], one.version)
"""


def run(*command: object, **environment: str) -> str:
    """Run *command* and return its output, errors included.

    Raises:
        AssertionError: it failed; the text has the output.
    """
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-4000:]}"
    return done.stdout


def locked() -> dict[str, str]:
    """Return name and version of every package that constraints.txt pins for this Python."""
    lines = re.findall(r"^(\S+==[^\\\n]*)", LOCK.read_text(), re.MULTILINE)
    pins = [Requirement(line.strip()) for line in lines]
    assert pins
    return {
        normalised(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of constraints.txt, and the oldest pip."""
    folder = tmp_path_factory.mktemp("files")
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes")
    for requirements in (LOCK, OLDEST):
        run(*download, "--dest", folder, "-r", requirements)
    return folder


@pytest.fixture(scope="module")
def index(files: Path) -> Iterator[Index]:
    with Index(files) as index:
        yield index


@pytest.fixture(params=["oldest", "newest"])
def python(request: pytest.FixtureRequest, files: Path, tmp_path: Path) -> Path:
    """A Python whose virtual environments have the oldest pip, or that of constraints.txt."""
    version = "22.3" if request.param == "oldest" else locked()["pip"]
    (pip,) = files.glob(f"pip-{version}-*.whl")
    program = tmp_path / "python"
    program.write_text(
        f'#!/bin/sh\n"{sys.executable}" "$@" || exit 1\n'
        'if [ "$1 $2" = "-m venv" ]; then\n'
        f'  "$3/bin/python" -m pip --disable-pip-version-check install --quiet --no-index --no-deps "{pip}"\n'
        "fi\n"
    )
    program.chmod(0o755)
    return program


def test_the_installation_is_that_of_the_lock_whatever_was_published_later(
    python: Path, index: Index, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    copy_sources(tree)
    before = len(index.asked)
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    # Without bytecode an installation takes half the time.
    settings |= {"PIP_INDEX_URL": index.url, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_COMPILE": "1"}
    output = run(
        *("env", "-i", *(f"{name}={value}" for name, value in settings.items() if name != "MAKEFLAGS")),
        *("make", "-C", tree, "install", f"PYTHON={python}"),
    )
    assert not re.search("warning|notice", output, re.IGNORECASE), output
    assert len(index.asked) > before
    assert not any(NEWER in path for path in index.asked[before:])
    installed = dict(line.split() for line in run(tree / ".venv/bin/python", "-c", VERSIONS).splitlines())
    found = {normalised(name): version for name, version in installed.items()}
    assert {name: version for name, version in found.items() if name not in EDITABLE} == locked()
    assert found.keys() >= EDITABLE
    example = tree / "tests/reviews/pod-create-mutate.json"
    command = ("review", example, "--config", tree / "gateway/dev.yaml", "--phase", "mutate")
    assert '"allowed":true' in run(tree / ".venv/bin/admission-gateway", *command)

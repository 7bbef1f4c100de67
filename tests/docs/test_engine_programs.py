"""The READMEs of the workers of other engines, followed where the worker is built: ``make test-workers``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.reader import Reader, blocks
from tests.docs.scenes import checkout
from tests.kit import ROOT, free_port
from tests.kubewarden.guests import wapc_guest
from tests.languages.toolchains import PROGRAMS, unready

if TYPE_CHECKING:
    from tests.languages.toolchains import Language

PORTS = (":50061", ":50062", ":50063")
HOMES = {
    "GOPATH": "go",
    "GOCACHE": ".cache/go-build",
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
}
"""What the tools keep in the home of the user, who is another one in the test."""
MODULE = "ghcr.io/kubewarden/policies/pod-privileged:v1.0.5"


@pytest.mark.process
@pytest.mark.timeout(900)  # the build, of which most is kept
@pytest.mark.parametrize("program", PROGRAMS, ids=[each.name for each in PROGRAMS])
def test_a_worker_is_built_and_serves_the_policies_of_its_readme(tmp_path: Path, program: Language) -> None:
    if reason := unready(program):
        pytest.skip(reason)
    page = blocks(ROOT / program.folder / "README.md")
    kept = {name: os.environ.get(name, str(Path.home() / folder)) for name, folder in HOMES.items()}
    with Reader(tmp_path, kept, leaves_out=lambda _, command: command.startswith("kwctl ")) as reader:
        checkout(reader)
        reader.replaced = {port: f":{free_port()}" for port in PORTS}
        module = tmp_path / ".cache/kubewarden/store/registry" / MODULE
        module.parent.mkdir(parents=True)
        module.write_text(wapc_guest({"accepted": True}))
        reader.within_s = 800.0
        reader.follow(page, [block for block in page if block.language == "sh"])

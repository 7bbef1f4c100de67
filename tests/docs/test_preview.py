"""The page of ``preview``: its commands print what it says."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

PAGE = (DOCS / "preview.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

WRITTEN = ("--sarif", "--junit", "--code-quality", "--markdown", "--write")

FOLDERS = ("manifests", "config", "final")


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """A folder with the files of the page, and the sample configuration."""
    for language, block in BLOCKS:
        if language == "yaml" and block.startswith("# "):
            file = tmp_path / block.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block)
    (tmp_path / "config").mkdir()
    shutil.copy(ROOT / "gateway/dev.yaml", tmp_path / "config/gateway.yaml")
    return tmp_path


def test_the_commands_print_what_the_page_shows(reader: Path) -> None:
    seen = 0
    for (language, command), (following, output) in itertools.pairwise(BLOCKS):
        if (language, following) == ("sh", "text"):
            done = run(command, reader)
            assert done == output
            seen += 1
    assert seen


def test_the_commands_write_the_files_that_the_page_names(reader: Path) -> None:
    named = set()
    for language, command in BLOCKS:
        words = shlex.split(command) if language == "sh" and "|" not in command else []
        written = [file for option, file in itertools.pairwise(words) if option in WRITTEN]
        if written:
            call_command(*(reader / one if "." in one or one in FOLDERS else one for one in words[1:]))
            assert all((reader / file).exists() for file in written)
            named |= {*words} & {*WRITTEN}
    assert named == {*WRITTEN}


def run(command: str, folder: Path) -> str:
    """Return what the command prints with paths in *folder*."""
    words = [str(folder / one) if (folder / one).exists() else one for one in shlex.split(command)[1:]]
    return call_command(*words).stdout.replace(f"{folder}/", "")

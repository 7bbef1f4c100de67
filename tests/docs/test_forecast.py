"""The page of the forecast: its commands print what it says."""

from __future__ import annotations

import itertools
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / "forecast.md").read_text(), re.MULTILINE | re.DOTALL)
PATHS = ("manifests", "config", "preview.sarif", "preview.xml", "preview.md")
"""In the commands."""


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for language, block in BLOCKS:
        if language == "yaml":
            file = tmp_path / block.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block)
    return tmp_path


def test_the_commands_print_what_the_page_shows(reader: Path) -> None:
    seen = 0
    for (language, command), (following, output) in itertools.pairwise(BLOCKS):
        if language == "sh":
            words = shlex.split(command)[1:]
            done = call_command(*(reader / one if one in PATHS else one for one in words))
            assert done.returncode == int("\nerror: " in f"\n{done.stdout}{done.stderr}")
            printed = done.stdout.replace(f"{reader}/", "")
            if following == "text":
                assert printed == output
                seen += 1
            else:
                assert "config/devices.yaml:8:9: ValidatingAdmissionPolicy" in done.stdout + done.stderr
    assert seen == 2
    reports = {f"preview.{name}": (reader / f"preview.{name}").read_text() for name in ("sarif", "xml", "md")}
    assert all("1.38 removes DeviceClass" in text for text in reports.values())

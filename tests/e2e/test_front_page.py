"""The pictures of README show what commands and pages say now. ``make pictures`` makes them again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.chromium import CHROMIUM
from tests.docs.terminal import shown_lines, text_of
from tests.e2e.binaries import chart_tool
from tests.e2e.front_page import MOST_BYTES, PAGES, TERMINAL, Session, constant, session
from tests.kit import ROOT

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="chromium is not installed"
)


@pytest.fixture(scope="module")
def seen(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return session(cluster, tmp_path_factory.mktemp("front-page"))


def test_pictures_show_a_denial_its_reasons_and_its_page(seen: Session) -> None:
    drawn = "\n".join(shown_lines(TERMINAL.read_text()))
    assert constant(drawn) == constant("\n".join(seen.terminal))
    for file in PAGES.values():
        png = file.read_bytes()
        assert len(png) <= MOST_BYTES
        assert constant(text_of(png)) == constant(seen.page)


@pytest.mark.parametrize("program", ["helm", "kubectl"])
def test_an_api_server_accepts_what_the_readme_installs(cluster: Cluster, program: str) -> None:
    """As a dry run: tests of whole clusters install the gateway."""
    (command,) = re.findall(rf"`{program} (.+)`$", (ROOT / "README.md").read_text(), re.MULTILINE)
    tool = {"helm": chart_tool("helm"), "kubectl": cluster.binaries.kubectl}[program]
    kubeconfig = f"--kubeconfig={cluster.kubeconfig()}"
    dry_run = [str(tool), *shlex.split(command), kubeconfig, "--dry-run=server"]
    done = subprocess.run(dry_run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""An adopter follows the pages about kind and the first weeks, in a cluster that stands in for kind."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import ROOT
from tests.docs.reader import Block, Reader, blocks, commands
from tests.docs.runs import ADOPTERS, ADOPTING, chosen, left_out
from tests.docs.scenes import CHECKOUT
from tests.e2e.binaries import chart_tool
from tests.e2e.helm_release import Release
from tests.e2e.kubelet.network import missing
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")

NAME: Final = "admission-gateway"
SETTLES: Final = re.compile(r"--dry-run=server|status --cluster|rollout status|^kubectl get ")
"""Commands that change nothing: their output becomes that of the page within seconds of the change before."""


class Adopter(Reader):
    """A reader who looks again if something that changes nothing has not come into force yet."""

    def run(self, block: Block, shown: Block | None = None) -> None:
        if not SETTLES.search(block.content):
            super().run(block, shown)
            return
        failures: list[AssertionError] = []

        def is_as_shown() -> bool:
            try:
                super(Adopter, self).run(block, shown)
            except AssertionError as failure:
                failures.append(failure)
                return False
            return True

        try:
            eventually(is_as_shown)
        except AssertionError:
            raise failures[-1] from None


@pytest.fixture(scope="module")
def adopter(whole: Cluster, folder: Path) -> Iterator[Adopter]:
    environment = Release(whole, folder, NAME, NAME).environment()
    environment["PATH"] = os.pathsep.join([str(chart_tool("helm").parent), environment["PATH"]])
    for name in CHECKOUT:
        (folder / name).symlink_to(ROOT / name)
    with Adopter(folder, environment, leaves_out=left_out) as adopter:
        # The pages install in the order of weeks: this one is of the second week.
        adopter.replaced["REVISION"] = "3"
        yield adopter


@pytest.mark.parametrize("page", ADOPTERS)
def test_the_commands_of_a_page_print_what_it_shows(adopter: Adopter, page: str) -> None:
    found = blocks(ROOT / page)
    adopter.follow(found, chosen(found, ADOPTING))


def test_only_what_needs_docker_is_left_out() -> None:
    left = [
        command
        for page in ADOPTERS
        for block in blocks(ROOT / page)
        if block.language == "sh"
        for command in commands(block)
        if left_out(block, command)
    ]
    assert left == [
        "make install",
        "kind create cluster",
        "docker build -f deploy/Dockerfile -t admission-gateway:0.1.0 .",
        "kind load docker-image admission-gateway:0.1.0",
        "kind delete cluster",
    ]

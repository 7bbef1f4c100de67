"""The page about audits: its commands run, and print what it shows."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from gateway.tools.audit import metrics
from gateway.tools.audit.report import TITLES
from gateway.tools.audit.store import _COLUMNS
from tests.audit.kit import deployment, owned, pod
from tests.kit import ROOT, call_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.kit import World

PAGE = (ROOT / "docs" / "audit.md").read_text()
COMMANDS = [
    shlex.split(line.partition("#")[0])
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("admission-gateway audit") and "--continuous" not in line
]


def furnish(world: World) -> None:
    """Make the cluster of the page."""
    world.define_reports()
    world.policy("team-label")
    world.server.put("shop", team="shop")
    for number in range(3):
        world.add("shop", "pods", f"web-5d4f-{number}", **pod(**owned("ReplicaSet", "web-5d4f", "r", "5d4f")))
    world.add("shop", "pods", "debug", **pod())
    world.add("bank", "configmaps", "rates", data={"usd": "1"})
    world.add("bank", "pods", "good", **pod(labels={"team": "bank"}))
    world.add("shop", "deployments", "web", **deployment(app="web"))


def test_the_commands_of_the_page_run_and_the_first_prints_what_it_shows(
    world: World, tmp_path: Path
) -> None:
    furnish(world)
    environment = {"KUBECONFIG": str(world.server.kubeconfig(world.folder)), "PATH": "/bin"}
    printed = []
    for _, command, *arguments in COMMANDS:
        given = [str(tmp_path / one) if re.search(r"\.(jsonl|db|prom)$", one) else one for one in arguments]
        given = ["test" if one == "staging" else one for one in given]
        given = [str(world.config) if one == "config" else one for one in given]
        done = call_command(command, *given, environment=environment)
        assert done.returncode == 1, (done.stdout, done.stderr)
        printed.append(done.stdout.replace(str(world.config), "config"))
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert printed[0] == shown


def test_the_page_has_every_finding_and_every_member_of_a_line() -> None:
    for name in (*TITLES, *_COLUMNS):
        assert f"`{name}`" in PAGE, name


def test_the_page_has_every_metric() -> None:
    names = {name for name, _ in metrics._SINGLE.values()} | {"findings"}
    shown = re.findall(r"^\| (`(?:admission_gateway_audit|…)_.*?) \|", PAGE, re.MULTILINE)
    found = {name for cell in shown for name in re.findall(r"`(?:admission_gateway_audit|…)_(\w+)`", cell)}
    assert found == names

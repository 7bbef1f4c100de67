"""The page about the move from other engines: every command and output on it, as it stands."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.config.merge.load import load
from gateway.tools.cli import build_parser
from tests.docs.pages import DOCS, rows
from tests.importing.test_command import hold as hold_webhooks
from tests.importing.test_other_engines import constraint, hold, put, template
from tests.kit import call_command
from tests.kubernetes.server import ApiServer
from tests.migrating.kit import old_engine, pod
from tests.migrating.test_migrate import KYVERNO
from tests.replay.kit import recording, review

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Json = dict[str, Any]

PAGE = (DOCS / "migrate-engines.md").read_text()
COMMANDS = re.findall(r"^admission-gateway .*$", PAGE, re.MULTILINE)
INLINE = re.findall(r"`(admission-gateway [^`]*)`", PAGE)
PLAN, PROVE = COMMANDS
TEST = next(line for line in INLINE if line.startswith("admission-gateway test"))


def block(language: str) -> str:
    """The first block of *language*."""
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def arguments(command: str, folder: Path) -> list[str]:
    """The arguments of *command*, whose files are in *folder*."""
    files = ("migration", "policies", "recordings", "counterexamples")
    return [
        str(folder / word) if word.split("/")[0] in files else word
        for word in shlex.split(command.replace("--output", " --output "))[1:]
    ]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_a_cluster_is_planned_and_proved_by_the_commands_of_the_page(
    server: ApiServer, tmp_path: Path
) -> None:
    violations: list[str] = ["[a] no"]

    def answer(request: Json, _: str) -> Json:
        is_denied = request["object"]["metadata"]["name"] == "a" and violations
        status = {"status": {"code": 403, "message": violations[0]}} if is_denied else {}
        return {"allowed": not is_denied, **status}

    with old_engine(tmp_path, answer) as engine:
        (_, validating) = engine.registrations()
        validating["metadata"] = {
            "name": "gatekeeper-validating-webhook-configuration",
            "labels": {"gatekeeper.sh/system": "yes"},
        }
        url = validating["webhooks"][0]["clientConfig"]["url"].replace("/validate", "/v1/admit")
        validating["webhooks"][0]["clientConfig"]["url"] = url
        hold(server, "templates.gatekeeper.sh/v1", plurals={"constrainttemplates": [template("Good")]})
        hold(server, "constraints.gatekeeper.sh/v1beta1", plurals={"good": [constraint("Good", "a")]})
        hold_webhooks(server, validating)
        kubeconfig = {"KUBECONFIG": str(server.kubeconfig(tmp_path))}
        planned = call_command(*arguments(PLAN, tmp_path), environment=kubeconfig)
        assert planned.returncode == 0, planned.stderr
        out = tmp_path / "migration"
        for cells in rows(PAGE, 2):
            for path in re.findall(r"`([^`]+)`", cells[0]):
                if "/" in path or path.endswith(".yaml"):
                    assert (out / path).exists(), path
        denied = pod(1)
        denied["object"]["metadata"]["name"] = denied["name"] = "a"
        (tmp_path / "recordings").mkdir()
        recording(tmp_path / "recordings" / "a.jsonl.gz", review(pod(2)), review(denied))
        proved = call_command(*arguments(PROVE, tmp_path))
        assert proved.returncode == 0, proved.stdout
        assert proved.stdout.splitlines()[1] == "equal on 2 reviews; 0 not compared"
        violations[0] = "[a] never"
        differs = call_command(*arguments(PROVE, tmp_path))
        assert differs.returncode == 1
        tested = call_command(*arguments(TEST, tmp_path))
        assert (tested.returncode, tested.stdout.splitlines()[-1]) == (1, "1 case: 0 passed, 1 failed")
        assert load([out / "candidates"]).webhooks


def test_the_report_is_the_one_on_the_page(tmp_path: Path) -> None:
    put(tmp_path / "policies" / "a.yaml", *yaml.safe_load_all(block("yaml")))
    one = {**KYVERNO[0], "webhooks": KYVERNO[0]["webhooks"][:1]}
    put(tmp_path / "policies" / "webhooks.yaml", one)
    (command,) = (line for line in INLINE if "policies/" in line)
    done = call_command(*arguments(command, tmp_path))
    assert done.returncode == 1
    assert block("text") in done.stdout


@pytest.mark.parametrize("command", sorted({*COMMANDS, *INLINE}))
def test_the_program_accepts_every_command(command: str) -> None:
    build_parser().parse_args(shlex.split(command)[1:])

"""Previews for GitLab's Code Quality."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kit import call_command
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, pods

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process

REMOVED = "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n"


def test_findings_have_what_gitlab_reads(tmp_path: Path, start_worker: StartWorker) -> None:
    scripts = [
        pods({"warnings": ["w"]}),
        pods(deny("no", "spec.containers[0].image")),
        pods(deny("would")),
    ]
    scripts[2]["webhook"]["rollout"] = {"mode": "Audit"}
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=scripts)
    web = tmp_path / "web.yaml"
    web.write_text(f"{WEB}---\n{REMOVED}---\nnot: an object\n")
    file = tmp_path / "quality.json"
    arguments = (web, web, "--config", config, "--kubernetes", "1.38")
    done = call_command("preview", *arguments, "--code-quality", file)
    assert done.returncode == 2, done.stderr
    found = json.loads(file.read_bytes())
    # Equal findings of both have fingerprints of their own.
    assert len({one["fingerprint"] for one in found}) == len(found)
    severities = [one["severity"] for one in found]
    assert severities == sorted(severities, key=("major", "minor", "info").index)
    assert set(severities) == {"major", "minor", "info"}
    denied = next(one for one in found if one["check_name"] == "v/h1.v.test")
    line = WEB[: WEB.index("image: nginx")].count("\n") + 1
    assert denied["location"] == {"path": str(web), "lines": {"begin": line}}
    assert denied["description"].endswith(": spec.containers[0].image: no")
    assert {one["check_name"] for one in found} >= {"unreadable-manifest", "v/h0.v.test", "v/h2.v.test"}
    assert any("1.38" in one["description"] for one in found)


def test_without_findings_the_list_is_empty(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target)
    file = tmp_path / "quality.json"
    done = call_command("preview", "-", "--config", config, "--code-quality", file, stdin=CONFIG_MAP.encode())
    assert done.returncode == 0
    assert json.loads(file.read_bytes()) == []

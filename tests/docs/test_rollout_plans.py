"""The plan and the command on docs/rollout-plans.md: the command prints what the page shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.kit import ROOT, call_command
from tests.replay.kit import configure, recording
from tests.replay.test_plans import at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

PAGE = (ROOT / "docs/rollout-plans.md").read_text()


def blocks_of(title: str) -> dict[str, str]:
    """The blocks of the section *title*, by their language."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))


@pytest.mark.process
def test_the_command_prints_what_the_page_shows(tmp_path: Path, start_worker: StartWorker) -> None:
    blocks = blocks_of("What a plan would have done")
    first = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
    (hook,) = yaml.safe_load(first)["webhooks"]
    script = {"deny": {"code": 403, "message": "no"}, "when": "bad"}
    config = configure(
        tmp_path / "config",
        start_worker().target,
        "validate",
        script,
        rollout=hook["rollout"],
    )
    text = (config / "c.yaml").read_text()
    document = text.replace('"h0.v.test"', f'"{hook["name"]}"').replace('"name": "v"', '"name": "team"')
    (config / "c.yaml").write_text(document)
    (tmp_path / "recordings").mkdir()
    reviews = [at(hour) for hour in range(60)] + [at(36, "bad", "shop")]
    recording(tmp_path / "recordings/a.jsonl.gz", *reviews)
    words = [
        str(tmp_path / word) if word in ("config", "recordings") else word for word in blocks["sh"].split()
    ]
    done = call_command(*words[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("bad-1", "web-1") == blocks["text"]


def test_a_policy_has_the_plan_of_its_annotation(tmp_path: Path) -> None:
    blocks = blocks_of("Policies")
    (tmp_path / "policies.yaml").write_text(blocks["yaml"])
    (tmp_path / "recordings").mkdir()
    reviews = [at(hour) for hour in range(60)] + [at(36, "web", "shop")]
    for number, one in enumerate(reviews):
        labels = {} if number == 60 else {"team": "a"}
        one["request"]["object"]["metadata"]["labels"] = labels
    recording(tmp_path / "recordings/a.jsonl.gz", *reviews)
    words = [str(tmp_path / each) if (tmp_path / each).exists() else each for each in blocks["sh"].split()]
    done = call_command(*words[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout == blocks["text"]

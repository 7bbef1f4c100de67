"""The commands of docs/replay.md that write exceptions run as they are written, and make the file on it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.kit import ROOT, call_command
from tests.replay.kit import made_of, policy, recording, review

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SECTION = (ROOT / "docs/replay.md").read_text().partition("## Exceptions for what is denied")[2]
TEAM = {"metadata": {"name": "shop", "labels": {"team": "team-shop"}}}
NO_TAG = (
    "(object.kind == 'Pod' ? object.spec : dyn(object.spec).template.spec)"
    ".containers.all(c, c.image.contains(':'))"
)


def test_the_commands_run_and_write_the_file_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("config", "recordings"):
        (tmp_path / folder).mkdir()
    (tmp_path / "config/policy.yaml").write_text(policy("no-latest", NO_TAG))
    requests = [*made_of("web", "shop", "nginx"), *made_of("api", "shop", "nginx:1")]
    lines = [review(one, namespace=TEAM, time="2026-11-20T10:00:00Z") for one in requests]
    recording(tmp_path / "recordings/r.jsonl.gz", *lines)
    monkeypatch.setattr("gateway.tools.replay.run.now", lambda: 1_795_986_400.0)
    commands, shown = re.findall(r"^```\w+\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)[:2]
    for command in commands.splitlines():
        words = command.split()[1:]
        paths = [
            str(tmp_path / word) if (tmp_path / word.partition(".")[0]).exists() else word for word in words
        ]
        paths = [str(tmp_path / word) if word == "exceptions.yaml" else word for word in paths]
        done = call_command(*paths)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert shown in (tmp_path / "exceptions.yaml").read_text()

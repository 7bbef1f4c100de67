"""The guide takes one change through all steps: its commands run as they are written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import PATIENCE_S, ROOT, Process
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs/change-a-policy.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SERVE = "admission-gateway serve "


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def commands(block: str) -> list[str]:
    """Return the commands of *block*: its lines, and as one command each text that is written to a file."""
    return re.findall(r"^.* <<'END'\n(?:.*\n)*?END$|^.+$", block, re.MULTILINE)


class Reader:
    """A reader who follows the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gateway: Process | None = None
        self.port = ""
        self.answers: list[dict[str, Any]] = []

    def write(self, content: str) -> None:
        """Write the file that the first line of a block names."""
        first = content.partition("\n")[0]
        file = self.folder / first.removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        seen = 0 if self.gateway is None else len(self.gateway.log)
        unfinished = file.with_name(f".{file.name}")
        unfinished.write_text(content)
        unfinished.rename(file)
        if file.name == "gateway.yaml" and self.gateway is not None:
            self.gateway.expect("configuration reloaded", after=seen)

    def run(self, command: str) -> None:
        """Run one line of a terminal."""
        command, _, comment = command.partition("    #")
        if command.startswith("cd "):
            self.folder = self.folder / command[3:]
        elif command.startswith(SERVE):
            self.serve(command)
        elif command.startswith("curl "):
            self.answers.append(json.loads(self.output(command.replace("8443", self.port), 0)))
        else:
            self.output(command, 1 if comment else 0)

    def serve(self, command: str) -> None:
        listen = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
        program = Path(sys.executable).parent / "admission-gateway"
        self.gateway = Process(str(program), *command.split()[1:], *listen, cwd=self.folder)
        self.port = self.gateway.expect(r"serving .*?127\.0\.0\.1:(\d+)")[1]

    def output(self, command: str, status: int) -> str:
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == status, (command, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    if reader.gateway is not None:
        reader.gateway.stop()


def test_a_change_goes_through_all_steps(reader: Reader) -> None:
    for language, content in BLOCKS:
        if language == "sh":
            for line in commands(content):
                if "replay" in line:
                    recordings = reader.folder / "recordings"
                    eventually(lambda: any(file.stat().st_size for file in recordings.iterdir()))  # noqa: B023
                reader.run(line)
        else:
            reader.write(content)
    responses = [answer["response"] for answer in reader.answers]
    assert [response["allowed"] for response in responses] == [True] * 4
    warnings = [response.get("warnings", []) for response in responses]
    assert warnings[:2] == [[], []]
    assert warnings[2] == [
        "would be refused: require-team-label.team-label.example.com: the label cost-center is missing"
    ]
    assert warnings[3] == []

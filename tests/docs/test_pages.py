"""Properties of single pages."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import textwrap
from typing import TYPE_CHECKING

import pytest

from gateway.tools.cli import build_parser
from tests.docs.pages import DOCS, MARKDOWN, ROOT, section, sentences
from tests.docs.reader import blocks
from tests.docs.terminal import shown_lines
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

README = (ROOT / "README.md").read_text()


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_a_newcomer_needs_two_commands_and_one_line_of_curl() -> None:
    assert "\nmake run\n" in README
    assert "`make test`" in README
    (curl,) = re.findall(r"^curl .*[^\\]$", README, re.MULTILINE)
    assert shlex.split(curl)[-1] == "https://localhost:8443/mutate?timeout=10s"


def test_the_command_of_the_readme_prints_what_its_picture_shows() -> None:
    (command,) = re.findall(r"^(\.venv/bin/.+)$", README, re.MULTILINE)
    done = subprocess.run(shlex.split(command), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = shown_lines((DOCS / "images/terminal.svg").read_text())
    first = lines.index(f"$ {command.removeprefix('.venv/bin/')}") + 1
    assert lines[first : lines.index("", first)] == done.stdout.splitlines()


def test_the_readme_names_every_version_of_kubernetes_that_is_tested() -> None:
    versions = {path.name for path in (ROOT / "tests" / "e2e" / "kubernetes").iterdir()}
    assert set(re.findall(r"1\.\d+(?= and|: real)", README)) == versions


BLOCKS = [block for page in MARKDOWN for block in blocks(page)]


def test_no_command_needs_a_shell_in_a_container_or_races_with_another_one() -> None:
    """Images have no shell. A port that is forwarded in the background is not open at the next command."""
    wrong = [
        (block.page, line)
        for block in BLOCKS
        if block.language == "sh"
        for line in block.content.splitlines()
        if re.search(r" -- (ba|da)?sh\b", line) or re.search(r"port-forward .*&|&\s*sleep\b", line)
    ]
    assert not wrong


def command_lines() -> list[tuple[str, str]]:
    """Return the page and the arguments of every call of the program in a block of commands."""
    call = re.compile(r"(?:^|[|;&] *|-- )admission-gateway ((?:'[^']*'|[^|;&<>#'\n])*)", re.MULTILINE)
    return [
        (block.page, arguments.replace("HOST:PORT", "127.0.0.1:9090"))
        for block in BLOCKS
        if block.language == "sh"
        for arguments in call.findall(block.content.replace("\\\n", ""))
    ]


OF_TOOLS = {"go", "java", "python", "rust", "ts"}
"""Languages with formatters, whose examples are also in READMEs of SDKs."""


def test_lines_of_code_fit_a_page() -> None:
    """Outputs are as commands print them, URLs stay whole, and a made page follows its source."""
    wide = [
        f"{block}: {line}"
        for block in BLOCKS
        if block.language not in {"", "text", *OF_TOOLS} and "/catalogue/" not in block.page
        for line in block.content.splitlines()
        if len(line) > 100 and "://" not in line
    ]
    assert wide == []


def test_no_sentence_is_too_long_to_read_once() -> None:
    """Some 30 words are enough; the limit is one that no enumeration of a table reaches."""
    long = [
        f"{page.relative_to(ROOT)}: {sentence}"
        for page in MARKDOWN
        for sentence in sentences(page.read_text())
        if len(sentence.split()) > 50
    ]
    assert long == []


@pytest.mark.parametrize(("page", "arguments"), command_lines())
def test_the_program_accepts_the_commands_of_the_pages(page: str, arguments: str) -> None:
    """They parse, also those that test_commands.py does not run."""
    words = shlex.split(arguments)
    if words != ["--version"]:
        build_parser().parse_args(words)


def test_blocks_of_json_are_json() -> None:
    for block in BLOCKS:
        if block.language == "json":
            assert json.loads(block.content), str(block)


def test_the_glossary_has_few_terms() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(terms) < 15
    assert terms == sorted(set(terms), key=terms.index)


@pytest.mark.parametrize(
    ("tab", "readme"),
    [
        ("Python", "workers/python/README.md"),
        ("Go", "workers/go/README.md"),
        ("TypeScript", "workers/typescript/README.md"),
        ("Rust", "workers/rust/README.md"),
        ("Java", "workers/java/README.md"),
    ],
)
def test_a_policy_is_written_as_in_the_sdk_s_readme(tab: str, readme: str) -> None:
    """The examples of these READMEs are compiled and run by tests."""
    page = (DOCS / "write-a-policy.md").read_text()
    block = re.search(rf'^=== "{tab}"\n\n    ```\w+\n(.*?)^    ```$', page, re.MULTILINE | re.DOTALL)
    assert block
    assert textwrap.dedent(block[1]).strip() in textwrap.dedent(dedented(readme))


def test_a_policy_in_cel_decides_as_in_the_other_languages(tmp_path: Path) -> None:
    page = (DOCS / "write-a-policy.md").read_text()
    block = re.search(r'^=== "CEL"\n\n    ```yaml\n(.*?)^    ```$', page, re.MULTILINE | re.DOTALL)
    assert block
    (tmp_path / "policies.yaml").write_text(textwrap.dedent(block[1]))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "a"}]},
    }
    found = {}
    for team in (None, "shop"):
        labels = {} if team is None else {"labels": {"team": team}}
        (tmp_path / "pod.json").write_text(json.dumps({**pod, "metadata": {"name": "web", **labels}}))
        arguments = ("--config", tmp_path / "policies.yaml", "--json")
        done = call_command("review", tmp_path / "pod.json", *arguments)
        found[team] = json.loads(done.stdout)["response"]
    assert found[None]["allowed"] is False
    assert found[None]["status"]["message"].endswith("every workload names its team: add the label")
    (change,) = json.loads(base64.b64decode(found["shop"]["patch"]))
    assert change == {"op": "add", "path": "/spec/containers/0/imagePullPolicy", "value": "Always"}


def test_the_example_of_policies_on_templates_decides_as_it_says(tmp_path: Path) -> None:
    page = section((DOCS / "policies.md").read_text(), "Policies on the Pods of workloads")
    policies, deployment = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "policies.yaml").write_text(policies)
    (tmp_path / "deployment.yaml").write_text(deployment)
    done = call_command("review", tmp_path / "deployment.yaml", "--config", tmp_path / "policies.yaml")
    shown = re.search(r"^\$ .*\n(.*)$", page, re.MULTILINE)
    assert shown
    assert done.stdout.splitlines() == [shown[1]]


def dedented(readme: str) -> str:
    """Return the text of a README with each fenced block moved to the margin."""
    text = (ROOT / readme).read_text()
    if "java" in readme:
        return re.sub(r"^ {4}", "", text, flags=re.MULTILINE)
    return text


def test_every_command_has_a_section() -> None:
    (commands,) = (one.choices for one in build_parser()._actions if one.dest == "command")
    assert commands
    sections = re.findall(r"^## (\w+)$", (DOCS / "commands.md").read_text(), re.MULTILINE)
    assert sorted(commands) == sorted(sections)

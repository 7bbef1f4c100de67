"""Comments of previews: bounded, and without an effect of untrusted texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.preview.markdown import MARKER, MAX_BYTES, code
from tests.kit import call_command
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, pods

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker


def comment(folder: Path, *arguments: object, status: int = 1, stdin: str | None = None) -> str:
    file = folder / "preview.md"
    done = call_command(
        "preview", *arguments, "--markdown", file, stdin=None if stdin is None else stdin.encode()
    )
    assert done.returncode == status, done.stdout + done.stderr
    found = file.read_text()
    assert found.startswith(f"{MARKER}\n")
    assert len(found.encode()) < MAX_BYTES
    return found


def outside_code(text: str) -> str:
    """*text* without its blocks and spans of code, as CommonMark finds them."""
    blocks = re.sub(r"^ *(`{3,})\w*\n.*?^ *\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", blocks)


@given(st.text("`a \n\\<>@[]()!#*_|~-\x00é", max_size=40))
def test_any_text_is_one_span_of_code(text: str) -> None:
    found = code(text)
    assert "\n" not in found
    assert outside_code(f"x {found} y") == "x  y"


@pytest.mark.process
def test_the_comment_has_all_findings_and_changes(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        mutate=[pods({"label": "team"})],
        validate=[pods(deny("no", "spec.containers[0].image")), {"warnings": ["w"]}],
    )
    found = comment(tmp_path, "-", "--config", config, stdin=f"{WEB}---\n- 1\n", status=2)
    assert "### Admission preview: not all could be read" in found
    assert "1 object in 1 file, and 2 that controllers create: 2 allowed, 1 denied, 0 undecided." in found
    assert re.search(
        r"- `stdin:16:11`: `Pod default/web-\S+` from `ReplicaSet \S+` denied by `v/h0.v.test`  \n  `no`",
        found,
    )
    assert "#### Warnings" in found
    assert "#### Changes by webhooks" in found
    assert "  +    team: set\n" in found


@pytest.mark.process
def test_untrusted_texts_have_no_effect(tmp_path: Path, start_worker: StartWorker) -> None:
    evil = (
        "@team ```\n</details><script>x</script> [a](javascript:b) ![c](d) #12 www.a.example `` ` " + MARKER
    )
    patch = [{"op": "add", "path": "/data", "value": {"k": f"```\n~~~\n````` {evil}"}}]
    config = configure(
        tmp_path / "c.yaml", start_worker().target, mutate=[{"patch": patch}], validate=[deny(evil)]
    )
    found = outside_code(comment(tmp_path, "-", "--config", config, stdin=CONFIG_MAP).removeprefix(MARKER))
    for text in ("@", "<", "](", "#12", "www", "`", MARKER):
        assert text not in found, text


@pytest.mark.process
def test_a_comment_is_bounded_and_says_what_is_missing(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        mutate=[{"label": "team"}],
        validate=[deny("é😀" * 1000), {"warnings": ["w"]}],
    )
    found = comment(tmp_path, "-", "--config", config, stdin="---\n".join([CONFIG_MAP] * 100))
    assert re.search(r"\n\d+ more findings: see the output of the job\.\n", found)
    assert "#### Changes by webhooks" in found

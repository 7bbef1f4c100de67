"""The reader of the documentation finds what is wrong on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.reader import Block, Reader, commands, matches

if TYPE_CHECKING:
    from pathlib import Path


def block(content: str, language: str = "sh") -> Block:
    return Block("page.md", 1, language, content)


@pytest.mark.parametrize(
    ("shown", "printed", "is_equal"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a\nb", "a\n", False),
        ("a … c", "a b b c", True),
        ("a … c", "a b\nc", False),
        ("…\nc", "a\nb\nc", True),
        ("a\n…", "a\nb\nc", True),
        ("a\n…\nc", "a\nc", True),
        ("at 2026-11-20T10:00:00Z", "at 2027-01-01T00:00:00.123Z", True),
        ("uid 705ab4f5-6393-11e8-b7cc-42010a800002", "uid a648a7dd-0683-9eb9-05b6-e6e307d4bedc", True),
        ("pinned to 389fdff1a7ed", "pinned to b81fad574888", True),
        ("gateway-5c74b888b7-7lfxs   1/1   4m8s", "gateway-6598fdb84b-6drst     1/1     3s", True),
        ("gateway-5c74b888b7-7lfxs   1/1   4m8s", "gateway-6598fdb84b-6drst   0/1   4m8s", False),
        ("1 of 2", "2 of 2", False),
    ],
)
def test_an_output_is_compared(shown: str, printed: str, *, is_equal: bool) -> None:
    assert matches(shown, printed) is is_equal


def test_a_command_over_several_lines_is_one() -> None:
    script = "a \\\n  b\nfor x in 1 2; do\n  echo $x\ndone\nf() { g;\n  h; }\ncat <<'END'\none\nEND\nlast\n"
    assert commands(block(script)) == [
        "a \\\n  b",
        "for x in 1 2; do\n  echo $x\ndone",
        "f() { g;\n  h; }",
        "cat <<'END'\none\nEND",
        "last",
    ]


def test_files_functions_and_the_folder_stay_for_the_next_block(tmp_path: Path) -> None:
    page = [
        block("# in/a.yaml\na: 1\n---\n# in/b.yaml\nb: 2\n", "yaml"),
        block("show() { cat $1; }\nNAME=b.yaml\n"),
        block("cd in\n"),
        block("show $NAME\nshow a.yaml\n"),
        block("# in/b.yaml\nb: 2\n# in/a.yaml\na: 1\n", "text"),
    ]
    with Reader(tmp_path) as reader:
        reader.follow(page, page)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("false", None),
        ("false    # exit status 1 is another's", "something"),
        ("admission-gateway check --config none", None),
        ("echo one", "two"),
        ("echo '{}'", '{"a": 1}'),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, command: str, shown: str | None) -> None:
    output = None if shown is None else block(shown, "json" if shown.startswith("{") else "text")
    with Reader(tmp_path) as reader, pytest.raises(AssertionError):
        reader.run(block(command), output)

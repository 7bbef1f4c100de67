"""Completion of ``kubectl admission``, as kubectl asks for it."""

from __future__ import annotations

import pytest

from gateway.tools.kubectl.complete import completions


@pytest.mark.parametrize(
    ("words", "found", "directive"),
    [
        ([""], ["why", "decisions", "status", "preview"], 4),
        (["st"], ["status"], 4),
        (["status", "--int"], ["--interval"], 4),
        (["status", "-o", ""], ["json"], 4),
        (["decisions", "--outcome", "Dr"], ["DryRunRefused"], 4),
        (["why", "-f", "web"], [], 0),
        (["preview", "web"], [], 0),
        (["why", "pod/w"], [], 4),
        (["unknown", ""], ["why", "decisions", "status", "preview"], 4),
    ],
)
def test_words_are_completed(words: list[str], found: list[str], directive: int) -> None:
    assert completions(words) == (found, directive)

"""The detection of changed files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.file_changes import FIRST_RETRY_CHECKS, MAX_RETRY_CHECKS, MAX_UNSTABLE_CHECKS, FileChanges


class Files:
    """Files with the fingerprint *state*."""

    def __init__(self) -> None:
        self.state = 0
        self.changes = FileChanges(lambda: self.state)

    def looks_until_due(self, most: int = 1000) -> int:
        """Return how many looks it takes until they are to be read."""
        return next(look for look in range(1, most) if self.changes.is_due())


def test_unchanged_files_are_not_read_again() -> None:
    files = Files()
    assert not any(files.changes.is_due() for _ in range(1000))


def test_changed_files_are_read_when_two_checks_found_them_equal() -> None:
    files = Files()
    files.state = 1
    assert files.looks_until_due() == 2
    files.changes.accepted(1)
    assert not any(files.changes.is_due() for _ in range(100))


def test_a_change_that_is_undone_is_no_change() -> None:
    files = Files()
    files.state = 1
    assert not files.changes.is_due()
    files.state = 0
    assert not any(files.changes.is_due() for _ in range(100))


def test_files_that_never_stop_changing_are_read() -> None:
    files = Files()
    due = []
    for look in range(1, MAX_UNSTABLE_CHECKS + 1):
        files.state = look
        due.append(files.changes.is_due())
    assert due == [False] * (MAX_UNSTABLE_CHECKS - 1) + [True]


def test_a_change_while_files_are_read_is_another_change() -> None:
    files = Files()
    files.state = 1
    assert files.looks_until_due() == 2
    state = files.changes.state()
    files.state = 2
    files.changes.accepted(state)
    assert files.looks_until_due() == 2


def test_refused_files_are_retried_with_back_off_and_reported_once() -> None:
    files = Files()
    files.state = 1
    files.looks_until_due()
    news, pauses = [], []
    for _ in range(8):
        news.append(files.changes.refused(1, "no such file"))
        pauses.append(files.looks_until_due())
    assert news == [True] + [False] * 7
    assert pauses == [2, 4, 8, 16, 32, 64, 64, 64]
    assert (pauses[0], pauses[-1]) == (FIRST_RETRY_CHECKS, MAX_RETRY_CHECKS)
    assert files.changes.refused(1, "something else"), "another reason is news"
    files.changes.accepted(1)
    assert not any(files.changes.is_due() for _ in range(200))


def test_refused_files_that_changed_are_read_soon() -> None:
    files = Files()
    for _ in range(6):
        files.changes.refused(0, "wrong")
    files.state = 1
    assert files.looks_until_due() == 2
    assert files.changes.refused(1, "wrong"), "the same of other files is news"
    assert files.looks_until_due() == FIRST_RETRY_CHECKS


@given(st.lists(st.integers(0, 2), max_size=60), st.booleans())
def test_the_files_are_eventually_in_force(states: list[int], is_usable: bool) -> None:
    files = Files()
    in_force = 0

    def look() -> None:
        nonlocal in_force
        if files.changes.is_due():
            if is_usable or files.state != 2:
                in_force = files.state
                files.changes.accepted(files.state)
            else:
                files.changes.refused(files.state, "it is a 2")

    for files.state in states:
        look()
    before = in_force
    for _ in range(MAX_RETRY_CHECKS + 2):
        look()
    if is_usable or files.state != 2:
        assert in_force == files.state
        assert not files.changes.is_refused
    else:
        assert in_force == before
        assert files.changes.is_refused


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_cause_outside_the_files_is_detected_without_a_change(refusals: int) -> None:
    files = Files()
    for _ in range(refusals):
        files.changes.refused(0, "the key is missing")
    assert files.looks_until_due() == FIRST_RETRY_CHECKS * 2 ** (refusals - 1)

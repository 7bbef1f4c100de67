"""Webhooks behind the gateway have the outcomes that they had in the API server when it was recorded."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e import cases, denial_cases, operation_cases
from tests.e2e.compare import assert_equal
from tests.e2e.webhook_subjects import WEBHOOK_FILES
from tests.recorded.recording import path_of, read, written
from tests.recorded.webhooks import outcomes_in_memory, recorded_outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.compare import Case
    from tests.e2e.outcome import Outcome
    from tests.recorded.recording import Recording


@cache
def recorded(path: Path) -> Recording:
    return read(path, WEBHOOK_FILES[path].sent)


@cache
def in_memory(path: Path, over_https: int) -> dict[str, list[Outcome]]:
    return outcomes_in_memory(WEBHOOK_FILES[path], recorded(path), over_https)


def both(case: Case) -> tuple[Outcome, Outcome]:
    """Return the outcomes of the only operation of *case* without a gateway, and behind one."""
    path = path_of("webhooks")
    (operation,), (behind,) = recorded(path).operations[case.name], in_memory(path, 0)[case.name]
    return recorded_outcome(operation), behind


OTHERWISE: Final = (cases.DEFAULTS, cases.LONG_WARNING)
"""Cases in which the gateway differs, each with a test of its own."""
TRANSPORTS: Final = {0: "workers", 1: "https", 2: "mixed"}
CASES: Final = [
    pytest.param(
        path, over_https, case, number, id=f"{TRANSPORTS[over_https]}-{case.name}-{number}-{each.title()}"
    )
    for path, subject in WEBHOOK_FILES.items()
    for over_https in subject.over_https
    for case in subject.cases
    if case not in OTHERWISE
    for number, each in enumerate(case.operations)
]


@pytest.mark.parametrize(("path", "over_https", "case", "number"), CASES)
def test_an_operation_has_the_outcome_without_a_gateway(
    path: Path, over_https: int, case: Case, number: int
) -> None:
    operations = recorded(path).operations.get(case.name)
    assert operations is not None, f"not recorded: python -m tests.e2e.record {path}"
    assert_equal(case, (recorded_outcome(operations[number]), in_memory(path, over_https)[case.name][number]))


def test_only_the_api_server_fills_in_defaults_between_mutating_webhooks() -> None:
    """A gateway has no schemas; the result after the mutating phase is the same."""
    direct, behind = both(cases.DEFAULTS)
    key = "between.defaults.test/saw"
    shown = [copy.deepcopy(outcome.annotations[key][0]["object"]) for outcome in (direct, behind)]
    added = [document["spec"]["containers"].pop() for document in shown]
    assert shown[0] == shown[1]
    assert added[0].items() > added[1].items() == cases.BARE.items()
    final = [copy.deepcopy(outcome.stored) for outcome in (direct, behind)]
    assert [document["spec"]["containers"].pop() for document in final] == added
    assert final[0] == final[1]
    rest = [
        replace(
            one,
            stored=None,
            annotations={name: each for name, each in one.annotations.items() if name != key},
        )
        for one in (direct, behind)
    ]
    assert_equal(cases.DEFAULTS, (rest[0], rest[1]))


def test_a_long_warning_is_truncated_as_by_the_api_server() -> None:
    direct, behind = both(cases.LONG_WARNING)
    assert direct.warnings == tuple(cases.LONG_WARNING.hooks[0].script["warnings"])
    assert behind.warnings == tuple(warning[:256] for warning in direct.warnings)
    assert_equal(cases.LONG_WARNING, (replace(direct, warnings=()), replace(behind, warnings=())))


def test_every_operation_reaches_the_policies() -> None:
    """Checks the comparison: two outcomes without a call would be equal too."""
    never_sent = {22, 27}  # a missing object is neither deleted nor replaced
    path, case = path_of("webhooks"), operation_cases.EVERY_OPERATION
    pairs = zip(recorded(path).operations[case.name], in_memory(path, 0)[case.name], strict=True)
    for number, (operation, behind) in enumerate(pairs):
        for outcome in (recorded_outcome(operation), behind):
            assert ("0 all.operations.test", False) in outcome.calls or number in never_sent
            assert "every.operations.test/saw" in outcome.annotations or number in {*never_sent, 4}


def test_the_api_server_sends_retry_after_whatever_the_code() -> None:
    names = [one.document["metadata"]["name"] for one in denial_cases.CASE.operations]
    sent = {}
    for name, operation in zip(names, recorded(path_of("denials")).operations["denials"], strict=True):
        refusal = recorded_outcome(operation).refusal
        assert refusal is not None, name
        sent[name] = refusal.rest["Retry-After"]
    assert {name: seconds for name, seconds in sent.items() if name.startswith("retry")} == {
        "retry-503": "1",
        "retry-422": "2",
        "retry-negative": None,
        "retry-longest": "2147483647",
    }


@pytest.mark.parametrize("path", WEBHOOK_FILES, ids=lambda path: path.stem)
def test_a_file_says_what_is_read_from_it(path: Path) -> None:
    assert written(recorded(path), WEBHOOK_FILES[path].sent) == path.read_text()

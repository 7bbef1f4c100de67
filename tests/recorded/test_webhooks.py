"""Webhooks behind the gateway have the outcomes that they had in the API server when it was recorded."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e import denial_cases
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


TRANSPORTS: Final = {0: "workers", 1: "https", 2: "mixed"}
CASES: Final = [
    pytest.param(
        path, over_https, case, number, id=f"{TRANSPORTS[over_https]}-{case.name}-{number}-{each.title()}"
    )
    for path, subject in WEBHOOK_FILES.items()
    for over_https in subject.over_https
    for case in subject.cases
    for number, each in enumerate(case.operations)
]


@pytest.mark.parametrize(("path", "over_https", "case", "number"), CASES)
def test_an_operation_has_the_outcome_without_a_gateway(
    path: Path, over_https: int, case: Case, number: int
) -> None:
    operations = recorded(path).operations.get(case.name)
    assert operations is not None, f"not recorded: python -m tests.e2e.record {path}"
    assert_equal(case, (recorded_outcome(operations[number]), in_memory(path, over_https)[case.name][number]))


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

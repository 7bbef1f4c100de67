"""Policies decide in the gateway as they did in the API server whose answers are recorded."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.controls import CONTROLS
from tests.e2e.objects import GROUP
from tests.e2e.policy_subjects import FILES, OLDEST
from tests.recorded.engine import RecordedEngine, first_failure
from tests.recorded.recording import path_of, read, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.policy_comparison import Scenario
    from tests.recorded.recording import Recording

SLOW: Final = ("cost-of-a-loop",)


@cache
def recorded(path: Path) -> Recording:
    return read(path, FILES[path].sent)


CASES: Final = [
    pytest.param(
        path,
        scenario,
        id=f"{path.parent.name}-{path.stem}-{scenario.name}",
        marks=pytest.mark.slow if scenario.name in SLOW else (),
    )
    for path, subject in FILES.items()
    for scenario in subject.scenarios
    if scenario.name in recorded(path).operations or not scenario.needs_new_functions
]
"""Old API servers do not know the functions of some scenarios."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], RecordedEngine]]:
    """The engine with all policies of a recording."""
    with ExitStack() as stack:

        @cache
        def of(path: Path) -> RecordedEngine:
            found, subject = recorded(path), FILES[path]
            known = [each for each in subject.scenarios if each.name in found.operations]
            documents = replace(subject, scenarios=tuple(known)).documents(subject.name)
            folder = tmp_path_factory.mktemp(subject.name)
            made = RecordedEngine(folder, documents, found.surroundings, found.authorize)
            stack.callback(made.close)
            return made

        yield of


@pytest.mark.parametrize(("path", "scenario"), CASES)
def test_a_policy_decides_as_in_the_api_server(
    engine: Callable[[Path], RecordedEngine], path: Path, scenario: Scenario
) -> None:
    operations = recorded(path).operations.get(scenario.name)
    assert operations is not None, f"not recorded: python -m tests.e2e.record {path}"
    for operation, sent in zip(operations, scenario.operations, strict=True):
        found = engine(path).answer(operation)
        if path.parent.name == OLDEST:
            found = first_failure(found)
        assert found == operation.answer, (scenario.documents[0]["spec"], sent)


def test_each_control_allows_and_denies() -> None:
    assert len(CONTROLS) >= 100
    for control in CONTROLS:
        seen = [one.answer for one in recorded(path_of("controls")).operations[control.name]]
        good, bad = seen[: len(control.good)], seen[len(control.good) :]
        assert {each["status"] for each in good} <= {201}, control.name
        assert all("denied request" in each.get("message", "") for each in bad), control.name


def test_the_cases_have_every_outcome() -> None:
    answers = [
        one.answer
        for path in FILES
        for operations in recorded(path).operations.values()
        for one in operations
    ]
    assert {201, 200, 403, 413, 422} <= {each["status"] for each in answers}
    assert any("warnings" in each for each in answers)
    assert any("annotations" in each for each in answers)
    assert any("object" in each for each in answers)
    (described, *_) = recorded(path_of("validating-policies")).operations["described-widgets"]
    assert GROUP in str(described.answer["warnings"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_says_what_is_read_from_it(path: Path) -> None:
    assert written(recorded(path), FILES[path].sent) == path.read_text()

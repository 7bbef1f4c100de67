"""Policies that may move: the gateway writes what the user wrote, and decides by that as the API server did.

In ``tests/e2e/test_placement.py`` an API server has these objects, and answers as recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.mutating_cases import DIFFERENT
from tests.e2e.placed_policies import movable, moved, placed
from tests.e2e.policy_subjects import CONTROLS, FILES, MUTATING, OLDEST, VALIDATING
from tests.recorded.engine import RecordedEngine, first_failure
from tests.recorded.recording import NEWEST, read, text_of
from tests.recorded.test_policies import SLOW

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.e2e.policy_comparison import Scenario


Json = dict[str, Any]

MOVED: Final = {VALIDATING.name: 140, CONTROLS.name: 120, MUTATING.name: 45}
"""Scenarios of each subject that may move, at least."""
METADATA: Final = frozenset(("name", "labels", "annotations"))


def specs_of(documents: Sequence[Json]) -> dict[tuple[str, str], str]:
    return {(one["kind"], one["metadata"]["name"]): text_of(one["spec"]) for one in documents}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_moved_is_what_was_written_and_has_the_recorded_outcomes(path: Path, tmp_path: Path) -> None:
    subject, version = FILES[path], path.parent.name
    recording = read(path, subject.sent)
    found = {}
    for wanted, written in moved(subject, version):
        # An API server that refuses a policy cannot evaluate it.
        assert wanted.name in recording.operations
        assert specs_of(written.documents) == specs_of(wanted.documents)
        assert {frozenset(one["metadata"]) for one in written.documents} == {METADATA}
        if wanted.name not in SLOW:
            found[wanted.name] = written.documents
    assert len(found) >= MOVED[subject.name]
    documents = [one for each in found.values() for one in each]
    kinds = {one["spec"].get("paramKind", {}).get("kind") for one in documents}
    documents += [one for one in subject.params_in(subject.name) if one["kind"] in kinds]
    engine = RecordedEngine(tmp_path, documents, recording.surroundings, recording.authorize)
    try:
        for name in found:
            for operation in recording.operations[name]:
                answer = engine.answer(operation)
                assert (first_failure(answer) if version == OLDEST else answer) == operation.answer, name
    finally:
        engine.close()


@pytest.mark.parametrize("scenario", [one for one, *_ in DIFFERENT], ids=lambda one: one.name)
def test_a_policy_with_another_outcome_there_stays(scenario: Scenario) -> None:
    assert placed(movable(scenario), NEWEST) is None

"""ValidatingAdmissionPolicies: the API server answers as recorded, and so does a gateway in its place."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e import policy_requests, policy_scenarios
from tests.e2e.policy_comparison import Comparison
from tests.e2e.policy_subjects import CONTROLS, VALIDATING
from tests.e2e.record import answer_of, compare, furnished, record, stored, version_of
from tests.recorded.engine import first_failure

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.policy_subjects import Subject

PART: Final = replace(
    VALIDATING,
    scenarios=(
        *VALIDATING.scenarios[::8],
        *policy_scenarios.WITH_PARAMS,
        *policy_scenarios.MATCHING,
        *policy_requests.SCENARIOS,
    ),
)
"""All that a registration has a part in, and some of the rest."""


@pytest.mark.parametrize("subject", [VALIDATING, CONTROLS], ids=lambda each: each.name)
def test_the_api_server_answers_as_recorded(
    cluster: Cluster, widgets: None, subject: Subject, tmp_path: Path
) -> None:
    compare(subject, record(cluster, subject, tmp_path))


def test_a_gateway_in_place_of_the_policies_answers_as_recorded(
    cluster: Cluster, widgets: None, tmp_path: Path
) -> None:
    recording = stored(PART, version_of(cluster))
    known = tuple({one.name: one for one in PART.scenarios if one.name in recording.operations}.values())
    subject = replace(PART, scenarios=known)
    with ExitStack() as stack:
        stack.enter_context(furnished(cluster, subject))
        comparison = Comparison(cluster, subject.name, known, subject.canary)
        found = comparison.behind(tmp_path, subject.documents(subject.name))
    is_old = version_of(cluster) == "1.33"
    for (name, number), seen in found.items():
        answer = answer_of(seen)
        recorded = recording.operations[name][number].answer
        assert (first_failure(answer) if is_old else answer) == recorded, (name, number)

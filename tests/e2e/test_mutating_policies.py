"""MutatingAdmissionPolicies: the API server answers as recorded, and so does a gateway in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e import mutating_cases
from tests.e2e.policy_comparison import Comparison
from tests.e2e.policy_subjects import MUTATING
from tests.e2e.record import compare, differences, furnished, record, stored
from tests.recorded.recording import NEWEST

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

DIFFERENT: Final = tuple(scenario for scenario, _, _ in mutating_cases.DIFFERENT)
PART: Final = (
    *MUTATING.scenarios[::6],
    *(each for each in MUTATING.scenarios if each.name.startswith("custom")),
)


@pytest.fixture
def _has_policies(cluster: Cluster) -> None:
    if cluster.binaries.version < "v1.36":
        pytest.skip("the API server has no MutatingAdmissionPolicies")


@pytest.mark.usefixtures("_has_policies")
def test_the_api_server_answers_as_recorded(cluster: Cluster, widgets: None, tmp_path: Path) -> None:
    compare(MUTATING, record(cluster, MUTATING, tmp_path))


@pytest.mark.usefixtures("_has_policies")
def test_the_api_server_has_the_documented_differences(cluster: Cluster, widgets: None) -> None:
    with furnished(cluster, MUTATING):
        found = Comparison(cluster, MUTATING.name, DIFFERENT, MUTATING.canary).natively()
    assert {name: seen.status for (name, _), seen in found.items()} == {
        scenario.name: native for scenario, native, _ in mutating_cases.DIFFERENT
    }


def test_a_gateway_in_place_of_the_policies_answers_as_recorded(
    cluster: Cluster, widgets: None, tmp_path: Path
) -> None:
    """Also before a version of the API server that has such policies."""
    recording = stored(MUTATING, NEWEST)
    scenarios = tuple({one.name: one for one in (*PART, *DIFFERENT)}.values())
    subject = replace(MUTATING, scenarios=scenarios)
    with furnished(cluster, subject):
        comparison = Comparison(cluster, subject.name, scenarios, subject.canary, with_objects=True)
        found = comparison.behind(tmp_path, subject.documents(subject.name), NEWEST)
    for scenario, _, behind in mutating_cases.DIFFERENT:
        assert found.pop((scenario.name, 0)).status == behind, scenario.name
    assert differences(found, recording.operations, NEWEST) == []

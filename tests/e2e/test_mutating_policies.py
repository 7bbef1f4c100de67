"""MutatingAdmissionPolicies change objects in the gateway as they do in the API server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e import mutating_cases, mutating_scenarios
from tests.e2e.objects import within
from tests.e2e.policy_comparison import Comparison, existing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster
    from tests.e2e.policy_comparison import Outcomes, Scenario

SCENARIOS: Final = (*mutating_cases.SCENARIOS, *mutating_scenarios.SCENARIOS)
DIFFERENT: Final = tuple(scenario for scenario, _, _ in mutating_cases.DIFFERENT)
PARAMS: Final = (*mutating_cases.PARAMS, *mutating_scenarios.PARAMS)
KNOWN_OF: Final = "1.37"
KNOWN: dict[tuple[str, int], Any] = {}
"""The outcomes in an API server of this version, to which those behind a gateway at any one are compared."""


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster, widgets: None) -> Iterator[tuple[str, str]]:
    """Two namespaces with the parameters."""
    names = []
    with ExitStack() as stack:
        for _ in range(2):
            made = cluster.api.create(
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "mutating-"}},
            )
            name = made.document["metadata"]["name"]
            placed = [(_path(each).replace("{namespace}", name), each) for each in PARAMS]
            stack.enter_context(existing(cluster, placed))
            names.append(name)
        yield names[0], names[1]


@pytest.fixture(scope="module")
def outcomes(
    cluster: Cluster,
    namespaces: tuple[str, str],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Outcomes, Outcomes]:
    """The outcomes in the API server, and behind the gateway."""
    natively, behind = (
        Comparison(
            cluster,
            name,
            (*SCENARIOS, *DIFFERENT),
            [_in(name, each) for each in PARAMS],
            mutating_cases.CANARY,
        )
        for name in namespaces
    )
    if cluster.binaries.version >= "v1.36":
        KNOWN.update(natively.natively())
    return KNOWN, behind.behind(tmp_path_factory.mktemp("mutating"), KNOWN_OF)


def _path(param: dict[str, Any]) -> str:
    return within({"ConfigMap": "configmaps", "Widget": "widgets"}[param["kind"]], param["apiVersion"])


def _in(namespace: str, document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_policy_changes_objects_in_the_gateway_as_in_the_api_server(
    outcomes: tuple[Outcomes, Outcomes], scenario: Scenario
) -> None:
    natively, behind = outcomes
    if not natively:
        pytest.skip("no API server of 1.37 is under test")
    for number, operation in enumerate(scenario.operations):
        key = scenario.name, number
        assert behind[key] == natively[key], (scenario.documents[0]["spec"], operation)


@pytest.mark.parametrize(
    ("scenario", "native", "behind"), mutating_cases.DIFFERENT, ids=lambda each: getattr(each, "name", "")
)
def test_documented_differences_are_the_only_ones(
    outcomes: tuple[Outcomes, Outcomes], scenario: Scenario, native: int, behind: int
) -> None:
    key = scenario.name, 0
    natively, gateway = outcomes
    assert gateway[key].status == behind
    assert not natively or natively[key].status == native


def test_the_cases_have_every_outcome(outcomes: tuple[Outcomes, Outcomes]) -> None:
    _, behind = outcomes
    assert {201, 403} <= {seen.status for seen in behind.values()}

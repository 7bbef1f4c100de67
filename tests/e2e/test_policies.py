"""ValidatingAdmissionPolicies decide in the gateway as they do in the API server."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e import policy_cases, policy_requests, policy_scenarios
from tests.e2e.controls import CONTROLS
from tests.e2e.objects import GROUP, within
from tests.e2e.policy_comparison import Comparison, existing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster
    from tests.e2e.policy_comparison import Outcomes, Scenario, Seen

SCENARIOS: Final = (
    *policy_cases.CASES,
    *policy_scenarios.SCENARIOS,
    *policy_requests.SCENARIOS,
    *(control.scenario() for control in CONTROLS),
)
PARAMS: Final = (*policy_cases.PARAMS, *policy_scenarios.PARAMS)


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster, widgets: None) -> Iterator[tuple[str, str]]:
    """Two namespaces with the parameters and with what the scenarios change."""
    names = []
    with ExitStack() as stack:
        stack.enter_context(existing(cluster, policy_requests.RIGHTS))
        for _ in range(2):
            made = cluster.api.create(
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "policies-"}},
            )
            name = made.document["metadata"]["name"]
            objects = (*policy_requests.EXISTING, *map(_with_path, PARAMS))
            placed = [(path.replace("{namespace}", name), document) for path, document in objects]
            stack.enter_context(existing(cluster, placed))
            names.append(name)
        yield names[0], names[1]


def _with_path(param: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    resource = {"ConfigMap": "configmaps", "Widget": "widgets"}[param["kind"]]
    return within(resource, param["apiVersion"]), param


@pytest.fixture(scope="module")
def outcomes(
    cluster: Cluster, namespaces: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Outcomes, Outcomes]:
    """The outcomes in the API server, and behind the gateway."""
    natively, behind = (
        Comparison(cluster, name, SCENARIOS, [_in(name, each) for each in PARAMS]) for name in namespaces
    )
    return natively.natively(), behind.behind(tmp_path_factory.mktemp("policies"))


def _in(namespace: str, document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_policy_decides_in_the_gateway_as_in_the_api_server(
    outcomes: tuple[Outcomes, Outcomes], scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    natively, behind = outcomes
    is_old = request.node.callspec.params["cluster"] == "1.33"
    if is_old:
        # It publishes only the first failure of an expression.
        behind = {key: _with_first_failure(seen) for key, seen in behind.items()}
    if (scenario.name, 0) not in natively:
        pytest.skip("this version of the API server does not know one of the functions")
    for number, operation in enumerate(scenario.operations):
        key = scenario.name, number
        assert behind[key] == natively[key], (scenario.documents[0]["spec"], operation)


def _with_first_failure(seen: Seen) -> Seen:
    failures = seen.annotations.get("validation_failure")
    if not isinstance(failures, list):
        return seen
    return replace(seen, annotations={**seen.annotations, "validation_failure": failures[:1]})


def test_each_control_allows_and_denies(outcomes: tuple[Outcomes, Outcomes]) -> None:
    natively, _ = outcomes
    assert len(CONTROLS) >= 100
    for control in CONTROLS:
        seen = [natively[control.name, number] for number in range(len(control.good) + len(control.bad))]
        good, bad = seen[: len(control.good)], seen[len(control.good) :]
        for document, each in zip(control.good, good, strict=True):
            assert each.status == 201, (control.name, document, each)
        for document, each in zip(control.bad, bad, strict=True):
            assert each.refusal is not None, (control.name, document)
            assert "denied request" in each.refusal[1], (control.name, document, each)


def test_the_cases_have_every_outcome(outcomes: tuple[Outcomes, Outcomes]) -> None:
    natively, _ = outcomes
    assert {201, 200, 403, 413, 422} <= {seen.status for seen in natively.values()}
    assert any(seen.warnings for seen in natively.values())
    assert any(seen.annotations for seen in natively.values())
    assert GROUP in str(natively["described-widgets", 0].warnings)

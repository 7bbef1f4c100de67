"""The same policies directly and behind the gateway have the same effect on every operation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.cases import DEFAULTS, LONG_WARNING, POLICIES, SIDECAR
from tests.e2e.compare import Case, assert_equal, run
from tests.e2e.operation_cases import OPERATIONS, VERSIONED
from tests.e2e.outcome import Outcome
from tests.e2e.record import compare, version_of
from tests.e2e.webhook_recording import record_webhooks
from tests.e2e.webhook_subjects import WEBHOOK_FILES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.webhook_subjects import WebhookSubject

CASES: Final = [*POLICIES, *OPERATIONS]
Results = dict[str, list[tuple[Outcome, Outcome]]]


@pytest.fixture(scope="module")
def results(cluster: Cluster, widgets: None, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(cluster, tmp_path_factory.mktemp("differential"), [*CASES, DEFAULTS, LONG_WARNING])


def parameters(cases: list[Case]) -> list[Any]:
    return [
        pytest.param(case, number, id=f"{case.name}-{number}-{operation.title()}")
        for case in cases
        for number, operation in enumerate(case.operations)
    ]


@pytest.mark.parametrize(("case", "number"), parameters(CASES))
def test_an_operation_has_the_outcome_without_a_gateway(results: Results, case: Case, number: int) -> None:
    assert_equal(case, results[case.name][number])


@pytest.mark.parametrize("subject", WEBHOOK_FILES.values(), ids=lambda subject: subject.name)
def test_the_api_server_answers_as_recorded(
    cluster: Cluster, widgets: None, subject: WebhookSubject, tmp_path: Path
) -> None:
    compare(subject, record_webhooks(cluster, subject, tmp_path, version_of(cluster)))


@pytest.fixture(scope="module")
def versioned(cluster: Cluster, widgets: None, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(cluster, tmp_path_factory.mktemp("versioned"), VERSIONED)


@pytest.mark.parametrize(("case", "number"), parameters(VERSIONED))
def test_each_webhook_gets_the_version_that_its_rules_name(
    versioned: Results, case: Case, number: int
) -> None:
    assert_equal(case, versioned[case.name][number])


def test_only_the_api_server_fills_in_defaults_between_mutating_webhooks(results: Results) -> None:
    """A gateway has no schemas; the result after the mutating phase is the same."""
    ((direct, behind),) = results["defaults"]
    shown = [outcome.annotations["between.defaults.test/saw"][0]["object"] for outcome in (direct, behind)]
    added = [document["spec"]["containers"].pop() for document in shown]
    assert shown[0] == shown[1]
    assert added[0].items() > added[1].items() == SIDECAR.items()
    rest = [dict(outcome.annotations) for outcome in (direct, behind)]
    for found in rest:
        del found["between.defaults.test/saw"]
    assert_equal(DEFAULTS, (replace(direct, annotations=rest[0]), replace(behind, annotations=rest[1])))


def test_a_long_warning_is_truncated_as_by_the_api_server(
    results: Results,
) -> None:
    ((direct, behind),) = results["long-warning"]
    assert direct.warnings == tuple(LONG_WARNING.hooks[0].script["warnings"])
    assert behind.warnings == tuple(warning[:256] for warning in direct.warnings)
    assert_equal(LONG_WARNING, (replace(direct, warnings=()), replace(behind, warnings=())))


def test_every_operation_of_the_differential_reaches_the_policies(results: Results) -> None:
    """Checks the comparison: two set-ups that call no policy would be equal too."""
    never_sent = {22, 27}  # a missing object is neither deleted nor replaced
    for number, (direct, behind) in enumerate(results["operations"]):
        for outcome in (direct, behind):
            assert ("0 all.operations.test", False) in outcome.calls or number in never_sent
            assert "every.operations.test/saw" in outcome.annotations or number in {*never_sent, 4}

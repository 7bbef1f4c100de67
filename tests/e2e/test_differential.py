"""The same webhooks directly and behind the gateway have the same effect.

These are some of the cases that `tests/recorded` runs in memory. Every other webhook is called over HTTPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.cases import BUILDING, REFUSALS, SEVERAL_REFUSE, WORDS
from tests.e2e.compare import Case, assert_equal, run
from tests.e2e.operation_cases import EVERY_OPERATION, VERSIONED
from tests.e2e.outcome import Outcome
from tests.e2e.record import compare, version_of
from tests.e2e.setups import OverHttps
from tests.e2e.webhook_recording import record_webhooks
from tests.e2e.webhook_subjects import WEBHOOK_FILES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.webhook_subjects import WebhookSubject

CASES: Final = [BUILDING, REFUSALS, SEVERAL_REFUSE, WORDS, EVERY_OPERATION]
Results = dict[str, list[tuple[Outcome, Outcome]]]


@pytest.fixture(scope="module")
def results(cluster: Cluster, widgets: None, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(cluster, tmp_path_factory.mktemp("differential"), CASES, OverHttps)


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

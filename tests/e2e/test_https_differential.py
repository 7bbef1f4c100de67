"""HTTPS webhooks have the same effect when registered directly and behind the gateway.

Behind the gateway every other one is a policy of a worker, so that both kinds are mixed in each case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cases import POLICIES
from tests.e2e.compare import assert_equal, run
from tests.e2e.setups import OverHttps
from tests.e2e.test_differential import parameters

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster
    from tests.e2e.compare import Case
    from tests.e2e.test_differential import Results


@pytest.fixture(scope="module")
def results(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(cluster, tmp_path_factory.mktemp("https"), POLICIES, OverHttps)


@pytest.mark.parametrize(("case", "number"), parameters(POLICIES))
def test_an_operation_has_the_outcome_without_a_gateway(results: Results, case: Case, number: int) -> None:
    assert_equal(case, results[case.name][number])


def test_webhooks_were_called_and_changed_objects(results: Results) -> None:
    behind = [outcome for pairs in results.values() for _, outcome in pairs]
    assert any(has_changed for outcome in behind for _, has_changed in outcome.calls)

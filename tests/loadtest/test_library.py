"""The cost of each policy of the library: every policy has a review that it answers without an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.policies import definitions
from loadtest import library, library_reviews

if TYPE_CHECKING:
    import pytest


def test_every_policy_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ROUNDS", 1)
    monkeypatch.setattr(library, "ROUND_S", 0.0001)
    monkeypatch.setenv("KUBECONFIG", "")
    parse, *rows = library.measured()
    assert not parse[0]
    assert [name for name, *_ in rows] == [each.name for each in definitions()]
    assert all(kind and float(cost) > 0 for _, kind, cost in rows)


def test_requests_are_of_policies_that_there_are() -> None:
    assert library_reviews.requests().keys() <= {each.name for each in definitions()}

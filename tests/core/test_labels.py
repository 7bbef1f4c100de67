"""Facts of Kubernetes label selectors."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pure.core.labels import EVERYTHING, Operator, Requirement, Selector


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", {"a", "b"}, {"team": "a"}, True),
        ("In", {"a", "b"}, {"team": "c"}, False),
        ("In", {"a", "b"}, {}, False),
        ("In", {""}, {"team": ""}, True),
        ("In", {""}, {}, False),
        ("NotIn", {"a", "b"}, {"team": "a"}, False),
        ("NotIn", {"a", "b"}, {"team": "c"}, True),
        ("NotIn", {"a", "b"}, {}, True),
        ("Exists", set(), {"team": ""}, True),
        ("Exists", set(), {"tier": "a"}, False),
        ("DoesNotExist", set(), {"team": "a"}, False),
        ("DoesNotExist", set(), {"tier": "a"}, True),
    ],
)
def test_operators(operator: Operator, values: set[str], labels: dict[str, str], expected: bool) -> None:
    assert Requirement("team", operator, frozenset(values)).matches(labels) is expected


@pytest.mark.parametrize("value", [None, 1, True, ["a"], {"a": "a"}])
@pytest.mark.parametrize(
    ("operator", "expected"), [("In", False), ("NotIn", True), ("Exists", False), ("DoesNotExist", True)]
)
def test_a_label_that_is_not_a_string_counts_as_absent(
    value: Any, operator: Operator, expected: bool
) -> None:
    assert Requirement("team", operator, frozenset({"a"})).matches({"team": value}) is expected


def test_requirements_are_anded() -> None:
    selector = Selector((Requirement("team", "Exists"), Requirement("tier", "In", frozenset({"web"}))))
    assert selector.matches({"team": "a", "tier": "web"})
    assert not selector.matches({"team": "a", "tier": "db"})
    assert not selector.matches({"tier": "web"})
    assert not selector.is_empty


def test_the_empty_selector_matches_everything() -> None:
    assert EVERYTHING.is_empty
    assert EVERYTHING.matches({})
    assert EVERYTHING.matches({"team": "a"})

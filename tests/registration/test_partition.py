"""Webhooks that can share an entry, and the effect on the order."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.core.overlap import overlap
from gateway.tools.registration.partition import Relations, assign_rounds, cells, version_preference
from gateway.tools.registration.union import union
from tests.core.build import webhook
from tests.registration.kit import configured, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.core.webhook import Rule, Webhook


def of(*rules: Rule, **members: str) -> Webhook:
    return webhook(rules=rules, **members)


@pytest.mark.parametrize(
    ("one", "other", "is_conflict"),
    [
        ([rule()], [rule()], False),
        ([rule(versions="v1 v2")], [rule(versions="v2 v1")], False),
        ([rule(versions="v1")], [rule(versions="v1beta1")], True),
        ([rule(versions="v1")], [rule(versions="v1 v1beta1")], True),
        ([rule(versions="*")], [rule(versions="v1")], True),
        ([rule(versions="*")], [rule(versions="*")], False),
        ([rule("pods")], [rule("nodes", versions="v2")], False),
        ([rule("pods")], [rule("*", versions="v2")], True),
        ([rule("pods/status")], [rule("*", versions="v2")], False),
        ([rule("pods/*")], [rule("*", versions="v2")], True),
        ([rule("*/status")], [rule("pods/*", versions="v2")], True),
        ([rule(operations="CREATE")], [rule(operations="UPDATE", versions="v2")], False),
        ([rule(operations="CREATE")], [rule(operations="*", versions="v2")], True),
        ([rule(groups="apps")], [rule(groups="batch", versions="v2")], False),
        ([rule(groups="apps")], [rule(groups="*", versions="v2")], True),
        ([rule(scope="Cluster")], [rule(scope="Namespaced", versions="v2")], False),
        ([rule(scope="Cluster")], [rule(scope="*", versions="v2")], True),
        # Preferred one after the other, or alike: that decides what a request in a third version becomes.
        ([rule(versions="v1"), rule(versions="v2")], [rule(versions="v2"), rule(versions="v1")], True),
        ([rule(versions="v1"), rule(versions="v2")], [rule(versions="v1 v2")], True),
        ([rule(versions="v1"), rule(versions="v2")], [rule(versions="v1"), rule(versions="v1 v2")], False),
        ([rule(versions="v1"), rule("nodes", "v2")], [rule("nodes", "v2"), rule(versions="v1")], False),
    ],
)
def test_webhooks_conflict_where_they_want_other_versions_of_the_same(
    one: list[Rule], other: list[Rule], is_conflict: bool
) -> None:
    hooks = [of(*one), of(*other)]
    assert Relations(hooks).conflict(0, 1) is is_conflict
    assert Relations(hooks[::-1]).conflict(1, 0) is is_conflict


@pytest.mark.parametrize(
    ("policies", "is_conflict"),
    [(("Exact", "Exact"), False), (("Exact", "Equivalent"), True), (("Equivalent", "Exact"), True)],
)
def test_exact_webhooks_do_not_mind_each_other(policies: tuple[str, str], is_conflict: bool) -> None:
    one, other = policies
    hooks = [of(rule(versions="v1"), match_policy=one), of(rule(versions="v2"), match_policy=other)]
    assert Relations(hooks).conflict(0, 1) is is_conflict


@pytest.mark.parametrize(
    ("rules", "rounds"),
    [
        # Each item is a webhook: its resource, and the version in its rule.
        ("a1 a1 a1", [1, 1, 1]),
        ("a1 a2 a2 a1 a1", [1, 1, 1, 2, 2]),
        ("a2 a1", [1, 2]),
        ("a1 a2 a1", [1, 1, 2]),
        ("a1 b2 a1", [1, 1, 1]),
        ("a1 a2 b1 b2", [1, 1, 1, 1]),
        ("a1 a2 b2 b1 a1", [1, 1, 1, 2, 2]),
        ("", []),
    ],
)
def test_rounds(rules: str, rounds: list[int]) -> None:
    hooks = [of(rule(text[0], f"v{text[1]}")) for text in rules.split()]
    assert assign_rounds([f"v{text[1]}" for text in rules.split()], Relations(hooks)) == rounds


def test_preference_is_what_each_rule_adds() -> None:
    rules = [rule(versions="v1"), rule(versions="v1 v2"), rule(versions="v2"), rule(versions="*"), rule()]
    assert version_preference(rules) == (frozenset({"v1"}), frozenset({"v2"}), frozenset({"*"}))


def test_cells_are_the_sets_of_rules_that_some_request_meets() -> None:
    assert cells([rule("pods"), rule("*"), rule("nodes/status"), rule("pods", scope="Cluster")]) == {
        (0, 1),
        (0, 1, 3),
        (1,),
        (2,),
    }
    assert cells([]) == set()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (rule("pods"), rule("pods"), True),
        (rule("pods"), rule("pods", versions="v2"), True),
        (rule("pods"), rule("*/status"), False),
        (rule("pods/*"), rule("*/status"), True),
        (rule("pods", groups="*"), rule("pods", groups="apps"), True),
        (rule("pods", groups="batch apps"), rule("pods", groups="apps core"), True),
        (rule("pods", scope="Cluster"), rule("pods", scope="Namespaced"), False),
        (rule("pods", operations="CREATE UPDATE"), rule("pods", operations="DELETE"), False),
    ],
)
def test_overlap(one: Rule, other: Rule, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected
    assert (set(cells([one, other])) >= {(0, 1)}) is expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([rule(), rule()], [rule()]),
        ([rule("pods pods")], [rule("pods")]),
        ([rule("pods pods/status pods/*")], [rule("pods/*")]),
        ([rule("pods *")], [rule("*")]),
        ([rule("*/status deployments/status pods")], [rule("*/status pods")]),
        ([rule("pods"), rule("nodes")], [rule("pods nodes")]),
        ([rule("pods"), rule("*")], [rule("*")]),
        ([rule("*"), rule("pods")], [rule("*")]),
        ([rule(operations="CREATE"), rule(operations="UPDATE")], [rule(operations="CREATE UPDATE")]),
        ([rule(operations="CREATE"), rule(operations="*")], [rule(operations="*")]),
        ([rule(groups="apps"), rule(groups="batch")], [rule(groups="apps batch")]),
        ([rule(scope="Cluster"), rule(scope="Namespaced")], [rule(scope="*")]),
        ([rule("pods", operations="CREATE"), rule("nodes", operations="UPDATE")], None),
        ([rule("pods", scope="Cluster"), rule("nodes")], None),
        # The rules prefer the versions in this order.
        ([rule(versions="v1"), rule(versions="v2")], None),
        ([rule(versions="v1 v2"), rule(versions="v2")], [rule(versions="v1 v2")]),
        ([rule(versions="v2"), rule(versions="v1 v2")], None),
        # What comes third cannot join the first: it would overtake the second.
        ([rule("pods"), rule("nodes", "v2"), rule("nodes")], None),
        ([rule("pods"), rule("nodes", "v2"), rule("secrets")], [rule("pods secrets"), rule("nodes", "v2")]),
    ],
)
def test_union(rules: list[Rule], expected: list[Rule] | None) -> None:
    assert union(rules, is_exact=False) == (rules if expected is None else expected)


def test_versions_of_exact_webhooks_are_joined_whatever_their_order() -> None:
    rules = [rule("pods"), rule("nodes", "v2"), rule("nodes"), rule("pods", "v2")]
    assert union(rules, is_exact=True) == [rule("pods nodes", "v1 v2")]


@pytest.mark.parametrize(
    "webhooks",
    [
        lambda count: [of(rule(f"r{n}", groups=f"g{n % 7}")) for n in range(count)],
        lambda count: [of(rule(f"r{n}")) for n in range(count)],
        lambda count: [of(rule(f"r{n}") if n % 2 else rule("*", "*", "*", "*")) for n in range(count)],
    ],
)
def test_planning_is_at_most_quadratic(
    webhooks: Callable[[int], list[Webhook]],
) -> None:
    assert work_for(webhooks(160)) < 5 * work_for(webhooks(80))


def work_for(webhooks: list[Webhook]) -> int:
    """The number of calls and other steps for the relations of *webhooks* and the union of their rules."""
    config = configured(*(replace(one, name=f"w{n}.x.test") for n, one in enumerate(webhooks)))
    steps = 0

    def step(*_: object) -> Callable[..., Any]:
        nonlocal steps
        steps += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        found = Relations(config.mutating)
        assign_rounds(["v1"] * len(webhooks), found)
        union([one for hook in webhooks for one in hook.rules], is_exact=True)
    finally:
        sys.settrace(before)
    return steps

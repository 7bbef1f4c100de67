"""Groups of recent decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.decisions.recent import brief, detailed_page_json
from gateway.pure.core.verdict import Denied
from gateway.server.pages.groups import MESSAGES, groups_of, merge, together
from gateway.server.pages.process import _decisions
from gateway.server.pages.render import render, singles
from tests.core.build import request, webhook
from tests.decisions.kit import answer
from tests.pages.kit import documents

if TYPE_CHECKING:
    from gateway.observe.decisions.recent import RecentDecision


def denial(second: float, namespace: str = "shop", message: str = "no") -> RecentDecision:
    """Return a denial at *second*, whose uid is *second*."""
    review = request(uid=f"{second:g}", namespace=namespace)
    found = answer({"a.policies.test": Denied(403, message=message)}, (), review)
    return brief(found, 0.1, second, "d", secret_names=False)


def part(*found: RecentDecision, lost: int = 0) -> dict[str, Any]:
    return {**_decisions(found[::-1], 100), "lost": [("policies", "a.policies.test", "shop", lost)]}


def test_a_burst_is_one_group_and_hides_no_other() -> None:
    one = part(denial(1, "bakery"), *(denial(second) for second in range(2, 400)), lost=7)
    other = part(denial(5000), lost=3)
    burst, single = merge([one, other])
    assert burst["hasSeveralMessages"] is False
    assert (burst["namespace"], burst["count"], burst["leftOut"]) == ("shop", 399, 10)
    assert (burst["first"], burst["last"]) == ("1970-01-01T00:00:02.000Z", "1970-01-01T01:23:20.000Z")
    assert burst["latest"]["uid"] == "5000"
    assert burst["message"] == "a.policies.test: no"
    assert (single["namespace"], single["count"], single["leftOut"]) == ("bakery", 1, 0)


def test_messages_that_all_differ_do_not_make_a_group_each() -> None:
    denials = (denial(0, "bakery"), *(denial(n, message=f"no {n}") for n in range(1, 50)))
    found = merge([part(*denials, lost=9)] * 2)
    assert [one["message"] for one in found[:MESSAGES]] == [f"a.policies.test: no {n}" for n in (49, 48, 47)]
    several = found[MESSAGES]
    assert [one["leftOut"] for one in found] == [18, 0, 0, 0, 0]
    assert (several["hasSeveralMessages"], several["count"], several["message"]) == (True, 92, "")
    assert [one["namespace"] for one in found[MESSAGES:]] == ["shop", "bakery"]


def test_what_modes_let_pass_is_a_group_of_its_own_on_every_page() -> None:
    found = answer(
        {
            "a.policies.test": Denied(403, message="no team"),
            "b.policies.test": Denied(403, message="no owner"),
        },
        (webhook("a.policies.test"), webhook("b.policies.test")),
        request(uid="warned", namespace="shop"),
        modes={0: "Warn", 1: "Audit"},
    )
    passed = brief(answer(None, (), request(uid="passed", namespace="shop")), 0.1, 2, "d", secret_names=False)
    warned = [brief(found, 0.1, second, "d", secret_names=False) for second in (3, 4)]
    of_process = part(passed, *warned, lost=3)
    group, other = merge([of_process])
    assert (group["webhook"], group["outcome"], group["message"]) == ("a.policies.test", "Allowed", "no team")
    assert (group["count"], group["leftOut"], other["webhook"], other["count"]) == (2, 3, "", 1)
    assert singles(group) == {
        "namespace": "shop",
        "view": "single",
        "webhook": "policies/a.policies.test",
        "outcome": "Denied",
    }
    listed = {**documents()["decisions"], "groups": [group, other], "decisions": of_process["decisions"]}
    verdict = '<span class="tag warned">◇ allowed, would be refused</span>'
    for query in ({}, {"view": "single"}):
        html = render("decisions", listed, query, root="./", json_link="?").decode()
        assert html.count(verdict) == (2 if query else 1)
        assert html.count('<span class="tag good">✓ allowed</span>') == 1
        assert (
            "a.policies.test (mode Warn), b.policies.test (mode Audit)" if query else "(mode Warn)"
        ) in html
        assert "no team" in html
    one = {**documents()["decision"], "decision": detailed_page_json(warned[0])}
    html = render("decision", one, {}, root="../", json_link="?").decode()
    assert f"{verdict} by a.policies.test (mode Warn), b.policies.test (mode Audit)" in html
    assert '<dd class="warned">◇ allowed, would be refused ' in html


@given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from("ab"), st.sampled_from("uvwxyz")), max_size=30))
def test_each_decision_is_in_one_group_and_groups_stay_when_they_are_joined_again(
    given_ones: list[tuple[float, str, str]],
) -> None:
    groups = groups_of([denial(*one) for one in given_ones])
    assert sum(one.number for one in groups) == len(given_ones)
    assert [one.last for one in groups] == sorted((one.last for one in groups), reverse=True)
    assert together(groups) == groups

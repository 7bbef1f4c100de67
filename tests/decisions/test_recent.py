"""The recent decisions of a process: which are kept, with which details, and what finds them."""

from __future__ import annotations

import asyncio
import base64
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.observe.decisions import bursts, recent
from gateway.observe.decisions.bursts import Bursts
from gateway.observe.decisions.document import names_with_modes, not_enforced
from gateway.observe.decisions.recent import DecisionFilter, RecentDecisions, detailed_page_json, page_json
from gateway.observe.decisions.record import is_noteworthy, record_of
from gateway.observe.decisions.ring import Ring
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.verdict import Allowed, Denied, Failed, FailureReason
from tests.core.build import POD, add, labelled, patch, request, webhook
from tests.core.build import document as request_document
from tests.decisions.kit import answer
from tests.waiting import until

if TYPE_CHECKING:
    from gateway.observe.decisions.record import DecisionRecord
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.verdict import Verdict

DENIED: Verdict = Denied(403, message="no")
FAILED: Verdict = Failed(FailureReason.DEADLINE, "too slow")


def kept(*answers: Answer, pause_s: float = 1.0, **options: Any) -> RecentDecisions:
    """Return the recent decisions after *answers*, which are *pause_s* seconds apart."""
    times = count(1000.0, pause_s)

    async def observe() -> RecentDecisions:
        decisions = RecentDecisions(clock=lambda: next(times), **options)
        for one in answers:
            decisions.offer(one, 0.25, "d1", is_noteworthy=is_noteworthy(one))
        await until(lambda: not decisions.pending, "the details of all decisions")
        return decisions

    return asyncio.run(observe())


def test_a_denial_is_found_by_its_uid_with_its_details() -> None:
    hooks = [webhook("a.b.c"), webhook("b.b.c"), webhook("c.b.c", object_selector=labelled("team", "x"))]
    verdicts: dict[str, Verdict] = {"a.b.c": patch(add("/spec/a", 1)), "b.b.c": DENIED}
    decisions = kept(answer(verdicts, hooks))
    found = decisions.read().find("u-1")
    assert found is not None
    assert decisions.read().find("u-2") is None
    shown = detailed_page_json(found)
    assert shown["outcome"] == "Denied"
    assert shown["webhook"] == "b.b.c"
    assert shown["user"] == "ann"
    assert shown["message"] == "b.b.c: no"
    assert shown["object"] == POD
    assert shown["changes"] == [{"webhook": 0, "patch": [add("/spec/a", 1)]}]
    assert shown["finalObject"]["spec"] == {"replicas": 1, "a": 1}
    (unmatched,) = shown["notCalled"]
    assert unmatched["webhook"] == "c.b.c"
    assert "objectSelector" in unmatched["reason"]
    assert page_json(found).keys() < shown.keys()


def shadow(uid: str, name: str, at: float) -> DecisionRecord:
    """Return the record of a webhook in the mode Shadow that would have refused the request *uid*."""
    found = answer({name: DENIED}, (webhook(name),), request(uid=uid, namespace="shop"), modes={0: "Warn"})
    record = record_of(found, 0.1, at, "d1")
    return record._replace(webhooks=tuple(one._replace(mode="Shadow") for one in record.webhooks))


def test_what_the_mode_shadow_would_have_refused_is_part_of_the_decision_about_the_request() -> None:
    # Their entry says that they are called after the answer.
    hooks = [
        webhook("a.b.c"),
        *(webhook(name, object_selector=labelled("x", "y")) for name in ("s.b.c", "u.b.c")),
    ]
    decisions = kept(answer({"a.b.c": Allowed()}, hooks, request(uid="kept", namespace="shop")))
    for uid in ("kept", "gone"):
        for name in ("s.b.c", "t.b.c"):
            decisions.keep_shadowed(shadow(uid, name, 1.0))
    found = decisions.read().find("kept")
    assert found is not None
    kept_one = detailed_page_json(found)
    assert [one["webhook"] for one in kept_one["webhooks"]] == ["a.b.c", "s.b.c", "t.b.c"]
    assert (kept_one["object"], kept_one["allowed"], kept_one["outcome"]) == (POD, True, "Allowed")
    assert [one["webhook"] for one in kept_one["notCalled"]] == ["u.b.c"]
    listed = decisions.read().recent(DecisionFilter(webhook="t.b.c", outcome="Denied"))
    assert [one.record.uid for one in listed] == ["kept", "gone"]
    alone = detailed_page_json(listed[1])
    assert names_with_modes(not_enforced(alone)) == "s.b.c (mode Shadow), t.b.c (mode Shadow)"
    assert (alone["object"], alone["allowed"]) == (None, True)
    assert "in the mode Shadow" in alone["objectNote"]
    assert [len(one.record.webhooks) for one in decisions.read().recent()] == [3, 2], (
        "reading changes nothing"
    )


def test_the_parameters_of_a_call_are_shown_without_secrets_also_in_a_list() -> None:
    denied = answer({"a.policies.test": DENIED})
    call = denied.evaluation.outcomes[0].call
    assert call is not None
    call.parameters = b'{"replicas": 3, "password": "hunter2hunter2"}'
    (found,) = kept(denied).read().recent()
    for shown in (page_json(found), detailed_page_json(found)):
        (one,) = shown["webhooks"]
        assert one["parameters"]["replicas"] == 3
        assert "hunter2" not in one["parameters"]["password"]
    (without,) = kept(answer({"a.policies.test": DENIED})).read().recent()
    assert page_json(without)["webhooks"][0]["parameters"] is None


def test_each_change_is_that_of_its_webhook_also_in_a_second_round() -> None:
    hooks = [webhook("a.b.c", reinvocation_policy="IfNeeded"), webhook("b.b.c"), webhook("c.b.c")]
    numbers = count()
    verdicts = {"b.b.c": patch(add("/spec/b", 1)), "c.b.c": Allowed()}

    def verdict(call: Any) -> Any:
        name = call.invocation.webhook.name
        return patch(add("/spec/a", next(numbers))) if name == "a.b.c" else verdicts[name]

    decisions = kept(answer(verdict, hooks))
    (found,) = decisions.read().recent()
    shown = detailed_page_json(found)
    assert [change["webhook"] for change in shown["changes"]] == [0, 1, 3]
    assert shown["overwritten"] == {"/spec/a": [0, 3]}
    assert shown["finalObject"]["spec"] == {"replicas": 1, "a": 1, "b": 1}
    assert [stage["spec"] for stage in found.details.stages()][1] == {"replicas": 1, "a": 0}


def test_a_value_in_a_value_that_another_webhook_added_is_overwritten_and_a_moved_element_is_not() -> None:
    hooks = [webhook(name) for name in ("a.b.c", "b.b.c", "c.b.c")]
    verdicts: dict[str, Verdict] = {
        "a.b.c": patch(add("/spec/a", {"b": {"c/d": 1}, "e": []}), add("/spec/list", ["one"])),
        "b.b.c": patch({"op": "replace", "path": "/spec/a/b/c~1d", "value": 2}),
        "c.b.c": patch(add("/spec/list/0", "two")),
    }
    (found,) = kept(answer(verdicts, hooks)).read().recent()
    assert detailed_page_json(found)["overwritten"] == {"/spec/a/b/c~1d": [0, 1]}


def test_secrets_are_redacted_in_the_object_the_changes_and_the_messages() -> None:
    value = base64.b64encode(b"hunter2hunter2").decode()
    held = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": {"a": value}}
    review = request(
        object=held,
        name="db",
        kind={"group": "", "version": "v1", "kind": "Secret"},
        resource={"group": "", "version": "v1", "resource": "secrets"},
    )
    verdicts: dict[str, Verdict] = {
        "a.b.c": patch(add("/data/copy", value), add("/metadata/labels", {"leak": value})),
        "b.b.c": Denied(403, message="hunter2hunter2 is weak", warnings=("hunter2hunter2 is bad",)),
    }
    decisions = kept(answer(verdicts, [webhook("a.b.c"), webhook("b.b.c")], review))
    (found,) = decisions.read().recent()
    text = orjson.dumps(detailed_page_json(found)).decode()
    assert "hunter2" not in text
    assert value not in text
    assert '"db"' not in text
    assert "is weak" in text
    named = kept(answer(verdicts, [webhook("a.b.c"), webhook("b.b.c")], review), secret_names=True)
    assert named.read().recent()[0].record.name == "db"


def test_a_large_object_is_left_out_and_the_decision_kept() -> None:
    review = request(object={**POD, "data": "x" * (LARGE_BYTES + 1)})
    (found,) = kept(answer({"a.policies.test": DENIED}, (), review)).read().recent()
    shown = detailed_page_json(found)
    assert shown["object"] is None
    assert "too large" in shown["objectNote"]
    assert shown["outcome"] == "Denied"


def test_ordinary_decisions_never_displace_denials() -> None:
    decisions = kept(answer({"a.policies.test": DENIED}), *[answer()] * 300, pause_s=10.0)
    assert 50 < len(decisions.read().recent(limit=1000)) < 150
    assert decisions.read().recent(limit=1000)[-1].record.outcome == "Denied"


@cache
def burst(number: int, namespace: str = "shop", name: str = "a.policies.test") -> list[Answer]:
    """Return denials of one webhook in one namespace, whose uids are counted from 0."""
    hooks = [webhook(name)]
    return [
        answer({name: DENIED}, hooks, request(uid=f"{namespace}-{n}", namespace=namespace))
        for n in range(number)
    ]


def test_a_burst_of_denials_is_kept_without_details_once_there_are_too_many() -> None:
    decisions = kept(*burst(259), pause_s=0.0)
    found = [detailed_page_json(one) for one in decisions.read().recent(limit=1000)]
    assert len(found) == 259
    assert decisions.left_out == 0
    assert sum(one["object"] is not None for one in found) == recent.NOTEWORTHY_AT_ONCE
    last = decisions.read().find("shop-258")
    assert last is not None
    assert detailed_page_json(last)["message"] == "a.policies.test: no"
    assert "too many decisions" in detailed_page_json(last)["objectNote"]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40)), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.01]),
)
def test_of_any_burst_the_first_and_the_last_of_each_webhook_and_namespace_are_kept(
    given_bursts: list[tuple[str, int]], pause_s: float
) -> None:
    every = {namespace: iter(burst(200, namespace)) for namespace, _ in given_bursts}
    offered = [next(every[namespace]) for namespace, number in given_bursts for _ in range(number)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recent, "NOTEWORTHY_AT_ONCE", 4)
        patched.setattr(recent, "BRIEF_AT_ONCE", 16)
        decisions = kept(*offered, pause_s=pause_s)
    uids = [one.evaluation.request.uid for one in offered]
    found = {one.record.uid for one in decisions.read().recent(limit=1000)}
    for namespace in every:
        of_namespace = [uid for uid in uids if uid.startswith(namespace)]
        assert {of_namespace[0], of_namespace[-1]} <= found
    assert len(found) + decisions.left_out == len(uids)


def read(found: Bursts[str]) -> list[str]:
    return [one() if callable(one) else one for one in found]


def test_the_last_denial_of_a_burst_is_made_by_its_first_reader_alone() -> None:
    made: list[str] = []
    found = Bursts[str]()
    found.begin(("c", "w", "n"), "first", 0.0)
    found.end_with(("c", "w", "n"), lambda: made.append("last") or "last", 10, 1.0)  # type: ignore[func-returns-value]
    listed = list(found)
    assert made == [], "the event loop makes none"
    assert [one() if callable(one) else one for one in listed] == read(found) == ["first", "last"]
    assert made == ["last"]


def test_bursts_are_held_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "MAX_BURSTS", 3)
    found = Bursts[str]()
    for number in range(5):
        key = "c", "w", f"n{number}"
        assert not found.is_under_way(key, 0.0)
        found.begin(key, f"first {number}", 0.0)
        assert not found.end_with(key, f"last {number}".upper, 10, 1.0)
    assert read(found) == [text for n in (2, 3, 4) for text in (f"first {n}", f"LAST {n}")]
    # One that is displaced is lost, and so is one whose request is large.
    assert found.end_with(key, "other".upper, 10, 2.0)
    assert found.end_with(key, "large".upper, bursts.MAX_HELD_BYTES + 1, 3.0)
    assert read(found)[-1] == "OTHER"
    assert not found.is_under_way(key, 4.0 + bursts.ENDS_AFTER_S)


def test_a_filter_selects_decisions() -> None:
    hooks = [webhook("a.b.c", failure_policy="Ignore"), webhook("b.b.c")]
    other = request(uid="u-2", namespace="shop", userInfo={"username": "bob"})
    decisions = kept(
        answer({"a.b.c": FAILED}, hooks), answer({"b.b.c": DENIED}, hooks, other), answer(None, hooks)
    )

    def uids(**fields: str) -> list[str]:
        return [one.record.uid for one in decisions.read().recent(DecisionFilter(**fields))]

    assert uids() == ["u-1", "u-2", "u-1"]
    assert uids(namespace="shop") == uids(user="bob") == uids(outcome="Denied") == ["u-2"]
    assert uids(webhook="policies/a.b.c", outcome="FailedOpen") == ["u-1"]
    assert uids(webhook="a.b.c", outcome="Denied") == []
    assert uids(name="x") == []


def test_a_document_that_nests_too_deeply_is_left_out() -> None:
    deep: Any = "x"
    for _ in range(240):
        deep = [deep]
    review = request(**request_document(object={**POD, "deep": deep}))
    (found,) = kept(answer({"a.policies.test": DENIED}, (), review)).read().recent()
    assert detailed_page_json(found)["outcome"] == "Denied"


def ring_of(*answers: Answer) -> tuple[list[str], Ring, list[tuple[str, str, str]]]:
    """Return the uids in a ring of 40 after *answers*, the ring, and the places that gave some up."""
    gone: list[tuple[str, str, str]] = []
    ring = Ring(40, 1 << 20, gone.append)
    for number, one in enumerate(answers):
        ring.add(recent.brief(one, 0.1, 1000.0 + number, "d1", secret_names=False))
    return [one.record.uid for one in ring], ring, gone


def test_a_burst_displaces_its_own_decisions_and_no_others() -> None:
    others = [*burst(5, "early"), *burst(5, "bakery")]
    uids, ring, gone = ring_of(*others, *burst(200))
    assert uids == [f"early-{n}" for n in range(5)] + [f"bakery-{n}" for n in range(5)] + [
        f"shop-{n}" for n in range(170, 200)
    ]
    assert ring.since == 0.0
    assert gone == [("policies", "a.policies.test", "shop")] * 170


def test_a_burst_gives_way_to_the_decisions_of_others() -> None:
    uids, ring, gone = ring_of(*burst(200), *burst(90, "early"))
    assert uids == [f"shop-{n}" for n in range(180, 200)] + [f"early-{n}" for n in range(70, 90)]
    assert gone == [("policies", "a.policies.test", "early")] * 70
    assert ring.since == 1180.0


def test_what_was_lost_is_counted_by_place_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MAX_BURSTS", 2)
    monkeypatch.setattr(recent, "NOTEWORTHY_AT_ONCE", 1)
    monkeypatch.setattr(recent, "BRIEF_AT_ONCE", 1)
    decisions = kept(*burst(5), *burst(1, "early"), *burst(3, "bakery"), *burst(7), pause_s=0.0)
    places = {place[2]: number for place, number in decisions.lost.items()}
    assert set(places) == {"bakery", "shop"}
    assert sum(places.values()) <= decisions.left_out

"""The public JSON of pages, from the parts of processes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from bisect import bisect_left
from html import escape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.serving_settings import PageSettings
from gateway.observe.decisions import namespaces as namespace_counts
from gateway.observe.decisions.namespaces import NamespaceCounts
from gateway.observe.decisions.recent import DecisionFilter, RecentDecisions
from gateway.observe.decisions.record import record_of
from gateway.observe.telemetry.metrics import SECONDS, Metrics
from gateway.observe.telemetry.window import EVERY_S, KEPT, Window, percentile
from gateway.pure.core.verdict import Denied, Failed, FailureReason
from gateway.server.pages.documents import merge, page_of
from gateway.server.pages.namespaces import table
from gateway.server.pages.notices import in_rollout, notices
from gateway.server.pages.process import OneProcess
from gateway.server.pages.routes import EXPLAINED_AT_ONCE, Pages
from gateway.server.pages.state import PageRequest, encoded
from gateway.server.serving.message import HttpRequest, Response
from gateway.server.serving.page_access import PageAccess
from tests.core.build import request, webhook
from tests.decisions.kit import answer
from tests.pages.kit import counts, decision, decisions_part, overview_part

if TYPE_CHECKING:
    from gateway.observe.decisions.record import DecisionRecord
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import FailurePolicy, Mode


def merged(page: str, *parts: dict[str, Any], query: dict[str, str] | None = None) -> dict[str, Any]:
    found = merge(page, PageRequest("/", query or {}), parts, len(parts))
    assert found is not None
    return found


def test_a_policy_is_in_the_state_of_the_process_that_is_behind() -> None:
    parts = [overview_part(), overview_part()]
    for part, state, reason in zip(parts, ("APIServer", "Moving"), ("", "why"), strict=True):
        part["placement"] = [{"kind": "K", "name": "p", "state": state, "reason": reason}]
    expected = {"kind": "K", "name": "p", "state": "Moving", "reason": "why"}
    assert merged("overview", *parts)["placement"] == [expected]


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/", "overview"),
        ("/decisions", "decisions"),
        ("/decisions/", None),
        ("/decisions/a/b", "decision"),
        ("/decisionsx", None),
        ("/explain", "explain"),
        ("//", None),
        ("", None),
    ],
)
def test_a_path_has_one_page(path: str, page: str | None) -> None:
    assert page_of(path) == page


def test_numbers_of_processes_are_added() -> None:
    parts = [overview_part(denied=2, failed_open=1) for _ in range(3)]
    for part in parts:
        for one in (*part["webhooks"], *part["reviews"].values()):
            one["recent"]["buckets"] = [10, *[0] * len(SECONDS)]
    found = merged("overview", *parts)
    recent = found["webhooks"][0]["recent"]
    assert (recent["count"], recent["denied"], recent["failedOpen"]) == (30, 6, 3)
    assert recent["perSecond"] == 0.5
    assert recent["p50Ms"] == 0.5
    assert found["reviews"]["inFlight"] == 9
    first, second = found["pools"][0]["endpoints"]
    assert (first["states"], first["inFlight"]) == ({"ready": 3}, 6)
    assert second["states"] == {"down": 3}
    assert found["pools"][0]["ready"] == 1
    assert found["configuration"]["isSameInAllProcesses"] is True
    parts[1]["process"]["digest"] = "e" * 64
    assert merged("overview", *parts)["configuration"]["isSameInAllProcesses"] is False


def test_half_minutes_of_processes_are_added_by_their_number() -> None:
    parts = [overview_part(), overview_part()]
    for part, timeline in zip(
        parts, ([[71, 9, 0, 0, 0], [99, 2, 1, 0, 0]], [[99, 3, 0, 1, 2], [70, 8, 0, 0, 0]]), strict=True
    ):
        part["webhooks"][0]["timeline"] = timeline
        part["webhooks"][1]["timeline"] = []
    parts[0]["bucket"] = 99  # it answered a moment earlier
    found = merged("overview", *parts)
    hook, idle = found["webhooks"]
    assert idle["timeline"] is None
    assert found["timelineBucketSeconds"] == 30
    rows = {
        name: {age: one for age, one in enumerate(row[::-1]) if one} for name, row in hook["timeline"].items()
    }
    assert rows == {"calls": {1: 5, 29: 9}, "denied": {1: 1}, "failedClosed": {1: 1}, "failedOpen": {1: 2}}
    assert len(hook["timeline"]["calls"]) == 30


def test_the_worst_notice_comes_first_and_a_sound_gateway_has_none() -> None:
    found = merged("overview", overview_part(failed_closed=1))
    levels = [notice.level for notice in notices(found)]
    assert levels == sorted(levels)
    titles = " ".join(notice.title for notice in notices(found))
    for text in ("was refused", "not ready", "failed closed", "cannot be read", "has no ready endpoint"):
        assert text in titles
    for text in ("exceptions that have expired",):
        assert text in titles
    sound = overview_part()
    sound["process"].update(ready=True, reason="")
    sound["configuration"].update(refused=None, refusedResources=0, warnings=[])
    sound["pools"] = [
        {"name": "p", "endpoints": [{"address": "a", "name": "", "state": "ready", "inFlight": 0}]}
    ]
    sound["certificates"] = sound["certificates"][:1]
    sound["certificates"][0]["notAfterSeconds"] = 1e11
    sound["faults"] = []
    sound["exceptions"] = sound["exceptions"][1:]
    assert notices(merged("overview", sound)) == []


def test_a_dead_pool_is_one_notice_with_its_webhooks_and_the_effect() -> None:
    part = overview_part(failed_closed=3)
    part["pools"] = [
        {"name": "pool", "endpoints": [{"address": "a", "name": "", "state": "down", "inFlight": 0}]}
    ]
    effect = "no worker is reachable; webhooks that fail closed: a.b.c"
    part["faults"] = [f"worker pool pool: {effect}", "worker pool pool-b: policy a: not served"]
    part["webhooks"] = part["webhooks"][:1]
    found = merged("overview", part)
    of_pages = [one for one in notices(found) if "pool pool" in one.title or "pool" in " ".join(one.lines)]
    del found["webhooks"][0]["pool"]  # as in an overview of metrics
    for seen in (of_pages, [one for one in notices(found) if "pool" in one.title + " ".join(one.lines)]):
        lost, other = seen
        assert lost.title == "worker pool pool has no ready endpoint; failurePolicy decides for its webhooks"
        assert lost.lines == [effect, "a.b.c: in the last 60 s 3 failed closed, 0 failed open"]
        assert other.lines == ["worker pool pool-b: policy a: not served"]
    assert not any("webhooks failed" in one.title for one in notices(found))


def test_what_a_roll_out_would_change_is_counted_by_webhook() -> None:
    part = overview_part(compared=329, different=70, newly_denied=63, would_be_denied=5)
    plain = {**part["webhooks"][1], "name": "plain", "mode": "Enforce", "rollout": None, "plan": None}
    plain |= counts()
    part["webhooks"].append(plain)
    found = merged("overview", part, part)
    assert [one["name"] for one in in_rollout(found["webhooks"])] == ["a.b.c", "a.b.c"]
    total = found["webhooks"][0]["total"]
    assert (total["wouldBeDenied"], total["denied"]) == (10, 0)
    candidate = {"compared": 658, "different": 140, "newlyDenied": 126, "newlyAllowed": 0, "failed": 0}
    assert total["candidate"] == candidate


def test_decisions_of_processes_are_in_the_order_of_time() -> None:
    parts = [
        decisions_part({**decision(), "time": f"2026-01-01T00:00:0{second}Z"}, at=1e9 + second)
        for second in (1, 3, 2)
    ]
    found = merged("decisions", *parts, query={"namespace": "shop", "limit": "2", "other": "x"})
    assert [one["time"][-2:-1] for one in found["decisions"]] == ["3", "2"]
    assert found["leftOut"] == 12
    assert found["since"] == "2001-09-09T01:46:43Z"
    assert found["filter"] == {"namespace": "shop"}


def test_a_decision_is_found_in_any_process() -> None:
    nothing: dict[str, Any] = {"decision": None, "endpointNames": {}}
    found = merged("decision", nothing, {"decision": decision(), "endpointNames": {"ipv4:a": "b"}}, nothing)
    assert (found["decision"]["uid"], found["endpointNames"]) == ("uid", {"ipv4:a": "b"})
    assert merge("decision", PageRequest("/decisions/a", {}), [nothing, nothing], 2) is None


def test_texts_that_are_no_unicode_are_written() -> None:
    assert encoded({"a": "\ud800"}) == b'{"a": "?"}'
    assert encoded({"a": "\u00e9"}) == '{"a":"\u00e9"}'.encode()


class _Parts:
    """A source of one part."""

    processes = 1

    def __init__(self, part: dict[str, Any]) -> None:
        self._part = part

    async def parts(self, request: PageRequest) -> list[dict[str, Any]]:
        return [self._part]


def answered_form(pages: Pages, body: bytes) -> Response:
    headers = {b"host": b"localhost", b"content-type": b"application/x-www-form-urlencoded"}
    request = HttpRequest(0.0, b"POST", b"/explain", headers)
    request.body = body
    return pages.screen(request, is_local=True) or asyncio.run(pages.answer(request))


def answered(pages: Pages, target: bytes, method: bytes = b"GET", body: bytes = b"") -> Response:
    request = HttpRequest(0.0, method, target, {b"host": b"localhost"})
    request.body = body
    return pages.screen(request, is_local=True) or asyncio.run(pages.answer(request))


def test_the_json_commands_no_terminal_and_has_the_same_value() -> None:
    text = "\x9b2J\x1b]0;x\x07\u202e\u200b\x7f \u00e9"
    part = decisions_part({**decision(), "message": text})
    access = PageAccess(PageSettings(), "127.0.0.1:1")
    body = answered(Pages(_Parts(part), lambda: access), b"/decisions?format=json").body
    assert json.loads(body)["decisions"][0]["message"] == text
    assert all(character.isprintable() or character == "\n" for character in body.decode())


@pytest.mark.parametrize(
    ("review", "status", "error"),
    [
        ("kind: <Pod>\nspec: {", 400, "cannot be read"),
        ("", 400, "found nothing"),
        ("kind: <Pod>", 429, "too many reviews"),
    ],
)
def test_an_error_leaves_the_form_as_it_was_sent(review: str, status: int, error: str) -> None:
    access = PageAccess(PageSettings(), "127.0.0.1:1")
    part = {"decisions": [], "notReached": [], "error": "cannot be read"}
    pages = Pages(_Parts(part), lambda: access, lambda: 0.0)
    form = urlencode({"review": review, "user": "ann", "operation": "DELETE"}).encode()
    for _ in range(EXPLAINED_AT_ONCE if status == 429 else 0):
        assert answered_form(pages, form).status == 400
    answer = answered_form(pages, form)
    html = answer.body.decode()
    assert (answer.status, error in html) == (status, True)
    assert f">\n{escape(review, quote=False)}</textarea>" in html
    assert 'value="ann"' in html
    assert "<option selected>DELETE</option>" in html
    # Of a program it is JSON, without the text.
    assert "kind" not in answered(pages, b"/explain?format=json", b"POST", b"").body.decode()


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        (b"GET", b"/decisions", 200),
        (b"HEAD", b"/decisions", 200),
        (b"POST", b"/decisions", 405),
        (b"PUT", b"/explain", 405),
        (b"POST", b"/explain", 400),
        (b"GET", b"/nothing", 404),
        (b"GET", b"/decisions?format=xml", 400),
        (b"GET", b"/decisions?format=process", 400),
        (b"GET", b"/decisions?" + b"a=b&" * 60, 200),
    ],
)
def test_a_path_has_its_methods_and_formats(method: bytes, target: bytes, status: int) -> None:
    access = PageAccess(PageSettings(), "127.0.0.1:1")
    pages = Pages(_Parts(decisions_part()), lambda: access)
    assert answered(pages, target, method).status == status


@pytest.mark.parametrize(
    ("target", "root"), [(b"/decisions/a%2Fb", "../"), (b"/decisions/a/b", "../../"), (b"/decisions", "./")]
)
def test_links_lead_to_the_root_from_a_name_with_a_slash(target: bytes, root: str) -> None:
    access = PageAccess(PageSettings(), "127.0.0.1:1")
    part = decisions_part() | {"decision": decision(), "endpointNames": {}}
    html = answered(Pages(_Parts(part), lambda: access), target).body.decode()
    assert f'<a href="{root}namespaces">' in html


@pytest.mark.parametrize(("limit", "shown"), [("0", 1), ("2", 2), ("-1", 3), ("٢", 3), ("9" * 400, 3)])
def test_a_limit_is_a_number_of_decisions(limit: str, shown: int) -> None:
    found = merged("decisions", decisions_part(*[decision()] * 3), query={"limit": limit})
    assert len(found["decisions"]) == shown


async def test_decisions_are_searched_in_the_thread_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def matches(wanted: DecisionFilter, record: DecisionRecord) -> bool:
        threads.append(threading.current_thread().name)
        return wanted.uid in ("", record.uid)

    monkeypatch.setattr(DecisionFilter, "matches", matches)
    denied = answer({"a.policies.test": Denied(403, message="no")}, review=request(uid="u-1"))
    recent = RecentDecisions()
    recent.keep_shadowed(record_of(denied, 0.1, 1.0, "d"))
    state: Any = SimpleNamespace(started_at=0.0, snapshot=SimpleNamespace(backends=SimpleNamespace(pools={})))
    window: Any = None
    process = OneProcess(lambda: state, window, recent, NamespaceCounts(), act=window)
    (listed,) = await process.parts(PageRequest("/decisions", {"webhook": "a.policies.test"}))
    (one,) = await process.parts(PageRequest("/decisions/u-1", {}))
    assert [len(listed["decisions"]), one["decision"]["uid"]] == [1, "u-1"]
    assert len(threads) == 2
    assert all(name.startswith("pages") for name in threads)


# -- numbers --------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 40), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_percentile_is_in_the_bucket_of_the_true_one(durations: list[float], part: float) -> None:
    buckets = [0] * (len(SECONDS) + 1)
    for seconds in durations:
        buckets[bisect_left(SECONDS, seconds)] += 1
    found = percentile(buckets, part)
    assert found is not None
    below = sum(seconds <= found for seconds in durations)
    index = min(bisect_left(SECONDS, found), len(SECONDS) - 1)
    assert sum(buckets[: index + 1]) >= part * len(durations) - 1e-9 or found == SECONDS[-1]
    assert sum(buckets[:index]) <= part * len(durations) + 1e-9
    assert below >= 0
    assert percentile([0] * len(buckets), part) is None


async def test_a_window_has_what_was_counted_in_the_last_minutes() -> None:
    now = [0.0]
    metrics = Metrics()
    window = Window(metrics, lambda: now[0])
    hooks = [webhook("a.b.c")]

    def review(verdict: Verdict) -> None:
        metrics.review_answered(answer({"a.b.c": verdict}, hooks), 0.004)

    review(Denied(403, message="no"))
    now[0] = 30.0
    seconds, recent, total, *_ = await window.take()
    assert seconds == 30.0
    assert recent["mutate", "a.b.c"].denied == total["mutate", "a.b.c"].denied == 1
    for _ in range(KEPT):
        now[0] += EVERY_S
        await window.take()
    review(Failed(FailureReason.DEADLINE, "slow"))
    seconds, recent, total, *_ = await window.take()
    assert seconds == EVERY_S * (KEPT - 1)
    found = recent["mutate", "a.b.c"]
    assert (found.denied, found.failed_closed, sum(found.buckets)) == (0, 1, 1)
    assert total["mutate", "a.b.c"].denied == 1
    assert (recent["mutate", ""].denied, total["mutate", ""].denied) == (1, 2)


def test_namespaces_are_counted_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_counts, "MAX_CELLS", 3)
    counts = NamespaceCounts()
    hooks = [webhook("a.b.c"), webhook("b.b.c", failure_policy="Ignore")]
    verdicts: dict[str, Verdict] = {
        "a.b.c": Denied(403, message="no"),
        "b.b.c": Failed(FailureReason.DEADLINE, "slow"),
    }
    for namespace in ("one", "one", "two", "three", "four"):
        review = request(namespace=namespace)
        counts.offer(answer(verdicts, hooks[::-1], review), 0.1, "d", is_noteworthy=True)
    found = merged("namespaces", counts.document(), counts.document())
    assert found["leftOut"] == 10
    shown = {(one["namespace"], one["webhook"]): one for one in found["cells"]}
    assert shown["one", "a.b.c"]["denied"] == 4
    assert shown["one", "b.b.c"]["failedOpen"] == 4
    assert len(shown) == 3
    first, second = table(found["cells"])["rows"]
    assert (first["namespace"], first["denied"], first["failedOpen"]) == ("one", 4, 4)
    assert {one["webhook"] for one in first["webhooks"]} == {"a.b.c", "b.b.c"}
    assert (second["namespace"], second["denied"] + second["failedOpen"]) == ("two", 2)


@given(st.sampled_from(["Enforce", "Warn", "Audit"]), st.sampled_from(["Fail", "Ignore"]), st.booleans())
def test_a_mode_that_lets_requests_pass_counts_no_denial(
    mode: Mode, policy: FailurePolicy, is_denied: bool
) -> None:
    verdict: Verdict = Denied(403, message="no") if is_denied else Failed(FailureReason.DEADLINE, "slow")
    hooks = [webhook("a.b.c", failure_policy=policy)]
    given_answer = answer({"a.b.c": verdict}, hooks, modes={} if mode == "Enforce" else {0: mode})
    counts = NamespaceCounts()
    counts.offer(given_answer, 0.1, "d", is_noteworthy=True)
    cells = counts.document()["cells"]
    found = {name for cell in cells for name in namespace_counts.COUNTS if cell[name]}
    if not is_denied and policy == "Ignore":
        expected = {"failedOpen"}
    elif mode != "Enforce":
        expected = {"wouldBeRefused"}
    else:
        expected = {"denied" if is_denied else "failedClosed"}
    assert found == expected
    metrics = Metrics()
    metrics.review_answered(given_answer, 0.004)
    numbers = metrics.numbers()["mutate", "a.b.c"]
    assert bool(numbers.denied) == ("denied" in expected)
    assert bool(numbers.would_be_denied) == (is_denied and "wouldBeRefused" in expected)
    assert bool(numbers.would_fail_closed) == (not is_denied and "wouldBeRefused" in expected)


def test_the_uses_of_an_exception_by_all_processes_are_added() -> None:
    first, second = overview_part(), overview_part()
    second["exceptions"][0]["lastUseSeconds"] = 1.8e9
    used, unused = merged("overview", first, second)["exceptions"]
    assert (used["uses"], used["lastUse"]) == (6, "2027-01-15T08:00:00Z")
    assert (unused["uses"], unused["lastUse"], unused["remainingSeconds"]) == (None, "", None)


def test_webhooks_that_do_not_come_to_rest_are_added_and_noticed_for_an_hour() -> None:
    parts = overview_part(), overview_part()
    now = time.time()
    parts[1]["disputes"][0] |= {"number": 5, "last_at": now - 60, "example": "pods default/db"}
    found = merged("overview", *parts)
    (dispute,) = found["disputes"]
    assert (dispute["reviews"], dispute["lastObject"]) == (7, "pods default/db")
    line = "m.hooks.test changes data.runs again at each UPDATE; reviews: 7, the last of pods default/db"
    lines = [one.lines for one in notices(found) if one.title == "mutating webhooks do not come to rest"]
    assert lines == [[line]]
    parts[1]["disputes"][0]["last_at"] = now - 4000
    assert not [one for one in notices(merged("overview", *parts)) if "to rest" in one.title]

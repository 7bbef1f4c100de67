"""Which of many webhooks the overview shows, and pages that load themselves again."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.server.pages.refresh import refresh_of, refresh_s
from gateway.server.pages.render import headers_of
from gateway.server.pages.webhook_list import FILTERED_FROM, SIZE, Listed, listed


def webhook(number: int, **changes: Any) -> dict[str, Any]:
    recent = {"denied": 0, "failedClosed": 0, "failedOpen": 0, **changes}
    total = {"wouldBeDenied": 0, "wouldFailClosed": 0, "candidate": {"compared": 0}}
    return {
        "name": f"w{number}.example",
        "phase": "validate" if number % 2 else "mutate",
        "pool": "lost" if number == 8 else "pool",
        "mode": "Warn" if number == 9 else "Enforce",
        "plan": {"phase": "Paused"} if number == 6 else None,
        "recent": recent,
        "total": total,
        "timeline": None if number == 10 else {},
    }


def shown(number: int = 120, **query: str) -> Listed:
    hooks = [webhook(n, denied=int(n == 3), failedOpen=int(n == 110)) for n in range(number)]
    pools = [{"name": "lost", "ready": 0}, {"name": "pool", "ready": 2}]
    return listed({"webhooks": hooks, "pools": pools}, query)


def names(found: Listed) -> list[str]:
    return [one["name"].removesuffix(".example") for one in found.rows]


def test_few_webhooks_are_in_call_order_without_a_form() -> None:
    found = shown(FILTERED_FROM)
    assert names(found) == [f"w{n}" for n in range(FILTERED_FROM)]
    assert [one["number"] for one in found.rows[:4]] == [1, 1, 2, 2]
    assert not found.has_filter


def test_of_many_webhooks_those_that_need_attention_are_first() -> None:
    found = shown()
    assert names(found)[:6] == ["w6", "w8", "w110", "w3", "w0", "w1"]
    assert (found.first, found.number, len(found.rows), found.previous) == (1, 120, SIZE, None)


def test_pages_have_each_webhook_once() -> None:
    pages = [shown(page=str(number), name="w") for number in (1, 2, 3)]
    assert len({name for one in pages for name in names(one)}) == 120
    assert pages[1].previous == {"name": "w", "page": "1"}
    assert pages[1].next == {"name": "w", "page": "3"}
    assert pages[2].next is None
    for page in ("0", "-1", "x", "99", "9" * 4000):
        assert shown(page=page).rows


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"name": " w11"}, ["w110", "w11", *(f"w11{n}" for n in range(1, 10))]),
        ({"state": "attention"}, ["w6", "w8", "w110"]),
        ({"state": "denying"}, ["w3"]),
        ({"state": "rollout"}, ["w6", "w9"]),
        ({"state": "idle"}, ["w10"]),
        ({"name": "nothing"}, []),
    ],
)
def test_webhooks_are_found_by_name_and_state(query: dict[str, Any], expected: list[str]) -> None:
    assert names(shown(120, **query)) == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10), ("1", 5), ("99999", 3600), ("", 0), ("-1", 0), ("1.5", 0), ("²", 0)]
)
def test_a_page_is_loaded_again_within_bounds(text: str, seconds: int) -> None:
    query = {"refresh": text, "namespace": "shop"}
    assert refresh_s("decisions", query) == seconds
    headers = headers_of("decisions", query)
    assert (b"Refresh: %d\r\n" % seconds in headers) == (b"Refresh" in headers) == bool(seconds)


def test_only_pages_of_the_present_state_are_loaded_again() -> None:
    assert refresh_s("explain", {"refresh": "10"}) == 0
    assert refresh_of("act", {"refresh": "10"}) is None
    found = refresh_of("decisions", {"refresh": "20", "namespace": "a b"})
    assert found is not None
    assert (found.once, found.stop) == ("?refresh=20&namespace=a+b", "?namespace=a+b")
    assert found.often == "?namespace=a+b&refresh=10"

"""Source of the cases: kubernetes plugin/pkg/admission/eventratelimit admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker import Denied
from admission_gateway_worker.policies.event_rate_limit import TokenBucket, event_rate_limit, prepare
from tests.library.builtin import of, policy


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def event(subject: str, kind: str = "Server", **others: Any) -> dict[str, Any]:
    """Return a request for an Event of *subject*, which is a namespace, a user or a source."""
    found = {"metadata": {"name": "e"}}
    if kind == "SourceAndObject":
        found["source"] = {"component": subject}
    user = {"username": subject if kind == "User" else ""}
    namespace = subject if kind == "Namespace" else ""
    return of("events", "Event", found, namespace=namespace, userInfo=user, **others)


def play(kind: str, burst: int, size: int, steps: str) -> list[str]:
    """Return the messages of the refusals of *steps*, and an empty text for each Event that is allowed.

    A step is a subject; ``+`` lets a second pass, ``-`` is no Event, and ``~`` a dry run.
    """
    clock = Clock()
    server = {"type": "Server", "qps": 1, "burst": 100}
    limit = {"type": kind, "qps": 1, "burst": burst, "cacheSize": size}
    limits = prepare({"limits": [limit] if kind == "Server" else [server, limit]}, clock)
    messages = []
    for step in steps:
        if step == "+":
            clock.now += 1
            continue
        asked = event(step, kind, dryRun=step == "~")
        if step == "-":
            asked = of("pods", "Pod", {"metadata": {"name": "p"}})
        review = policy("event-rate-limit").review(asked, {"limits": [limit]})
        review.parameters = limits
        try:
            event_rate_limit(review)
        except Denied as denied:
            messages.append(denied.message)
        else:
            messages.append("")
    return messages


@pytest.mark.parametrize(
    ("kind", "burst", "size", "steps", "blocked"),
    [
        ("Server", 3, 0, "A", ""),
        ("Server", 3, 0, "-", ""),
        ("Server", 3, 0, "AAAA", "3"),
        ("Server", 3, 0, "AA~~~~AA~", "7"),
        ("Server", 3, 0, "AAA-", ""),
        ("Server", 3, 0, "AA-A", ""),
        ("Server", 3, 0, "AAAA+A", "3"),
        *(
            (kind, burst, size, steps, blocked)
            for kind in ("Namespace", "SourceAndObject", "User")
            for burst, size, steps, blocked in (
                (3, 10, "AAAA", "3"),
                (3, 10, "AAAB", ""),
                (3, 10, "AABA", ""),
                (3, 10, "AAAA+A", "3"),
                (3, 10, "AAABA", "4"),
                (3, 2, "AABBBABACAB", "679"),
            )
        ),
    ],
)
def test_sequences_of_events(kind: str, burst: int, size: int, steps: str, blocked: str) -> None:
    messages = play(kind, burst, size, steps)
    assert [str(index) for index, message in enumerate(messages) if message] == list(blocked)


def test_texts() -> None:
    start = "Too many requests: limit reached on type"
    assert play("Server", 1, 0, "AA")[1] == f"{start} Server for key "
    assert play("Namespace", 1, 0, "AA")[1] == f"{start} Namespace for key A"


@pytest.mark.parametrize(
    ("holder", "name"),
    [("source", "component"), ("source", "host")]
    + [("involvedObject", name) for name in ("kind", "namespace", "name", "uid", "apiVersion")],
)
def test_the_key_of_source_and_object(holder: str, name: str) -> None:
    limits = prepare({"limits": [{"type": "SourceAndObject", "qps": 1, "burst": 1}]}, Clock())
    outcomes = []
    for value in "AAB":
        asked = of("events", "Event", {"metadata": {"name": "e"}, holder: {name: value}})
        outcomes.append(limits[0].problem(policy("event-rate-limit").review(asked, {"limits": []})))
    assert outcomes == ["", "limit reached on type SourceAndObject for key A", ""]


def test_long_subjects_are_not_kept_and_cut_in_the_text() -> None:
    limit = prepare({"limits": [{"type": "SourceAndObject", "qps": 1, "burst": 1}]}, Clock())[0]
    start = "limit reached on type SourceAndObject for key "
    for length, shown in ((256, "a" * 255 + "b"), (257, "a" * 256 + "...")):
        outcomes = []
        for end in "bbc":
            subject = end.rjust(length, "a")
            asked = event(subject, "SourceAndObject")
            outcomes.append(limit.problem(policy("event-rate-limit").review(asked, {"limits": []})))
        assert outcomes == ["", start + shown, ""]
    assert max(map(len, limit._buckets)) == 256
    assert len(limit._buckets) == 4


def test_every_limit_is_charged_and_named() -> None:
    limits = prepare(
        {"limits": [{"type": kind, "qps": 1, "burst": 1} for kind in ("Server", "Namespace")]}, Clock()
    )
    review = policy("event-rate-limit").review(event("A", "Namespace"), {"limits": []})
    review.parameters = limits
    event_rate_limit(review)
    with pytest.raises(Denied) as raised:
        event_rate_limit(review)
    assert (raised.value.code, raised.value.reason) == (429, "TooManyRequests")
    server, namespace = (f"limit reached on type {name} for key " for name in ("Server", "Namespace"))
    assert raised.value.message == f"Too many requests: [{server}, {namespace}A]"


def test_events_of_the_other_group_are_not_limited() -> None:
    limits = prepare({"limits": [{"type": "Server", "qps": 1, "burst": 1}]}, Clock())
    requested = {"group": "events.k8s.io", "version": "v1", "kind": "Event"}
    review = policy("event-rate-limit").review(event("A", requestKind=requested), {"limits": []})
    review.parameters = limits
    for _ in range(3):
        event_rate_limit(review)


@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.lists(st.floats(0, 3, allow_nan=False), max_size=200),
)
def test_a_bucket_keeps_its_rate(qps: int, burst: int, delays: list[float]) -> None:
    bucket = TokenBucket(qps, burst, 0.0)
    now, allowed = 0.0, 0
    for delay in delays:
        now += delay
        tokens = bucket.allow(now)
        allowed += tokens
        assert allowed <= burst + qps * now + 1e-6
    assert bucket.allow(now + 1.0 / qps + 1e-6)

"""Kept verdicts: their time, and the bounds of their number and of their bytes."""

from __future__ import annotations

import pytest

from gateway.engine.dispatch.verdict_cache import MAX_KEPT_BYTES, KeptVerdicts
from gateway.engine.dispatch.verdicts import failed_status
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason

LARGE = MAX_KEPT_BYTES * 3 // 10


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def found(kept: KeptVerdicts, keys: bytes) -> bytes:
    """Return those of the *keys*, of a byte each, that have a verdict."""
    return bytes(key for key in keys if kept.find(bytes([key])) is not None)


@pytest.mark.parametrize(
    "large",
    [
        Denied(message="x" * LARGE),
        Denied(message="\U0001f600" + "x" * (LARGE // 4)),
        Denied(causes=(Cause(message="x" * LARGE),)),
        Allowed(warnings=("x" * (LARGE // 2), "y" * (LARGE // 2))),
        Allowed(audit_annotations=tuple((f"{number}", "") for number in range(LARGE // 140))),
    ],
)
def test_large_verdicts_displace_the_least_recently_used_ones(large: Allowed | Denied) -> None:
    kept = KeptVerdicts(1024, Clock())
    kept.keep(b"s", ALLOWED, 60)
    for key in b"abc":
        kept.keep(bytes([key]), large, 60)
    assert found(kept, b"bcas") == b"bcas"
    kept.keep(b"d", large, 60)
    assert found(kept, b"abcds") == b"acds"


def test_a_verdict_above_the_limit_is_not_kept_and_displaces_none() -> None:
    kept = KeptVerdicts(1024, Clock())
    kept.keep(b"a", ALLOWED, 60)
    kept.keep(b"b", Denied(message="x" * MAX_KEPT_BYTES), 60)
    assert found(kept, b"ab") == b"a"


def test_a_verdict_that_is_kept_again_counts_once() -> None:
    kept = KeptVerdicts(1024, Clock())
    kept.keep(b"a", ALLOWED, 60)
    for _ in range(10):
        kept.keep(b"b", Denied(message="x" * LARGE), 60)
    assert found(kept, b"ab") == b"ab"


def test_verdicts_that_have_expired_make_room() -> None:
    clock = Clock()
    kept = KeptVerdicts(2, clock)
    kept.keep(b"a", ALLOWED, 10)
    kept.keep(b"b", ALLOWED, 20)
    assert found(kept, b"ba") == b"ba"
    clock.now_s = 10
    assert found(kept, b"ba") == b"b"
    kept.keep(b"c", ALLOWED, 10)
    assert found(kept, b"abc") == b"bc"


def test_a_verdict_makes_room_at_the_time_at_which_it_expires() -> None:
    clock = Clock()
    kept = KeptVerdicts(3, clock)
    kept.keep(b"a", ALLOWED, 10)
    clock.now_s = 10
    kept.keep(b"b", ALLOWED, 10)
    assert [*kept._kept] == [b"b"]


@pytest.mark.parametrize(
    ("verdict", "ttl_s"),
    [(ALLOWED, 0), (Failed(FailureReason.STATUS, "x"), 60), (Allowed(patch=b"[]"), 60)],
)
def test_others_are_not_kept(verdict: Allowed | Failed, ttl_s: int) -> None:
    kept = KeptVerdicts(1024, Clock())
    kept.keep(b"a", verdict, ttl_s)
    assert kept.find(b"a") is None


class Whole(str):
    """A text of which only a part may be translated."""

    __slots__ = ()
    translate = None  # type: ignore[assignment]


def test_the_text_of_a_failure_is_cut_before_it_is_made_one_line() -> None:
    assert failed_status("INTERNAL", Whole("a\n" * 600)).cause == f"INTERNAL: {'a ' * 500}"

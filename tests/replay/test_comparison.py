"""Which differences two results have."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.replay.comparison import differences
from gateway.tools.replay.results import recorded
from tests.replay.kit import pod, review

HOOK = {"configuration": "c", "webhook": "a.b.c", "outcome": "Allowed", "milliseconds": 1.0}
DENIED = {**HOOK, "outcome": "Denied", "message": "no", "code": 403}
REFUSED = {"allowed": False, "code": 403, "message": "a.b.c: no"}


def found(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    results = [recorded(line, "validate", ()) for line in (before, after)]
    return [(one.kind, one.webhook) for one in differences(*results)]


def patched(value: object, name: str = "a.b.c") -> dict[str, Any]:
    return {**HOOK, "webhook": name, "patch": [{"op": "add", "path": "/spec/b", "value": value}]}


def test_a_denial_that_comes_or_goes() -> None:
    allowed, denied = review(None, HOOK), review(None, DENIED, **REFUSED)
    assert found(allowed, denied) == [("newlyDenied", "c/a.b.c")]
    assert found(denied, allowed) == [("newlyAllowed", "c/a.b.c")]
    assert found(denied, denied) == []


def test_another_message_code_or_warning() -> None:
    denied = review(None, DENIED, **REFUSED)
    other = review(None, {**DENIED, "message": "never"}, **{**REFUSED, "message": "a.b.c: never"})
    assert found(denied, other) == [("otherMessage", "c/a.b.c")]
    assert found(denied, {**denied, "code": 400}) == [("otherMessage", "c/a.b.c")]
    assert found(review(None, HOOK), review(None, HOOK, warnings=["old"])) == [
        ("otherMessage", "(not known)")
    ]


def test_another_object_is_one_that_differs_after_all_changes() -> None:
    plain = review(None, HOOK)
    assert found(plain, review(None, patched(1))) == [("otherObject", "c/a.b.c")]
    assert found(review(None, patched(1)), review(None, patched(1))) == []
    assert found(review(None, patched({"x": 1, "y": 2})), review(None, patched({"y": 2, "x": 1}))) == []
    assert found(review(None, patched(1)), review(None, patched(1.0))) == [("otherObject", "c/a.b.c")]
    both = review(None, patched(1), patched(2, "z.b.c"))
    assert found(review(None, patched(7), patched(2, "z.b.c")), both) == []
    assert found(review(None, patched(1), patched(3, "z.b.c")), both) == [("otherObject", "c/z.b.c")]


def test_two_entries_of_one_name_are_two() -> None:
    """Before, the last one stood for both: its change was the only one, and its message that of both."""
    first, second = ({**HOOK, "patch": [{"op": "add", "path": f"/spec/{name}", "value": 1}]} for name in "bc")
    changed = review(pod(), first, second)
    final: Any = recorded(changed, "mutate", ()).final_object()
    assert final["spec"] == {"a": 1, "b": 1, "c": 1}
    assert found(changed, review(pod(), first, second)) == []
    assert found(changed, review(pod(), second)) == [("otherObject", "c/a.b.c")]
    ours, theirs = ({**DENIED, "webhook": name, "message": name} for name in ("y.b.c", "z.b.c"))
    before = review(None, DENIED, {**DENIED, "message": "on templates"}, ours, **REFUSED)
    after = review(None, DENIED, {**DENIED, "message": "on templates"}, theirs, **{**REFUSED, "code": 400})
    assert found(before, after) == [("otherMessage", "c/z.b.c")]
    opened = {**HOOK, "outcome": "FailedOpen", "message": "gone"}
    assert found(review(None, opened, HOOK), review(None, opened, opened)) == [("failures", "c/a.b.c")]


def test_a_failure_is_no_denial() -> None:
    closed = review(None, {**HOOK, "outcome": "FailedClosed", "message": "gone"}, **REFUSED)
    opened = review(None, {**HOOK, "outcome": "FailedOpen", "message": "gone"})
    assert found(review(None, HOOK), closed) == [("failures", "c/a.b.c")]
    assert found(review(None, HOOK), opened) == [("failures", "c/a.b.c")]
    assert found(opened, opened) == []


def test_a_webhook_that_is_left_out_does_not_count() -> None:
    line = review(None, DENIED, **REFUSED)
    assert not recorded(line, "validate", ()).allowed
    assert recorded(line, "validate", {("validate", "c", "a.b.c")}).allowed


_HOOKS = st.lists(
    st.sampled_from([HOOK, DENIED, patched(1), patched(2, "z.b.c"), {**HOOK, "outcome": "FailedOpen"}]),
    max_size=4,
)


@given(_HOOKS, st.booleans(), st.lists(st.sampled_from(["a", "b"])))
def test_a_result_does_not_differ_from_itself(hooks: Any, allowed: bool, warnings: list[str]) -> None:
    line = review(pod(), *hooks, allowed=allowed, warnings=warnings)
    assert found(line, line) == []

"""Webhooks that overwrite each other in one review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.pure.core.decision import decide
from gateway.pure.core.stages import conflicts_of
from tests.core.build import add, patch, request, settle, webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.pure.core.call import Call
    from gateway.pure.core.conflicts import Conflict
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Webhook

A, B = "a.policies.test", "b.policies.test"
TEAM = "/metadata/labels/team"


def found(verdicts: dict[str, Verdict], **members: Any) -> tuple[Conflict, ...]:
    hooks = [webhook(name) for name in verdicts]
    return conflicts_of(settle(hooks, request(**members), verdicts))


def test_the_second_writer_of_a_field_is_found() -> None:
    (one,) = found({A: patch(add(TEAM, "x")), B: patch(add(TEAM, "y"))})
    assert one.line() == f'metadata.labels.team: {B} overwrites what {A} wrote: "x" becomes "y"'
    assert one.line(with_values=False) == f"metadata.labels.team: {B} overwrites what {A} wrote"


def test_what_is_removed_and_what_is_undone_are_named() -> None:
    removed = {"op": "remove", "path": TEAM}
    lines = [one.line() for one in found({A: patch(add(TEAM, "x")), B: patch(removed)})]
    assert lines == [f'metadata.labels.team: {B} removes what {A} wrote: "x" becomes nothing']
    lines = [one.line() for one in found({A: patch(add(TEAM, "x")), B: patch(add(TEAM, "a"))})]
    assert lines == [f'metadata.labels.team: {B} undoes what {A} wrote: "x" becomes "a"']


def test_equal_values_and_own_elements_are_no_conflict() -> None:
    assert found({A: patch(add(TEAM, "x")), B: patch(add(TEAM, "x"))}) == ()
    args = [add("/spec/args", ["a"])], [add("/spec/args/0", "b")]
    assert found({A: patch(*args[0]), B: patch(*args[1])}) == ()
    containers = [add("/spec/containers", [{"name": "a"}])], [add("/spec/containers/0", {"name": "b"})]
    assert found({A: patch(*containers[0]), B: patch(*containers[1])}) == ()


def test_a_reinvoked_webhook_that_restores_its_value_is_one_more_conflict() -> None:
    def answer(call: Call) -> Verdict:
        return patch(add(TEAM, "x" if call.invocation.webhook.name == A else "y"))

    hooks = [webhook(A, reinvocation_policy="IfNeeded"), webhook(B)]
    pairs = [(one.first.name, one.second.name) for one in conflicts_of(settle(hooks, request(), answer))]
    assert pairs == [(A, B), (B, A)]


def test_no_value_of_a_secret_is_in_a_line() -> None:
    kind = {"group": "", "version": "v1", "kind": "Secret"}
    secret = {"metadata": {"name": "s"}, "data": {"password": "b2xk"}}
    verdicts: dict[str, Verdict] = {
        A: patch(add("/data/password", "QQ==")),
        B: patch(add("/data/password", "Qg==")),
    }
    (one,) = found(verdicts, kind=kind, object=secret)
    assert one.line() == f"data.password: {B} overwrites what {A} wrote"


def refused(hooks: Sequence[Webhook], answer: Callable[[Call], Verdict] | dict[str, Verdict]) -> list[str]:
    evaluation = settle(hooks, request(), answer, rejects_conflicts=True)
    status = decide(evaluation, "None").status
    return [] if status is None else [f"{status.code} {status.message}"]


def test_where_conflicts_are_rejected_the_second_writer_denies_the_request() -> None:
    verdicts: dict[str, Verdict] = {A: patch(add(TEAM, "x")), B: patch(add(TEAM, "y"))}
    hooks = [webhook(A), webhook(B, failure_policy="Ignore")]
    what = "overwrites metadata.labels.team, which a.policies.test wrote, and conflicts are rejected"
    assert refused(hooks, verdicts) == [f"403 {B}: {what}"]
    assert refused(hooks[::-1], verdicts)[0].startswith(f"403 {A}: ")
    assert refused(hooks, {A: verdicts[A], B: verdicts[A]}) == []


def test_who_names_the_other_in_after_may_overwrite_it_and_not_the_reverse() -> None:
    def answer(call: Call) -> Verdict:
        return patch(add(TEAM, "x" if call.invocation.webhook.name == A else "y"))

    hooks = [webhook(A), webhook(B, after=(A,))]
    assert refused(hooks, answer) == []
    hooks[0] = webhook(A, reinvocation_policy="IfNeeded")
    assert refused(hooks, answer)[0].startswith(f"403 {A}: overwrites metadata.labels.team")


def test_a_webhook_that_is_not_enforced_has_no_conflict() -> None:
    verdicts: dict[str, Verdict] = {A: patch(add(TEAM, "x")), B: patch(add(TEAM, "y"))}
    evaluation = settle(
        [webhook(A), webhook(B)], request(), verdicts, modes={1: "Audit"}, rejects_conflicts=True
    )
    assert [one.would_change for one in evaluation.outcomes] == [False, True]
    assert decide(evaluation, "None").allowed

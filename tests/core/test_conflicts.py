"""Webhooks that overwrite each other in one review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.pure.core.stages import conflicts_of
from tests.core.build import add, patch, request, settle, webhook

if TYPE_CHECKING:
    from gateway.pure.core.call import Call
    from gateway.pure.core.conflicts import Conflict
    from gateway.pure.core.verdict import Verdict

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

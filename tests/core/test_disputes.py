"""Mutating webhooks that never come to rest, in one review and from UPDATE to UPDATE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core import disputes
from gateway.pure.core.disputes import MAX_FOUND, OTHERS, TIMES, WITHIN_S, Dispute, Disputes, concerns
from tests.core.build import add, patch, request, settle, webhook

if TYPE_CHECKING:
    from gateway.pure.core.call import Call
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.verdict import Verdict

A, B = "a.policies.test", "b.policies.test"
TEAM = "/metadata/labels/team"
CHANGED: dict[str, Verdict] = {A: patch(add(TEAM, "b"))}


def stored(team: str, version: int = 1, name: str = "web") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "labels": {"team": team}}}


def update(
    old: dict[str, Any], new: dict[str, Any], verdicts: dict[str, Verdict], **members: Any
) -> Evaluation:
    hooks = [webhook(name) for name in verdicts]
    return settle(hooks, request(operation="UPDATE", object=new, oldObject=old, **members), verdicts)


def note(state: Disputes, evaluation: Evaluation, now: float = 1000.0) -> list[str]:
    assert concerns(evaluation)
    return [one.line() for one in finish(state.note(evaluation, now))]


def test_webhooks_that_bring_back_their_values_in_one_review_are_found_at_once() -> None:
    def answer(call: Call) -> Verdict:
        return patch(add(TEAM, "x" if call.invocation.webhook.name == A else "y"))

    hooks = [webhook(A, reinvocation_policy="IfNeeded"), webhook(B)]
    assert note(Disputes(), settle(hooks, request(), answer)) == [
        f"{A} and {B} undo each other in metadata.labels.team"
    ]
    assert not concerns(settle(hooks, request(dryRun=True), answer))
    assert not concerns(settle([webhook(A), webhook(B)], request(), answer))


def test_webhooks_that_overwrite_each_other_at_each_update_are_found() -> None:
    state, found = Disputes(), []
    verdicts: dict[str, Verdict] = {A: patch(add(TEAM, "x")), B: patch(add(TEAM, "y"))}
    for version in range(TIMES["undone"] + 1):
        old = stored("y", version)
        found.append(note(state, update(old, old, verdicts)))
    line = f"{A} and {B} undo each other in metadata.labels.team"
    assert found == [[], [], [line], [line]]
    (seen,) = state.found.values()
    assert (seen.number, seen.last_at, seen.example) == (2, 1000.0, "pods default/web")


def test_a_webhook_that_changes_what_is_at_rest_is_found() -> None:
    state, found = Disputes(), []
    for version in range(TIMES["own_result"]):
        old = stored(str(version), version)
        found.append(note(state, update(old, old, {A: patch(add(TEAM, str(version + 1)))})))
    assert found == [[], [], [f"{A} changes metadata.labels.team again at each UPDATE"]]


def test_a_write_that_is_tried_again_is_counted_once() -> None:
    state, old = Disputes(), stored("a")
    for _ in range(9):
        assert note(state, update(old, old, {A: patch(add(TEAM, "b"))})) == []


def test_a_write_that_is_refused_while_others_change_the_version_is_counted_once() -> None:
    state = Disputes()
    for version in range(9):
        old = {**stored("a", version), "spec": {"replicas": 0}}
        assert note(state, update(old, {**old, "spec": {"replicas": version + 1}}, CHANGED)) == []
        # The controller that writes the status.
        status = patch(add("/metadata/labels/seen", str(version)))
        new = {**old, "status": {"ready": version}}
        note(state, update(old, new, {B: status}, subResource="status"))


def test_writes_that_are_stored_are_counted_also_if_they_have_what_the_api_server_ignores() -> None:
    state, found = Disputes(), []
    for number in range(TIMES["own_result"]):
        old = {**stored(str(number), number), "spec": {"replicas": number}, "status": {"ready": 1}}
        old["metadata"]["generation"] = 7
        new = {**stored(str(number), number), "spec": {"replicas": number + 1}}
        found = note(state, update(old, new, {A: patch(add(TEAM, str(number + 1)))}))
    assert found == [f"{A} changes metadata.labels.team again at each UPDATE"]


def test_whether_a_review_is_looked_at_is_known_without_its_objects() -> None:
    """They may have megabytes, and the event loop waits."""
    evaluation = update(stored("b", 2), stored("a", 2), CHANGED)
    evaluation.request.drop_parsed()
    assert concerns(evaluation)
    assert evaluation.request._parsed is None


@pytest.mark.parametrize(("version", "lines"), [("1", 0), ("2", 1), (None, 1)])
def test_a_write_of_an_old_version_is_not_looked_at(version: str | None, lines: int) -> None:
    state, new = Disputes(), stored("wrong")
    new["metadata"]["resourceVersion"] = version
    found = [note(state, update(stored("b", 2), new, CHANGED)) for _ in range(TIMES["put_back"])]
    assert len(found[-1]) == lines


def test_a_client_that_sets_what_a_webhook_puts_back_is_found() -> None:
    state, found = Disputes(), []
    for _ in range(TIMES["put_back"]):
        evaluation = update(stored("b"), stored("wrong"), {A: patch(add(TEAM, "b"))})
        found += note(state, evaluation)
    assert found == [f"{A} puts back metadata.labels.team, which a client sets again and again"]


def test_changes_of_what_a_request_sets_are_none_of_these() -> None:
    state = Disputes()
    for version in range(9):
        old, new = stored("b", version), stored(f"set{version}", version)
        assert note(state, update(old, new, {A: patch(add(TEAM, f"SET{version}"))})) == []


def test_what_comes_too_seldom_is_forgotten() -> None:
    state = Disputes()
    for version in range(9):
        old = stored(str(version), version)
        evaluation = update(old, old, {A: patch(add(TEAM, str(version + 1)))})
        assert note(state, evaluation, version * (WITHIN_S + 1)) == []


def test_objects_are_told_apart_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disputes, "MAX_OBJECTS", 3)
    state = Disputes()
    for version in range(9):
        for name in "abcd":
            old = stored(str(version), version, name)
            evaluation = update(old, old, {A: patch(add(TEAM, str(version + 1)))})
            assert note(state, evaluation) == []
    assert len(state._objects) == 3


def test_findings_are_bounded() -> None:
    state = Disputes()
    for number in range(MAX_FOUND + 5):
        for version in range(3):
            old = stored(str(version), version, f"o{number}")
            verdicts: dict[str, Verdict] = {f"h{number}.policies.test": patch(add(TEAM, f"{version + 1}"))}
            note(state, update(old, old, verdicts))
    assert len(state.found) == MAX_FOUND + 1
    assert state.found[Dispute("own_result", OTHERS, "", "")].number == 5


def test_no_value_is_kept_and_no_name_of_a_secret() -> None:
    state = Disputes()
    kind = {"group": "", "version": "v1", "kind": "Secret"}
    resource = {"group": "", "version": "v1", "resource": "secrets"}
    for version in range(3):
        old = {
            "metadata": {"name": "credentials", "resourceVersion": str(version)},
            "data": {"k": f"c2VjcmV0{version}"},
        }
        changed = patch(add("/data/k", f"c2VjcmV0{version + 1}"))
        note(state, update(old, old, {A: changed}, kind=kind, resource=resource))
    assert str(state.found) == (
        f"{{Dispute(kind='own_result', webhook='{A}', other='', path='data.k'): "
        "Seen(number=1, last_at=1000.0, example='secrets')}"
    )
    assert "c2VjcmV0" not in repr(state._objects)

"""The laws of the evaluation, with the numbers of its docstring."""

from __future__ import annotations

import copy
from base64 import b64decode
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.pure.core.decision import decide
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Allowed, Denied, DryRunRefused, Failed
from tests.core.build import known
from tests.properties.driving import (
    Trace,
    begin,
    drive,
    drive_in_little_room,
    end_one,
    review_of,
    shown,
    verdict_of,
)
from tests.properties.examples import Examples
from tests.properties.serial import Serial
from tests.properties.strategies import DECISIONS, NAMESPACES, Case, cases, chains, orders

if TYPE_CHECKING:
    from gateway.pure.core.annotations import AuditLevel
    from gateway.pure.core.review import Json

levels = st.sampled_from(["None", "Metadata", "Request"])
RUNS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "order": orders,
    "other": orders,
    "level": levels,
    "remembering": st.booleans(),
    "has_chains": chains,
}
"""How cases of any kind are evaluated."""
EXAMPLES = Examples(
    400,
    case=cases(),
    **RUNS,
    room=st.integers(1, 4),
    late_first=st.booleans(),
    verdict_at=st.integers(0, 5),
)


def serial(case: Case, level: AuditLevel) -> Serial:
    given = decode(orjson.dumps(review_of(case)))
    names = {
        case.webhooks[index].name: mode for index, mode in case.modes.items() if index < len(case.webhooks)
    }
    reference = Serial(given, level, case.phase == "mutate", decisions=DECISIONS, modes=names)
    reference.run(case.webhooks, known(NAMESPACES, given), case.answer)
    return reference


def response(trace: Trace, level: AuditLevel = "Metadata") -> dict[str, Any]:
    answer: dict[str, Any] = orjson.loads(trace.answer(level))
    assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", trace.request.api_version)
    return dict(answer["response"])


def final_object(trace: Trace, answered: dict[str, Any]) -> Json | None:
    """The object that the API server has after applying the response's patch."""
    held = copy.deepcopy(trace.request.object)
    if "patch" in answered:
        held = jsonpatch.apply_patch(held, orjson.loads(b64decode(answered["patch"])))
    return held


@EXAMPLES.law
def test_1_order_of_arrival_is_irrelevant(
    case: Case, order: list[int], other: list[int], level: AuditLevel, remembering: bool
) -> None:
    answers = [drive(case, each, remembering=remembering).answer(level) for each in (order, other)]
    assert answers[0] == answers[1]


@EXAMPLES.law
def test_1_verdicts_that_come_together_count_as_those_that_come_one_by_one(
    case: Case, order: list[int], other: list[int], level: AuditLevel, remembering: bool
) -> None:
    together = drive(case, order, remembering=remembering, together=True)
    assert together.answer(level) == drive(case, other, remembering=remembering).answer(level)


@EXAMPLES.law
def test_2_equal_to_a_serial_run(
    case: Case, order: list[int], remembering: bool, has_chains: list[bool], level: AuditLevel
) -> None:
    check_equal_to_serial(case, drive(case, order, remembering=remembering, chains=has_chains), level)


@pytest.mark.slow
@given(case=cases(), order=orders, remembering=st.booleans(), has_chains=chains, level=levels)
@settings(max_examples=8 * settings().max_examples)
def test_2_equal_to_a_serial_run_in_many_cases(
    case: Case, order: list[int], remembering: bool, has_chains: list[bool], level: AuditLevel
) -> None:
    check_equal_to_serial(case, drive(case, order, remembering=remembering, chains=has_chains), level)


def check_equal_to_serial(case: Case, trace: Trace, level: AuditLevel) -> None:
    """Check that *trace*, a run of *case*, has the answer and the calls of a serial run."""
    reference = serial(case, level)
    answered = response(trace, level)
    # The object after the response's patch, if any, and the object of the evaluation.
    final = final_object(trace, answered)
    assert same(trace.evaluation.final_object, reference.held)
    assert same(final, reference.held if not reference.rejections else trace.request.object)
    assert answered.pop("patchType", None) == ("JSONPatch" if "patch" in answered else None)
    assert ("patch" in answered) is not same(final, trace.request.object)
    answered.pop("patch", None)
    # Everything else, exactly.
    assert answered == reference.response()
    # The calls whose verdicts counted, and their objects, are those of the serial run.
    counted = [outcome.call for outcome in trace.evaluation.outcomes if outcome.call is not None]
    assert [(call.invocation.webhook.name, shown(call)) for call in counted] == reference.calls


@EXAMPLES.law
def test_2_equal_to_a_serial_run_where_there_is_room_for_few_calls(
    case: Case, order: list[int], remembering: bool, room: int
) -> None:
    if case.phase != "mutate":
        return
    # A serial run has at most one open call, so room for one is enough.
    crowded = drive_in_little_room(case, order, room, remembering=remembering)
    assert crowded.answer() == drive(case, order).answer()


@EXAMPLES.law
def test_2_webhooks_with_side_effects_are_called_as_in_a_serial_run_and_no_more(
    case: Case, order: list[int], remembering: bool, has_chains: list[bool]
) -> None:
    trace = drive(case, order, remembering=remembering, chains=has_chains)
    with_effects = {hook.name for hook in case.webhooks if hook.side_effects != "None"}
    made = [
        (call.invocation.webhook.name, shown(call))
        for call in trace.made
        if call.invocation.webhook.name in with_effects
    ]
    expected = [call for call in serial(case, "None").calls if call[0] in with_effects]
    assert made == expected


@EXAMPLES.law
def test_2_every_call_carries_the_original_request_but_for_the_object(
    case: Case, order: list[int], remembering: bool
) -> None:
    trace = drive(case, order, remembering=remembering)
    for call in trace.made:
        document = orjson.loads(call.payload.json)
        assert list(document) == list(case.request)
        assert {**document, "object": None} == {**case.request, "object": None}
        assert same(document["object"], call.payload.object)
        if same(document["object"], trace.request.object) and call.payload.json is not trace.request.json:
            # Changed and changed back.
            assert len(trace.shown) > 1


@EXAMPLES.law
def test_3_a_denial_by_an_enforced_webhook_always_rejects(case: Case, order: list[int]) -> None:
    trace = drive(case, order)
    enforced = [o for o in trace.evaluation.outcomes if o.mode == "Enforce"]
    denials = [o for o in enforced if isinstance(o.verdict, Denied | DryRunRefused)]
    answered = response(trace)
    if denials:
        assert answered["allowed"] is False
        assert answered["status"]["code"] >= 400
        assert "patch" not in answered
    if not denials and answered["allowed"] is False:
        assert any(isinstance(o.verdict, Failed) for o in enforced)


@EXAMPLES.law
def test_4_a_failure_rejects_under_fail_and_is_annotated_under_ignore(case: Case, order: list[int]) -> None:
    trace = drive(case, order)
    answered = response(trace)
    failures = [o for o in trace.evaluation.outcomes if isinstance(o.verdict, Failed)]
    closed = [
        o.invocation.webhook
        for o in failures
        if o.mode == "Enforce" and o.invocation.webhook.failure_policy == "Fail"
    ]
    opened = [o.invocation.webhook.name for o in failures if o.invocation.webhook.failure_policy == "Ignore"]
    for hook in closed:
        assert answered["allowed"] is False
        assert f'failed calling webhook "{hook.name}": ' in answered["status"]["message"]
    found = [v for k, v in answered.get("auditAnnotations", {}).items() if k.startswith("failed-open.")]
    assert sorted(found) == sorted(opened)
    assert opened == list(serial(case, "Metadata").failed_open)
    others = [o for o in trace.evaluation.outcomes if not isinstance(o.verdict, Failed | Allowed)]
    if not closed and not others:
        assert answered["allowed"] is True


@EXAMPLES.law
def test_5_the_patch_is_sound_and_absent_where_nothing_changed(
    case: Case, order: list[int], level: AuditLevel
) -> None:
    if case.phase != "mutate":
        return
    trace = drive(case, order)
    original, final = trace.request.object, trace.evaluation.final_object
    decision = decide(trace.evaluation, level)
    if not decision.allowed or original is None or same(original, final):
        assert decision.patch == b""
        return
    operations = orjson.loads(decision.patch)
    assert operations
    assert {operation["op"] for operation in operations} <= {"add", "remove", "replace"}
    for apply in (apply_patch, jsonpatch.apply_patch):
        assert same(apply(copy.deepcopy(original), copy.deepcopy(operations)), final)
    strictly(copy.deepcopy(original), operations)


def strictly(document: Any, operations: list[dict[str, Any]]) -> None:
    """Check that the path of every operation exists, and that indices are plain numbers."""
    for operation in operations:
        assert set(operation) == {"op", "path"} | ({"value"} if operation["op"] != "remove" else set())
        *parents, last = [
            token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")[1:]
        ]
        node = document
        for token in parents:
            node = node[int(token)] if isinstance(node, list) else node[token]
        if isinstance(node, list):
            assert last == str(int(last))
            assert 0 <= int(last) < len(node) + (operation["op"] == "add")
        else:
            assert (last in node) is (operation["op"] != "add")
        document = jsonpatch.apply_patch(document, [operation])


@EXAMPLES.law
def test_6_every_rejection_names_its_webhook_in_order(case: Case, order: list[int]) -> None:
    trace = drive(case, order)
    rejecting = [o.invocation.webhook.name for o in trace.evaluation.outcomes if o.rejects]
    answered = response(trace)
    assert answered["allowed"] is not bool(rejecting)
    message = answered.get("status", {}).get("message", "")
    position = -1
    for name in rejecting:
        position = message.index(name, position + 1)
    if case.phase == "mutate":
        assert len(rejecting) <= 1


@EXAMPLES.law
def test_7_after_the_end_there_are_no_calls_and_late_verdicts_change_nothing(
    case: Case, order: list[int], verdict_at: int
) -> None:
    trace = drive(case, order)
    before, outcomes = trace.answer(), list(trace.evaluation.outcomes)
    late = [*trace.withdrawn, *trace.made[verdict_at:]]
    for call in late:
        for verdict in (
            verdict_of(case, call),
            Denied(),
            Allowed(b'[{"op":"add","path":"/late","value":1}]'),
        ):
            assert not trace.evaluation.receive(call, verdict)
    assert trace.evaluation.take_withdrawn() == []
    assert trace.evaluation.outcomes == outcomes
    assert trace.answer() == before


@EXAMPLES.law
def test_7_verdicts_on_cancelled_calls_change_nothing(case: Case, order: list[int], late_first: bool) -> None:
    quiet = drive(case, order)
    trace = begin(case, decode(orjson.dumps(review_of(case))))
    told: set[int] = set()
    step = 0
    while not trace.evaluation.done:
        if late_first:
            for call in trace.withdrawn:
                if id(call) not in told:
                    told.add(id(call))
                    assert not trace.evaluation.receive(call, Denied(message="too late"))
        end_one(case, trace, order[step] if step < len(order) else 0)
        step += 1
    assert trace.answer() == quiet.answer()


@EXAMPLES.law
def test_8_calls_are_bounded(case: Case, order: list[int], remembering: bool, has_chains: list[bool]) -> None:
    trace = drive(case, order, remembering=remembering, chains=has_chains)
    evaluation = trace.evaluation
    rounds = 1 + any(outcome.round == 1 for outcome in evaluation.outcomes)
    changes = sum(outcome.has_changed for outcome in evaluation.outcomes)
    # A chain is made again after a failure, a dropped call, and a webhook that no longer matches.
    breaks = (
        len(trace.dropped)
        + len(evaluation.exclusions)
        + sum(outcome.call is None or outcome.call.is_followed for outcome in evaluation.outcomes)
    )
    assert len(trace.made) <= len(case.webhooks) * (rounds + changes + breaks)
    each = Counter((call.index, id(call.payload)) for call in trace.made if call not in trace.after)
    assert not each or max(each.values()) <= rounds
    followers = Counter((call.index, id(after)) for call, after in trace.after.items())
    assert not followers or max(followers.values()) == 1
    # Every call was used, discarded with its verdict, or cancelled before its verdict.
    used = [outcome.call for outcome in evaluation.outcomes if outcome.call is not None]
    ahead = [call for call in trace.made if call.is_ahead]
    assert evaluation.kept_ahead == sum(call.is_ahead for call in used)
    assert evaluation.kept_ahead + evaluation.discarded_ahead == len(ahead)
    assert all(call.verdict is not None for call in used)
    assert {id(call) for call in used}.isdisjoint(map(id, trace.withdrawn))
    unanswered = {id(call) for call in trace.made if call.verdict is None}
    assert unanswered == set(map(id, [*trace.withdrawn, *trace.dropped]))
    if case.phase == "validate":
        assert len(used) == len(trace.made)


@EXAMPLES.law
def test_9_an_answer_has_the_same_bytes_with_and_without_webhooks_in_the_mode_shadow(
    case: Case,
    order: list[int],
    other: list[int],
    level: AuditLevel,
    remembering: bool,
    has_chains: list[bool],
) -> None:
    with_shadows = drive(case, order, remembering=remembering, chains=has_chains)
    assert with_shadows.answer(level) == drive(case.without("Shadow"), other).answer(level)


@EXAMPLES.law
def test_9_webhooks_in_the_modes_warn_and_audit_only_add_warnings_and_annotations(
    case: Case,
    order: list[int],
    other: list[int],
    level: AuditLevel,
    remembering: bool,
    has_chains: list[bool],
) -> None:
    without = response(drive(case.without("Warn", "Audit"), other), level)
    trace = drive(case, order, remembering=remembering, chains=has_chains)
    answered = response(trace, level)
    warnings = without.pop("warnings", [])
    heard = answered.pop("warnings", [])
    assert heard[: len(warnings)] == warnings
    if "Warn" not in {outcome.mode for outcome in trace.evaluation.outcomes}:
        assert heard == warnings
    annotations, others = answered.pop("auditAnnotations", {}), without.pop("auditAnnotations", {})
    # The numbers in keys count the webhooks that are called.
    assert Counter(others.values()) <= Counter(annotations.values())
    assert answered == without


@EXAMPLES.law
def test_arguments_are_not_changed(case: Case, order: list[int]) -> None:
    trace = drive(case, order)
    trace.answer("Request")
    assert trace.request.document == case.request
    assert orjson.loads(trace.request.json) == case.request


@EXAMPLES.law
def test_equal_runs_give_equal_bytes(case: Case, order: list[int], level: AuditLevel) -> None:
    trace = drive(case, order)
    assert trace.answer(level) == trace.answer(level) == drive(case, order).answer(level)

"""The laws of every review in every run: the eight laws of the evaluation, and one answer by the deadline."""

from __future__ import annotations

import copy
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jsonpatch
import orjson

from admission_gateway_worker.json_patch.diff import same
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.response import encode
from gateway.pure.core.verdict import Allowed, Denied, DryRunRefused, Failed
from tests.properties.serial import Serial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.core.call import Call
    from gateway.pure.core.review import Json
    from gateway.pure.core.verdict import Verdict
    from tests.simulation.record import Record, Recorded
    from tests.simulation.run import Simulation

MAX_ATTEMPTS = 4
"""Attempts of a call without side effects: on a stream that breaks, as a unary call, and both again at
another endpoint."""

Counted = list[tuple[str, "Json | None", "Verdict"]]
"""The calls whose verdicts counted, in their order: webhook, object shown, verdict."""


def check_reviews(simulation: Simulation) -> None:
    """Check every review by itself.

    Raises:
        AssertionError: a law does not hold; a note names the review.
    """
    for record in simulation.records.values():
        try:
            _answered_once_and_in_time(record)
            if record.evaluation is None:
                assert record.cancelled_at is not None, "answered without an evaluation"
                continue  # a large review, given up before it was read
            _workers_receive_only_required_calls(simulation, record, record.evaluation)
            if record.answers:
                _check_answer(record, record.evaluation)
        except AssertionError as error:
            uid = record.review.uid
            error.add_note(
                f"in review {uid} with the deadline {record.deadline:.6f}\n{simulation.journal.tail(uid)}"
            )
            raise


def _answered_once_and_in_time(record: Record) -> None:
    assert not record.crashes, f"bugs in the gateway: {record.crashes}"
    if record.cancelled_at is not None:
        assert not record.answers, "answered after its cancellation"
        return
    assert len(record.answers) == 1, f"answered {len(record.answers)} times"
    assert record.answers[0][0] <= record.deadline, (
        f"answered at {record.answers[0][0]}, after {record.deadline}"
    )


def _check_answer(record: Record, evaluation: Recorded) -> None:
    answer = record.answers[0][1]
    document = orjson.loads(answer)
    assert (document["kind"], document["apiVersion"]) == ("AdmissionReview", evaluation.request.api_version)
    response: dict[str, Any] = document["response"]
    counted: Counted = [
        (outcome.invocation.webhook.name, outcome.call.payload.object, outcome.call.verdict)
        for outcome in evaluation.outcomes
        if outcome.call is not None and outcome.call.verdict is not None
    ]
    assert len(counted) == sum(outcome.call is not None for outcome in evaluation.outcomes)
    reference = _serial_run(record, evaluation, counted)
    _law_1_order_is_irrelevant(record, evaluation, counted)
    _law_2_equal_to_a_serial_run(evaluation, reference, response)
    _laws_3_and_4_denials_and_failures(evaluation, reference, response)
    _law_6_rejections_are_named_in_order(evaluation, response)
    _law_7_nothing_after_the_end(evaluation)
    _law_8_calls_are_bounded(record, evaluation)


def _serial_run(record: Record, evaluation: Recorded, counted: Counted) -> Serial:
    """Return the reference with the verdicts that counted. It must make exactly these calls."""
    left = iter(counted)

    def answer(name: str, held: Json | None) -> Verdict:
        expected, shown, verdict = next(left, ("no webhook", None, Denied()))
        assert name == expected, f"a serial run calls {name} next, the gateway called {expected}"
        assert same(shown, held), f"{name} got another object than in a serial run"
        return verdict

    reference = Serial(evaluation.request, record.audit_level, evaluation.is_mutating)
    reference.run(
        record.selection.webhooks, record.snapshot.namespaces.get(evaluation.request.namespace), answer
    )
    assert next(left, None) is None, "the gateway made more calls than a serial run"
    return reference


def _law_1_order_is_irrelevant(record: Record, evaluation: Recorded, counted: Counted) -> None:
    """An evaluation of one call at a time, with the verdicts that counted, gives the same bytes."""
    again = Evaluation(_without_speculation(record.selection), evaluation.request, evaluation.namespace)
    calls = list(again.start())
    for name, _, verdict in counted:
        call = calls.pop(0)
        assert call.invocation.webhook.name == name
        calls += again.receive(call, verdict)
    assert again.done
    request = evaluation.request
    repeated = encode(request.api_version, request.uid, decide(again, record.audit_level))
    assert repeated == record.answers[0][1]


@lru_cache(maxsize=64)
def _without_speculation(selection: Selection) -> Selection:
    """Return the same webhooks, none of which may be called speculatively."""
    hooks = [
        replace(hook, side_effects="NoneOnDryRun") if hook.side_effects == "None" else hook
        for hook in selection.webhooks
    ]
    return Selection(selection.phase, hooks)


def _law_2_equal_to_a_serial_run(evaluation: Recorded, reference: Serial, response: dict[str, Any]) -> None:
    """Law 5 too: the patch, and nothing but the patch, gives the object that a serial run ends with."""
    original = evaluation.request.object
    final = copy.deepcopy(original)
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        final = jsonpatch.apply_patch(final, orjson.loads(b64decode(response["patch"])))
    assert same(evaluation.final_object, reference.held)
    assert same(final, original if reference.rejections else reference.held)
    assert ("patch" in response) is not same(final, original)
    rest = {name: value for name, value in response.items() if name not in ("patch", "patchType")}
    assert rest == reference.response()


def _laws_3_and_4_denials_and_failures(
    evaluation: Recorded, reference: Serial, response: dict[str, Any]
) -> None:
    rejects = False
    failed_open = []
    for outcome in evaluation.outcomes:
        hook, verdict = outcome.invocation.webhook, outcome.verdict
        if isinstance(verdict, Denied | DryRunRefused):
            rejects = True
        elif isinstance(verdict, Failed) and hook.failure_policy == "Fail":
            rejects = True
            assert f'failed calling webhook "{hook.name}": {verdict.cause}' in response["status"]["message"]
        elif isinstance(verdict, Failed):
            failed_open.append(hook.name)
    assert response["allowed"] is not rejects
    assert failed_open == reference.failed_open


def _law_6_rejections_are_named_in_order(evaluation: Recorded, response: dict[str, Any]) -> None:
    message, position = response.get("status", {}).get("message", ""), -1
    for outcome in evaluation.outcomes:
        if outcome.rejects:
            position = message.index(outcome.invocation.webhook.name, position + 1)


def _law_7_nothing_after_the_end(evaluation: Recorded) -> None:
    """Call Evaluation.receive_all itself: that of Recorded forbids verdicts after the end."""
    outcomes, final = list(evaluation.outcomes), evaluation.final_object
    for call in evaluation.made:
        for late in (Denied(), Allowed(b'[{"op":"add","path":"/late","value":1}]')):
            assert not Evaluation.receive_all(evaluation, [(call, late)])
    assert evaluation.take_withdrawn() == []
    assert evaluation.outcomes == outcomes
    assert evaluation.final_object is final


def _law_8_calls_are_bounded(record: Record, evaluation: Recorded) -> None:
    rounds = 1 + any(outcome.round == 1 for outcome in evaluation.outcomes)
    changes = sum(outcome.has_changed for outcome in evaluation.outcomes)
    no_room = {call for call, _ in evaluation.no_room}
    made = [call for call in evaluation.made if call not in no_room]
    # A chain is made again after a failure, a dropped call, and a webhook that no longer matches.
    breaks = len(evaluation.dropped) + len(no_room) + len(evaluation.exclusions)
    breaks += sum(outcome.call is None or outcome.call.is_followed for outcome in evaluation.outcomes)
    assert len(made) <= len(record.selection.webhooks) * (rounds + changes + breaks)
    each = Counter((call.index, id(call.payload)) for call in made if call not in evaluation.after)
    assert max(each.values(), default=0) <= rounds
    used = {outcome.call for outcome in evaluation.outcomes if outcome.call is not None}
    ahead = {call for call in evaluation.made if call.is_ahead}
    forgotten = {call for call in ahead & no_room if call.verdict is None}.difference(evaluation.unwanted)
    assert evaluation.kept_ahead == len(used & ahead)
    assert evaluation.kept_ahead + evaluation.discarded_ahead == len(ahead - forgotten)
    assert used.isdisjoint(evaluation.unwanted)
    unanswered = {*evaluation.unwanted, *evaluation.dropped, *forgotten}
    assert {c for c in evaluation.made if c.verdict is None} == unanswered
    if not evaluation.is_mutating:
        assert len(used) == len(evaluation.made)


def _workers_receive_only_required_calls(
    simulation: Simulation, record: Record, evaluation: Recorded
) -> None:
    """A webhook with side effects is called once, and only if a serial run calls it."""
    received = Counter(_key(q.policy, q.shown) for q in simulation.questions_of(record.review.uid))
    made = Counter(map(_key_of, evaluation.made))
    once = {hook.name for hook in record.selection.webhooks if hook.side_effects != "None"}
    chained = {call.invocation.webhook.name for call in evaluation.after}
    assert not once & chained
    for key, times in received.items():
        if key[0] in chained:
            # The object of a call that did not count is not recorded.
            continue
        limit = made[key] if key[0] in once else MAX_ATTEMPTS * made[key]
        assert times <= limit, f"{key} was called {times} times, for {made[key]} calls"
    if record.answers:
        required = [outcome.call for outcome in evaluation.outcomes if outcome.call is not None]
        assert [_key_of(call) for call in evaluation.made if call.invocation.webhook.name in once] == [
            _key_of(call) for call in required if call.invocation.webhook.name in once
        ]


def _key_of(call: Call) -> tuple[str, bytes]:
    return _key(call.invocation.webhook.name, call.payload.object)


def _key(name: str, shown: Json | None) -> tuple[str, bytes]:
    return name, orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)


def calls_of(simulation: Simulation) -> Iterator[tuple[Record, Call]]:
    """Yield all calls of all reviews."""
    for record in simulation.records.values():
        if record.evaluation is None:
            continue
        for call in record.evaluation.made:
            yield record, call

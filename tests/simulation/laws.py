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

from gateway.core.decision import decide
from gateway.core.diff import same
from gateway.core.evaluation import Evaluation
from gateway.core.matching import Selection
from gateway.core.response import encode
from gateway.core.verdict import Allowed, Denied, DryRunRefused, Failed
from tests.properties.serial import Serial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.core.call import Call
    from gateway.core.review import Json
    from gateway.core.verdict import Verdict
    from tests.simulation.record import Record, Recorded
    from tests.simulation.run import Simulation

MOST_TIMES = 4
"""How often a webhook without side effects is asked the same at most: on a stream that breaks, by itself, and
both once more elsewhere."""

Counted = list[tuple[str, "Json | None", "Verdict"]]
"""The calls whose verdicts counted, in their order: webhook, object shown, verdict."""


def judge_reviews(simulation: Simulation) -> None:
    """Check every review by itself.

    Raises:
        AssertionError: something does not hold; a note says of which review.
    """
    for record in simulation.records.values():
        try:
            _answered_once_and_in_time(record)
            if record.evaluation is None:
                assert record.cancelled_at is not None, "answered without an evaluation"
                continue  # a large review, given up before it was read
            _only_what_was_wanted_is_asked(simulation, record, record.evaluation)
            if record.answers:
                _check_answer(record, record.evaluation)
        except AssertionError as error:
            uid = record.review.uid
            error.add_note(
                f"of review {uid}, which had until {record.deadline:.6f}\n{simulation.journal.tail(uid)}"
            )
            raise


def _answered_once_and_in_time(record: Record) -> None:
    assert not record.crashes, f"a bug of the gateway's: {record.crashes}"
    if record.cancelled_at is not None:
        assert not record.answers, "answered, though nobody wants to know"
        return
    assert len(record.answers) == 1, f"answered {len(record.answers)} times"
    assert record.answers[0][0] <= record.deadline, (
        f"answered at {record.answers[0][0]}, after {record.deadline}"
    )


def _check_answer(record: Record, evaluation: Recorded) -> None:
    answer = record.answers[0][1]
    document = orjson.loads(answer)
    assert (document["kind"], document["apiVersion"]) == ("AdmissionReview", evaluation.request.api_version)
    said: dict[str, Any] = document["response"]
    counted: Counted = [
        (outcome.invocation.webhook.name, outcome.call.payload.object, outcome.call.verdict)
        for outcome in evaluation.outcomes
        if outcome.call is not None and outcome.call.verdict is not None
    ]
    assert len(counted) == sum(outcome.call is not None for outcome in evaluation.outcomes)
    reference = _asked_serially(record, evaluation, counted)
    _law_1_order_is_irrelevant(record, evaluation, counted)
    _law_2_equal_to_a_serial_run(evaluation, reference, said)
    _laws_3_and_4_denials_and_failures(evaluation, reference, said)
    _law_6_rejections_are_named_in_order(evaluation, said)
    _law_7_nothing_after_the_end(evaluation)
    _law_8_calls_are_bounded(record, evaluation)


def _asked_serially(record: Record, evaluation: Recorded, counted: Counted) -> Serial:
    """Return the reference, given the verdicts that counted; it must ask for just those."""
    left = iter(counted)

    def answer(name: str, held: Json | None) -> Verdict:
        expected, shown, verdict = next(left, ("nobody", None, Denied()))
        assert name == expected, f"a serial run would ask {name} now, and {expected} was"
        assert same(shown, held), f"{name} was shown something else than in a serial run"
        return verdict

    reference = Serial(evaluation.request, record.audit_level, evaluation.is_mutating)
    reference.run(
        record.selection.webhooks, record.snapshot.namespaces.get(evaluation.request.namespace), answer
    )
    assert next(left, None) is None, "more was asked than in a serial run"
    return reference


def _law_1_order_is_irrelevant(record: Record, evaluation: Recorded, counted: Counted) -> None:
    """The core, asked one by one and given the verdicts that counted, says the same to the last byte."""
    again = Evaluation(_unhurried(record.selection), evaluation.request, evaluation.namespace)
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
def _unhurried(selection: Selection) -> Selection:
    """Return the same webhooks, none of which may be asked ahead of its turn."""
    hooks = [
        replace(hook, side_effects="NoneOnDryRun") if hook.side_effects == "None" else hook
        for hook in selection.webhooks
    ]
    return Selection(selection.phase, hooks)


def _law_2_equal_to_a_serial_run(evaluation: Recorded, reference: Serial, said: dict[str, Any]) -> None:
    """Law 5 with it: the patch, and nothing but the patch, gives the object that a serial run ends with."""
    original = evaluation.request.object
    final = copy.deepcopy(original)
    if "patch" in said:
        assert said["patchType"] == "JSONPatch"
        final = jsonpatch.apply_patch(final, orjson.loads(b64decode(said["patch"])))
    assert same(evaluation.final_object, reference.held)
    assert same(final, original if reference.rejections else reference.held)
    assert ("patch" in said) is not same(final, original)
    rest = {name: value for name, value in said.items() if name not in ("patch", "patchType")}
    assert rest == reference.response()


def _laws_3_and_4_denials_and_failures(evaluation: Recorded, reference: Serial, said: dict[str, Any]) -> None:
    rejects = False
    opened = []
    for outcome in evaluation.outcomes:
        hook, verdict = outcome.invocation.webhook, outcome.verdict
        if isinstance(verdict, Denied | DryRunRefused):
            rejects = True
        elif isinstance(verdict, Failed) and hook.failure_policy == "Fail":
            rejects = True
            assert f'failed calling webhook "{hook.name}": {verdict.cause}' in said["status"]["message"]
        elif isinstance(verdict, Failed):
            opened.append(hook.name)
    assert said["allowed"] is not rejects
    assert opened == reference.failed_open


def _law_6_rejections_are_named_in_order(evaluation: Recorded, said: dict[str, Any]) -> None:
    message, position = said.get("status", {}).get("message", ""), -1
    for outcome in evaluation.outcomes:
        if outcome.rejects:
            position = message.index(outcome.invocation.webhook.name, position + 1)


def _law_7_nothing_after_the_end(evaluation: Recorded) -> None:
    """Evaluation.receive itself: the one that keeps records would call it a fault of the dispatcher."""
    outcomes, final = list(evaluation.outcomes), evaluation.final_object
    for call in evaluation.made:
        for late in (Denied(), Allowed(b'[{"op":"add","path":"/late","value":1}]')):
            assert not Evaluation.receive(evaluation, call, late)
    assert evaluation.take_withdrawn() == []
    assert evaluation.outcomes == outcomes
    assert evaluation.final_object is final


def _law_8_calls_are_bounded(record: Record, evaluation: Recorded) -> None:
    rounds = 1 + any(outcome.round == 1 for outcome in evaluation.outcomes)
    changes = sum(outcome.has_changed for outcome in evaluation.outcomes)
    no_room = {call for call, _ in evaluation.no_room}
    made = [call for call in evaluation.made if call not in no_room]
    assert len(made) <= len(record.selection.webhooks) * (rounds + changes)
    each = Counter((call.index, id(call.payload)) for call in made)
    assert max(each.values(), default=0) <= rounds
    used = {outcome.call for outcome in evaluation.outcomes if outcome.call is not None}
    ahead = {call for call in evaluation.made if call.is_ahead}
    forgotten = {call for call in ahead & no_room if call.verdict is None}
    assert evaluation.kept_ahead == len(used & ahead)
    assert evaluation.kept_ahead + evaluation.discarded_ahead == len(ahead - forgotten)
    assert used.isdisjoint(evaluation.unwanted)
    assert {c for c in evaluation.made if c.verdict is None} == {*evaluation.unwanted, *forgotten}
    if not evaluation.is_mutating:
        assert len(used) == len(evaluation.made)


def _only_what_was_wanted_is_asked(simulation: Simulation, record: Record, evaluation: Recorded) -> None:
    """Whoever has side effects is asked when a serial run would, and once."""
    asked = Counter(_key(q.policy, q.shown) for q in simulation.questions_of(record.review.uid))
    made = Counter(map(_key_of, evaluation.made))
    once = {hook.name for hook in record.selection.webhooks if hook.side_effects != "None"}
    for key, times in asked.items():
        most = made[key] if key[0] in once else MOST_TIMES * made[key]
        assert times <= most, f"{key} was asked {times} times, for {made[key]} calls"
    if record.answers:
        wanted = [outcome.call for outcome in evaluation.outcomes if outcome.call is not None]
        assert [_key_of(call) for call in evaluation.made if call.invocation.webhook.name in once] == [
            _key_of(call) for call in wanted if call.invocation.webhook.name in once
        ]


def _key_of(call: Call) -> tuple[str, bytes]:
    return _key(call.invocation.webhook.name, call.payload.object)


def _key(name: str, shown: Json | None) -> tuple[str, bytes]:
    return name, orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)


def calls_of(simulation: Simulation) -> Iterator[tuple[Record, Call]]:
    """Yield all calls that any review wanted."""
    for record in simulation.records.values():
        if record.evaluation is None:
            continue
        for call in record.evaluation.made:
            yield record, call

"""The walk step by step: calls, withdrawn calls, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.pure.core.conditions import LongEvaluation
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.review import decode
from gateway.pure.core.speculation import ChangeRates
from gateway.pure.core.verdict import ALLOWED, Denied, Failed, FailureReason
from gateway.pure.core.webhook import WorkerRef
from tests.core.build import POD, add, body, document, labelled, patch, request, settle, webhook
from tests.properties.strategies import FakeConditions

DEEP_REVIEW = body(document(oldObject="deep")).replace(b'"deep"', b'{"a":' * 300 + b"1" + b"}" * 300)
"""Only the request nests deeply, not the object."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.call import Call
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Webhook

ALWAYS = ("always", None)
TEAM_B = labelled("team", "b")
TO_TEAM_B = patch({"op": "replace", "path": "/metadata/labels/team", "value": "b"})
NO_EFFECT = patch({"op": "test", "path": "/spec/replicas", "value": 1})


def hooks(letters: str, **members: Any) -> list[Webhook]:
    return [webhook(letter, **members) for letter in letters]


def begin(webhooks: Sequence[Webhook], memory: ChangeRates | None = None, **members: Any) -> Evaluation:
    return Evaluation(Selection(webhooks[0].phase, webhooks), request(**members), None, memory)


def names(calls: Sequence[Call]) -> str:
    return "".join(call.invocation.webhook.name for call in calls)


def over(evaluation: Evaluation) -> bool:
    return evaluation.done


def settled(evaluation: Evaluation) -> str:
    """The outcomes in order: the webhook's name, followed by the round if it is not the first."""
    return " ".join(
        outcome.invocation.webhook.name + ("" if outcome.round == 0 else str(outcome.round))
        for outcome in evaluation.outcomes
    )


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_review_without_matching_webhooks_is_done_at_once(phase: Any) -> None:
    evaluation = Evaluation(Selection(phase, ()), request(), None)
    assert not over(evaluation)
    assert evaluation.start() == []
    assert over(evaluation)
    evaluation = begin([webhook(phase=phase, object_selector=TEAM_B)])
    assert evaluation.start() == []
    assert over(evaluation)
    assert evaluation.outcomes == []


def test_validating_webhooks_are_all_called_at_once_and_all_awaited() -> None:
    evaluation = begin(hooks("abc", phase="validate", side_effects="NoneOnDryRun"))
    a, b, c = evaluation.start()
    assert evaluation.receive(c, Denied()) == ()
    assert evaluation.receive(a, Denied()) == []
    assert not over(evaluation)
    assert evaluation.receive(b, ALLOWED) == []
    assert over(evaluation)
    assert settled(evaluation) == "a b c"
    assert evaluation.take_withdrawn() == []
    assert (evaluation.kept_ahead, evaluation.discarded_ahead) == (0, 0)


def test_mutating_webhooks_without_side_effects_are_called_speculatively() -> None:
    evaluation = begin([*hooks("ab"), webhook("c", side_effects="NoneOnDryRun"), webhook("d")])
    a, b, d = evaluation.start()
    assert names([a, b, d]) == "abd"
    assert [call.is_ahead for call in (a, b, d)] == [False, True, True]
    assert a.payload is b.payload is d.payload
    assert evaluation.receive(d, ALLOWED) == ()
    assert evaluation.receive(b, ALLOWED) == ()
    (c,) = evaluation.receive(a, ALLOWED)
    assert names([c]) == "c"
    assert not c.is_ahead
    assert evaluation.receive(c, ALLOWED) == []
    assert over(evaluation)
    assert (evaluation.kept_ahead, evaluation.discarded_ahead) == (2, 0)


def test_a_change_discards_speculative_calls_and_repeats_them() -> None:
    evaluation = begin(hooks("abc"))
    a, b, c = evaluation.start()
    assert evaluation.receive(b, Denied(message="of an object that is no more")) == ()
    assert evaluation.take_withdrawn() == []
    again = evaluation.receive(a, patch(add("/x", 1)))
    assert names(again) == "bc"
    assert evaluation.has_withdrawn
    assert evaluation.take_withdrawn() == [c]
    assert evaluation.take_withdrawn() == []
    assert orjson.loads(again[0].payload.json)["object"] == {**POD, "x": 1}
    for call in again:
        evaluation.receive(call, ALLOWED)
    assert over(evaluation)
    assert settled(evaluation) == "a b c"
    assert evaluation.final_object == {**POD, "x": 1}
    assert (evaluation.kept_ahead, evaluation.discarded_ahead) == (1, 2)


@pytest.mark.parametrize("verdict", [NO_EFFECT, patch(), ALLOWED, Failed(FailureReason.DEADLINE, "late")])
def test_a_patch_without_effect_discards_nothing(verdict: Any) -> None:
    evaluation = begin(hooks("ab", failure_policy="Ignore"))
    a, b = evaluation.start()
    assert evaluation.receive(a, verdict) == []
    assert not evaluation.has_withdrawn
    evaluation.receive(b, ALLOWED)
    assert over(evaluation)
    assert evaluation.final_object is evaluation.request.object


def test_a_change_from_1_to_true_is_a_change() -> None:
    evaluation = begin(hooks("ab"))
    a, _ = evaluation.start()
    again = evaluation.receive(a, patch({"op": "replace", "path": "/spec/replicas", "value": True}))
    assert names(again) == "b"


@pytest.mark.parametrize("rejection", [Denied(), Failed(FailureReason.DEADLINE, "late")])
def test_a_rejection_ends_mutation_and_withdraws_the_calls_in_flight(rejection: Any) -> None:
    evaluation = begin(hooks("abc"))
    a, b, c = evaluation.start()
    evaluation.receive(b, ALLOWED)
    assert evaluation.receive(a, rejection) == []
    assert over(evaluation)
    assert evaluation.take_withdrawn() == [c]
    assert settled(evaluation) == "a"
    assert evaluation.receive(c, patch(add("/x", 1))) == ()
    assert settled(evaluation) == "a"
    assert evaluation.final_object == POD


def test_a_failure_under_ignore_ends_nothing() -> None:
    evaluation = settle(
        hooks("ab", failure_policy="Ignore"), request(), {"a": Failed(FailureReason.STATUS, "no")}
    )
    assert settled(evaluation) == "a b"


def test_a_verdict_counts_once() -> None:
    evaluation = begin(hooks("ab"))
    a, b = evaluation.start()
    evaluation.receive(b, ALLOWED)
    assert evaluation.receive(b, Denied()) == ()
    evaluation.receive(a, ALLOWED)
    assert evaluation.receive(a, Denied()) == ()
    assert [outcome.verdict for outcome in evaluation.outcomes] == [ALLOWED, ALLOWED]


def test_matching_uses_the_object_at_the_webhooks_turn() -> None:
    joins = [webhook("a"), webhook("b", object_selector=TEAM_B)]
    evaluation = begin(joins)
    (a,) = evaluation.start()
    (b,) = evaluation.receive(a, TO_TEAM_B)
    assert names([b]) == "b"
    leaves = [webhook("a"), webhook("b", object_selector=labelled("team", "a"))]
    evaluation = begin(leaves)
    a, b = evaluation.start()
    assert evaluation.receive(a, TO_TEAM_B) == []
    assert evaluation.take_withdrawn() == [b]
    assert settled(evaluation) == "a"


def test_an_unknown_namespace_is_a_failure_without_a_call() -> None:
    walled = [webhook("a"), webhook("b", namespace_selector=TEAM_B), webhook("c")]
    evaluation = begin(walled)
    a, c = evaluation.start()
    assert names([a, c]) == "ac"
    assert not evaluation.outcomes
    evaluation.receive(a, ALLOWED)
    assert over(evaluation)
    assert settled(evaluation) == "a b"
    assert evaluation.take_withdrawn() == [c]
    assert evaluation.outcomes[-1].call is None
    assert evaluation.outcomes[-1].rejects


# Reinvocation.


def test_without_a_change_there_is_one_round() -> None:
    webhooks = hooks("ab", reinvocation_policy="IfNeeded")
    assert settled(settle(webhooks, request(), {"a": NO_EFFECT, "b": NO_EFFECT})) == "a b"


def test_a_webhook_is_not_reinvoked_for_its_own_change() -> None:
    webhooks = hooks("a", reinvocation_policy="IfNeeded")
    assert settled(settle(webhooks, request(), {"a": patch(add("/x", 1))})) == "a"


def test_a_later_change_reinvokes_the_earlier_webhooks() -> None:
    webhooks = hooks("abc", reinvocation_policy="IfNeeded")
    assert settled(settle(webhooks, request(), {"b": patch(add("/x", 1))})) == "a b c a1"
    assert settled(settle(webhooks, request(), {"c": patch(add("/x", 1))})) == "a b c a1 b1"


def test_rules_of_one_engine_are_reinvoked_for_changes_of_others_only() -> None:
    def rules(pool: str, letters: str) -> list[Webhook]:
        client = WorkerRef(pool, "policy/rule", kind="ClusterPolicy")
        return hooks(letters, client=client, reinvocation_policy="IfNeeded")

    changing = patch(add("/x", 1))
    webhooks = [*rules("one", "ab"), *hooks("c", reinvocation_policy="IfNeeded"), *rules("two", "d")]
    assert settled(settle(webhooks, request(), {"b": changing})) == "a b c d"
    assert settled(settle(webhooks, request(), {"c": changing})) == "a b c d a1 b1"
    both = {"a": changing, "d": patch(add("/y", 1))}
    assert settled(settle(webhooks, request(), both)) == "a b c d a1 b1 c1"


def test_a_webhook_with_policy_never_is_not_reinvoked_but_its_change_reinvokes_others() -> None:
    webhooks = [webhook("a", reinvocation_policy="IfNeeded"), *hooks("bc")]
    assert settled(settle(webhooks, request(), {"c": patch(add("/x", 1))})) == "a b c a1"
    webhooks = [webhook("a"), webhook("b", reinvocation_policy="IfNeeded")]
    assert settled(settle(webhooks, request(), {"b": patch(add("/x", 1))})) == "a b"


def test_a_change_in_the_second_round_reinvokes_later_webhooks_and_there_is_no_third_round() -> None:
    def answer(call: Call) -> Any:
        name, shown = call.invocation.webhook.name, call.payload.object or {}
        if name == "b":
            return patch(add("/b", 1))
        return patch(add("/a", 1)) if name == "a" and "b" in shown else ALLOWED

    evaluation = settle(hooks("abc", reinvocation_policy="IfNeeded"), request(), answer)
    # Round 0: b changes (a is to run again); c, called after the change, is not.
    # Round 1: a changes, so b and c, both called before that, run again.
    assert settled(evaluation) == "a b c a1 b1 c1"
    assert evaluation.final_object == {**POD, "a": 1, "b": 1}


def test_a_webhook_that_was_not_called_is_not_reinvoked() -> None:
    # Matches only after b's change, which comes after its turn.
    webhooks = [webhook("a", object_selector=TEAM_B, reinvocation_policy="IfNeeded"), webhook("b")]
    assert settled(settle(webhooks, request(), {"b": TO_TEAM_B})) == "b"


def test_a_webhook_that_no_longer_matches_is_not_reinvoked() -> None:
    first = webhook("a", object_selector=labelled("team", "a"), reinvocation_policy="IfNeeded")
    assert settled(settle([first, webhook("b")], request(), {"b": TO_TEAM_B})) == "a b"


def test_a_failed_call_counts_as_a_call_for_reinvocation() -> None:
    first = webhook("a", reinvocation_policy="IfNeeded", failure_policy="Ignore")
    verdicts: dict[str, Verdict] = {
        "a": Failed(FailureReason.DEADLINE, "late"),
        "b": patch(add("/x", 1)),
    }
    assert settled(settle([first, webhook("b")], request(), verdicts)) == "a b a1"


def test_a_denial_in_the_second_round_rejects() -> None:
    def answer(call: Call) -> Any:
        if call.invocation.webhook.name == "b":
            return patch(add("/x", 1))
        return Denied() if "x" in (call.payload.object or {}) else ALLOWED

    evaluation = settle([webhook("a", reinvocation_policy="IfNeeded"), webhook("b")], request(), answer)
    assert settled(evaluation) == "a b a1"
    assert evaluation.outcomes[-1].rejects


def test_matching_fails_in_the_second_round_even_for_a_webhook_that_is_not_to_be_called() -> None:
    # As in the API server: the object now matches, so the namespace is looked up, and is not there.
    odd = webhook("a", object_selector=TEAM_B, namespace_selector=labelled("x", "y"))
    evaluation = settle([odd, webhook("b")], request(), {"b": TO_TEAM_B})
    assert settled(evaluation) == "b a1"
    assert evaluation.outcomes[-1].rejects


@pytest.mark.parametrize("reinvocation_policy", ["Never", "IfNeeded"])
def test_a_webhook_that_is_not_reinvoked_fails_open_once(reinvocation_policy: str) -> None:
    unknown = webhook(
        "a",
        namespace_selector=TEAM_B,
        failure_policy="Ignore",
        reinvocation_policy=reinvocation_policy,
    )
    broken = webhook(
        "b",
        match_conditions=FakeConditions(ALWAYS, breaks=ALWAYS),
        failure_policy="Ignore",
        reinvocation_policy=reinvocation_policy,
    )
    evaluation = settle([unknown, broken, webhook("c")], request(), {"c": patch(add("/x", 1))})
    assert settled(evaluation) == "a b c"
    assert [key for key in decide(evaluation, "Metadata").audit_annotations if "failed-open" in key] == [
        "failed-open.round_0_index_0",
        "failed-open.round_0_index_1",
    ]


def test_a_webhook_that_would_match_only_in_the_second_round_does_not_fail_open_there() -> None:
    odd = webhook("a", object_selector=TEAM_B, namespace_selector=labelled("x", "y"), failure_policy="Ignore")
    assert settled(settle([odd, webhook("b")], request(), {"b": TO_TEAM_B})) == "b"


def test_a_webhook_that_is_reinvoked_fails_open_in_the_second_round() -> None:
    breaks_later = FakeConditions(ALWAYS, breaks=("label", ("team", "b")))
    first = webhook(
        "a", match_conditions=breaks_later, failure_policy="Ignore", reinvocation_policy="IfNeeded"
    )
    evaluation = settle([first, webhook("b")], request(), {"b": TO_TEAM_B})
    assert settled(evaluation) == "a b a1"
    assert isinstance(evaluation.outcomes[-1].verdict, Failed)


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
def test_a_webhook_that_is_not_reinvoked_is_excluded_by_its_condition_once(failure_policy: str) -> None:
    excluded = webhook(
        "a", match_conditions=FakeConditions(("label", ("team", "c"))), failure_policy=failure_policy
    )
    evaluation = settle([excluded, webhook("b")], request(), {"b": patch(add("/x", 1))})
    assert settled(evaluation) == "b"
    assert [exclusion.condition for _, exclusion in evaluation.exclusions] == ["holds"]


def test_conditions_of_a_webhook_that_is_not_reinvoked_and_cannot_reject_are_not_evaluated() -> None:
    def tasks_after_the_change(failure_policy: str) -> int:
        asking = webhook(
            "a",
            match_conditions=FakeConditions(("label", ("team", "b")), takes_long=True),
            failure_policy=failure_policy,
        )
        evaluation = begin([asking, webhook("b")])
        calls = [*evaluation.start()]
        (task,) = evaluation.take_condition_tasks()
        assert isinstance(task, LongEvaluation)
        (call,) = [*calls, *evaluation.complete_condition_task(task, task())]
        evaluation.receive(call, TO_TEAM_B)
        return len(evaluation.take_condition_tasks())

    assert tasks_after_the_change("Ignore") == 0
    # Its conditions may fail on the changed object, which would reject the request.
    assert tasks_after_the_change("Fail") == 1


def test_the_second_round_speculates_too() -> None:
    evaluation = begin(hooks("abc", reinvocation_policy="IfNeeded"))
    a, b, c = evaluation.start()
    evaluation.receive(a, ALLOWED)
    evaluation.receive(b, ALLOWED)
    assert names(evaluation.receive(c, patch(add("/x", 1)))) == "ab"


def test_the_second_round_speculates_too_if_the_last_webhooks_changed_nothing() -> None:
    evaluation = begin([*hooks("ab", reinvocation_policy="IfNeeded"), *hooks("cd")])
    a, b, c, _ = evaluation.start()
    evaluation.receive(a, ALLOWED)
    evaluation.receive(b, ALLOWED)
    (d,) = evaluation.receive(c, patch(add("/x", 1)))
    assert names(evaluation.receive(d, ALLOWED)) == "ab"


# Memory.


def habitual(*webhooks: Webhook) -> ChangeRates:
    memory = ChangeRates()
    for hook in webhooks:
        for _ in range(9):
            memory.note(hook, request(), changed=True)
    return memory


def test_no_call_of_another_backend_is_speculative_behind_a_webhook_that_usually_changes_objects() -> None:
    webhooks = [*hooks("ab"), *hooks("cd", client=WorkerRef("other", "p"))]
    evaluation = begin(webhooks, habitual(webhooks[1]))
    a, b = evaluation.start()
    assert names([a, b]) == "ab"
    evaluation.receive(b, ALLOWED)
    assert names(evaluation.receive(a, ALLOWED)) == "cd"


def test_speculation_ends_at_a_webhook_that_usually_changes_objects() -> None:
    webhooks = [*hooks("ab"), *hooks("cd", client=WorkerRef("other", "p"))]
    evaluation = begin(webhooks, habitual(webhooks[1]))
    a, b = evaluation.start()
    assert names(evaluation.receive(a, ALLOWED)) == ""
    assert names(evaluation.receive(b, ALLOWED)) == "cd"


def test_a_speculative_call_that_found_no_room_is_made_in_its_turn() -> None:
    evaluation = begin(hooks("ab"))
    a, b = evaluation.start()
    full = Failed(FailureReason.STATUS, "RESOURCE_EXHAUSTED: full", 429)
    assert evaluation.wants(b)
    assert names(evaluation.receive_refusal(b, full)) == ""
    assert not evaluation.wants(b)
    assert names(evaluation.receive(a, ALLOWED)) == "b"


def test_a_call_that_found_no_room_in_its_turn_has_failed() -> None:
    evaluation = begin(hooks("ab"))
    a, b = evaluation.start()
    evaluation.receive_refusal(a, Failed(FailureReason.STATUS, "RESOURCE_EXHAUSTED: full", 429))
    assert evaluation.done
    assert evaluation.outcomes[0].rejects
    assert list(evaluation.take_withdrawn()) == [b]


def test_a_webhook_that_does_not_match_does_not_end_speculation() -> None:
    webhooks = [webhook("a"), webhook("b", object_selector=TEAM_B), webhook("c")]
    assert names(begin(webhooks, habitual(webhooks[1])).start()) == "ac"


def test_the_validating_phase_does_not_use_the_change_memory() -> None:
    webhooks = hooks("abc", phase="validate")
    assert names(begin(webhooks, habitual(*webhooks)).start()) == "abc"


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_request_that_nests_too_deeply_to_be_rewritten_is_sent_unchanged(phase: Any) -> None:
    given = decode(DEEP_REVIEW)
    evaluation = Evaluation(
        Selection(phase, [webhook("a", phase=phase), webhook("b", phase=phase)]), given, None
    )
    calls = evaluation.start()
    assert [call.payload.json for call in calls] == [given.json] * 2
    for call in calls:
        evaluation.receive(call, ALLOWED)
    assert decide(evaluation, "Metadata").allowed


def test_a_patch_of_a_request_that_nests_too_deeply_to_be_rewritten_is_a_failure() -> None:
    hooks = [webhook("a", failure_policy="Ignore"), webhook("b")]
    evaluation = settle(hooks, decode(DEEP_REVIEW), {"a": patch(add("/x", 1))})
    first, second = evaluation.outcomes
    assert isinstance(first.verdict, Failed)
    assert first.verdict.reason is FailureReason.PATCH_INAPPLICABLE
    assert "the request nests too deeply to be written again" in first.verdict.cause
    assert second.verdict is ALLOWED
    assert second.call is not None
    assert second.call.payload.json == evaluation.request.json
    assert not evaluation.has_changed


def test_changes_by_webhooks_are_noted_in_the_memory() -> None:
    webhooks = hooks("ab")
    memory = ChangeRates()
    for _ in range(9):
        settle(webhooks, request(), {"a": patch(add("/x", 1))}, memory=memory)
    assert memory.usually_changes(webhooks[0], request())
    assert not memory.usually_changes(webhooks[1], request())

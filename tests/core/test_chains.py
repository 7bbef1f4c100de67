"""Chains: calls on the object that an earlier call leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.pure.core.call import MAX_CHAINED_BYTES
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied, Failed, FailureReason
from gateway.pure.core.webhook import HttpsClient, WorkerRef
from tests.core.build import add, labelled, patch, request, webhook
from tests.core.test_evaluation import NO_EFFECT, TEAM_B, TO_TEAM_B, habitual, hooks, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.call import Call
    from gateway.pure.core.webhook import Webhook

ERROR = Failed(FailureReason.STATUS, "INTERNAL: no", 500)


def begin(webhooks: Sequence[Webhook], changing: str, **members: Any) -> tuple[Evaluation, list[Call]]:
    """Start a review; the webhooks named in *changing* usually change the object."""
    memory = habitual(*(hook for hook in webhooks if hook.name in changing))
    evaluation = Evaluation(Selection("mutate", webhooks), request(**members), None, memory)
    return evaluation, list(evaluation.start())


def tree(calls: Sequence[Call]) -> str:
    """Each call by name, with the name of the call that it follows."""
    return " ".join(
        call.invocation.webhook.name + (f"<{names([call.after])}" if call.after is not None else "")
        for call in calls
    )


def marked(call: Call) -> Any:
    """The marks in the object of *call*'s payload."""
    return orjson.loads(call.payload.json)["object"].get("marks")


def mark(number: int) -> Allowed:
    return patch(add("/marks", number))


def test_webhooks_behind_one_that_usually_changes_the_object_are_called_after_it() -> None:
    _, calls = begin(hooks("abcdef"), "bde")
    assert tree(calls) == "a b c<b d<b e<d f<e"
    assert len({id(call.payload) for call in calls}) == 1


def test_a_chain_begins_at_the_webhook_whose_turn_it_is_whatever_its_side_effects() -> None:
    webhooks = [webhook("a", side_effects="Some"), *hooks("bc")]
    assert tree(begin(webhooks, "a")[1]) == "a b<a c<a"


def test_webhooks_with_side_effects_are_not_in_a_chain_and_end_it_if_they_change_the_object() -> None:
    webhooks = [webhook("a"), webhook("b", side_effects="NoneOnDryRun"), webhook("c")]
    assert tree(begin(webhooks, "a")[1]) == "a c<a"
    assert tree(begin(webhooks, "ab")[1]) == "a"


def test_webhooks_of_other_backends_are_not_in_a_chain() -> None:
    other = WorkerRef("other", "b")
    webhooks = [webhook("a"), webhook("b", client=other), webhook("c")]
    assert tree(begin(webhooks, "a")[1]) == "a c<a"
    assert tree(begin(webhooks, "ab")[1]) == "a"
    assert tree(begin(hooks("ab", client=HttpsClient("https://a.example/")), "a")[1]) == "a"


def test_a_chain_counts_without_further_calls() -> None:
    evaluation, calls = begin(hooks("abcd"), "abcd")
    for number, call in enumerate(calls):
        assert list(evaluation.receive(call, mark(number))) == []
    assert evaluation.done
    assert [outcome.call for outcome in evaluation.outcomes] == calls
    assert [marked(call) for call in calls] == [None, 0, 1, 2]
    assert evaluation.final_object is not None
    assert evaluation.final_object["marks"] == 3
    assert (evaluation.kept_ahead, evaluation.discarded_ahead) == (3, 0)


def test_a_chain_counts_if_its_verdicts_arrive_in_reverse() -> None:
    evaluation, calls = begin(hooks("abc"), "abc")
    for call in reversed(calls):
        assert list(evaluation.receive(call, mark(call.index))) == []
    assert evaluation.done
    assert [marked(call) for call in calls] == [None, 0, 1]


@pytest.mark.parametrize("verdict", [ALLOWED, NO_EFFECT])
def test_calls_after_one_without_effect_count(verdict: Allowed) -> None:
    evaluation, (a, b, c) = begin(hooks("abc"), "ab")
    assert not evaluation.receive(a, verdict)
    assert not evaluation.receive(b, mark(1))
    assert not evaluation.receive(c, ALLOWED)
    assert evaluation.done
    assert evaluation.discarded_ahead == 0


def test_only_calls_after_the_change_stay() -> None:
    evaluation, (a, b, c, d, e) = begin(hooks("abcde"), "bd")
    assert tree([a, b, c, d, e]) == "a b c<b d<b e<d"
    # An unexpected change makes all of them outdated.
    calls = list(evaluation.receive(a, mark(0)))
    assert list(evaluation.take_withdrawn()) == [b, c, d, e]
    assert tree(calls) == "b c<b d<b e<d"
    _, c, d, e = calls
    assert not evaluation.receive(calls[0], mark(1))
    # So does one within the chain, for the calls behind it.
    again = evaluation.receive(c, mark(2))
    assert list(evaluation.take_withdrawn()) == [d, e]
    assert tree(again) == "d e<d"


@pytest.mark.parametrize(
    "verdict", [ERROR, patch(add("/none/x", 1)), Allowed(b"nonsense"), patch(add("/metadata/labels", "x"))]
)
def test_calls_after_a_failure_are_made_again(verdict: Any) -> None:
    evaluation, (a, b, c) = begin(hooks("abc", failure_policy="Ignore"), "ab")
    again = evaluation.receive(a, verdict)
    assert list(evaluation.take_withdrawn()) == [b, c]
    assert tree(again) == "b c<b"
    assert marked(again[0]) is None


def test_a_denial_ends_the_chain() -> None:
    evaluation, (a, b, c) = begin(hooks("abc"), "ab")
    assert not evaluation.receive(a, Denied())
    assert evaluation.done
    assert list(evaluation.take_withdrawn()) == [b, c]


def test_a_webhook_of_a_chain_is_matched_with_the_object_that_it_gets() -> None:
    webhooks = [
        webhook("a"),
        webhook("b", object_selector=labelled("team", "a")),
        webhook("c", object_selector=TEAM_B),
        webhook("d"),
    ]
    evaluation, (a, b, d) = begin(webhooks, "a")
    assert tree([a, b, d]) == "a b<a d<a"
    (c,) = evaluation.receive(a, TO_TEAM_B)
    assert names([c]) == "c"
    assert not c.is_ahead
    assert list(evaluation.take_withdrawn()) == [b]
    assert not evaluation.receive(d, ALLOWED)
    assert not evaluation.receive(c, ALLOWED)
    assert evaluation.done


def test_calls_after_an_excluded_webhook_are_made_again() -> None:
    webhooks = [webhook("a"), webhook("b", object_selector=labelled("team", "a")), webhook("c")]
    evaluation, (a, b, c) = begin(webhooks, "ab")
    assert tree([a, b, c]) == "a b<a c<b"
    (again,) = evaluation.receive(a, TO_TEAM_B)
    assert tree([again]) == "c"
    assert list(evaluation.take_withdrawn()) == [b, c]
    assert not evaluation.receive(again, ALLOWED)
    assert evaluation.done


def test_a_call_that_the_worker_did_not_chain_is_made_again_in_its_turn() -> None:
    evaluation, (a, b, c) = begin(hooks("abc"), "a")
    assert not evaluation.drop(b)
    (again,) = evaluation.receive(a, mark(1))
    assert (names([again]), marked(again), again.is_ahead) == ("b", 1, False)
    assert not evaluation.receive(again, ALLOWED)
    # Its turn has come: it is called now.
    (last,) = evaluation.drop(c)
    assert (names([last]), marked(last)) == ("c", 1)
    assert not evaluation.drop(c)
    assert not evaluation.receive(last, ALLOWED)
    assert evaluation.done
    assert evaluation.discarded_ahead == 2


def test_a_call_after_a_dropped_one_does_not_count() -> None:
    evaluation, (a, b, c) = begin(hooks("abc"), "ab")
    evaluation.receive(c, mark(3))
    evaluation.drop(b)
    assert not evaluation.wants(c)
    assert tree(evaluation.receive(a, ALLOWED)) == "b c<b"


def test_calls_after_an_object_that_grew_large_are_made_again() -> None:
    evaluation, (a, b) = begin(hooks("ab"), "a")
    (again,) = evaluation.receive(a, patch(add("/x", "x" * MAX_CHAINED_BYTES)))
    assert list(evaluation.take_withdrawn()) == [b]
    assert not again.is_ahead

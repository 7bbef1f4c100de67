"""What the observer of disputes looks at, and what it logs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from gateway.observe.decisions import disputes
from gateway.observe.decisions.disputes import LOGGED_EVERY_S, LOOKS_AT_ONCE, MAX_BYTES, DisputeObserver
from gateway.pure.core.answer import NO_ORIGIN, Answer
from gateway.pure.core.decision import decide
from gateway.pure.core.disputes import Dispute, Seen
from tests.core.build import add, patch, request, settle, webhook
from tests.docs.pages import DOCS

if TYPE_CHECKING:
    import pytest

    from gateway.pure.core.call import Call
    from gateway.pure.core.verdict import Verdict

FLIP = Dispute("undone", "a.policies.test", "b.policies.test", "spec.x")


def flipping(size: int = 0) -> Answer:
    """The answer of a review in which two webhooks undo each other."""

    def answer(call: Call) -> Verdict:
        return patch(add("/spec/x", call.invocation.webhook.name))

    hooks = [webhook(FLIP.webhook, reinvocation_policy="IfNeeded"), webhook(FLIP.other)]
    pod: dict[str, Any] = {"metadata": {"name": "web"}, "spec": {"filler": "x" * size}}
    evaluation = settle(hooks, request(object=pod), answer)
    return Answer(b"", decide(evaluation, "None"), evaluation, evaluation.selection, NO_ORIGIN, 1000.0)


def test_the_number_and_the_size_of_what_is_looked_at_are_bounded() -> None:
    async def observe() -> DisputeObserver:
        observer = DisputeObserver()
        observer.review_answered(flipping(MAX_BYTES), 0.1)
        answer = flipping()
        for _ in range(LOOKS_AT_ONCE * 3):
            observer.review_answered(answer, 0.1)
        while len(observer._queue) and observer._queue.has_work():
            await asyncio.sleep(0.001)
        return observer

    found = asyncio.run(observe()).found
    assert list(found) == [FLIP]
    assert found[FLIP].number == LOOKS_AT_ONCE


def test_a_finding_is_logged_once_an_hour_as_on_the_page(caplog: pytest.LogCaptureFixture) -> None:
    observer = DisputeObserver()
    one = Dispute("own_result", "count-runs", "", "data.runs")
    seen = observer._disputes.found[one] = Seen(1, 1.0, "configmaps shop/settings")
    with caplog.at_level(logging.WARNING, disputes.__name__):
        for seen.last_at in (1.0, 2.0, LOGGED_EVERY_S, LOGGED_EVERY_S + 1.0):
            observer._log([one])
    assert len(caplog.messages) == 2
    assert f"WARNING {caplog.messages[0]}\n" in (DOCS / "mutators.md").read_text()

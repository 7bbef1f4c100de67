"""The stages of an object in one review: as it came, and as each webhook that changed it left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.core.conflicts import writers_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.pure.core.call import Payload
    from gateway.pure.core.conflicts import Conflict
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.field_changes import Path
    from gateway.pure.core.webhook import Webhook


def conflicts_of(evaluation: Evaluation) -> tuple[Conflict, ...]:
    """Return the conflicts of a mutating *evaluation*, each pair and field once, in order."""
    outcomes = evaluation.outcomes
    if sum(one.has_changed for one in outcomes) < 2:
        return ()
    writers = writers_of(evaluation.request)
    found: dict[tuple[Webhook, Webhook, Path], Conflict] = {}
    before: object = evaluation.request.object
    for index, payload in changed_payloads(evaluation):
        after = payload.object
        for one in writers.note(outcomes[index].invocation.webhook, before, after):
            found.setdefault((one.first, one.second, one.path), one)
        before = after
    return tuple(found.values())


def changed_payloads(evaluation: Evaluation) -> Generator[tuple[int, Payload]]:
    """Yield the index of each outcome that changed the object, with the payload as it left it.

    That is the payload of the next call that counted, or of the next policy.
    """
    outcomes = evaluation.outcomes
    following = evaluation.payload
    found = []
    for index in range(len(outcomes) - 1, -1, -1):
        outcome = outcomes[index]
        if outcome.has_changed:
            found.append((index, following))
        if outcome.payload is not None:
            following = outcome.payload
    yield from reversed(found)

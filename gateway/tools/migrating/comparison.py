"""Whether the old engine and the new configuration gave a review the same answer.

What joins and orders the lines of denials differs by design (docs/gatekeeper.md, docs/kyverno.md), so their
lines are compared, and warnings without their order. *is_exact* compares the texts as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from admission_gateway_worker.json_patch.diff import diff, same
from gateway.observe.decisions.record import REJECTIONS
from gateway.tools.offline.message_lines import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.tools.replay.results import Result, WebhookResult

Kind = Literal["decision", "code", "message", "warnings", "object"]
_INDEX: Final = re.compile(r"/(?:\d+|-)(?=/|$)")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between both answers."""

    kind: Kind
    webhooks: tuple[str, ...]
    """``CONFIGURATION/NAME`` of those that make it, of both sides, as far as that can be told."""
    old: tuple[str, ...]
    """Lines about the answer of the old engine."""
    new: tuple[str, ...]
    """Lines about the answer of the new configuration."""


def differences(old: Result, new: Result, *, is_exact: bool) -> list[Difference]:
    """Return the differences of two answers in which no webhook failed; none if they are equal."""
    found: list[Difference] = []
    if old.allowed != new.allowed:
        found.append(Difference("decision", _rejecting(old, new), _decision(old), _decision(new)))
    elif not old.allowed:
        found += _of_denials(old, new, is_exact=is_exact)
    said, says = old.warnings or (), new.warnings or ()
    if list(said) != list(says) and (is_exact or set(said) != set(says)):
        only_old, only_new = (
            [one for one in said if one not in says],
            [one for one in says if one not in said],
        )
        # Equal sets differ in their order.
        found.append(Difference("warnings", (), tuple(only_old or said), tuple(only_new or says)))
    if old.allowed and new.allowed and (old.has_changed or new.has_changed):
        before, after = old.final_object(), new.final_object()
        if not same(before, after):
            changers = tuple(
                dict.fromkeys(f"{key[0][1]}/{key[0][2]}" for key in (*old.patches(), *new.patches()))
            )
            found.append(Difference("object", changers, (), tuple(_places(before, after))))
    return found


def _of_denials(old: Result, new: Result, *, is_exact: bool) -> Iterator[Difference]:
    if old.code != new.code:
        yield Difference("code", _rejecting(old, new), (str(old.code),), (str(new.code),))
    said, says = _messages(old), _messages(new)
    if is_exact and said != says:
        yield Difference("message", _rejecting(old, new), tuple(said), tuple(says))
        return
    before, after = lines_of(said), lines_of(says)
    if before != after:
        yield Difference("message", _rejecting(old, new), *_apart(before, after))


def _apart(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what only one of them has, or both as they are where that is nothing: their order differs."""
    only_old = tuple(one for one in old if one not in new)
    only_new = tuple(one for one in new if one not in old)
    return (only_old, only_new) if only_old or only_new else (tuple(old), tuple(new))


def message_lines(result: Result) -> tuple[str, ...]:
    """Return the lines of the denials of *result*."""
    return lines_of(_messages(result))


def _messages(result: Result) -> list[str]:
    return [one.message for one in _rejections(result)]


def _rejections(result: Result) -> list[WebhookResult]:
    return [one for one in result.webhooks if one.mode == "Enforce" and one.outcome in REJECTIONS]


def _rejecting(*results: Result) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.name for result in results for one in _rejections(result)))


def _decision(result: Result) -> tuple[str, ...]:
    if result.allowed:
        return ("allowed",)
    return f"denied ({result.code})", *message_lines(result)


def _places(before: object, after: object) -> Iterator[str]:
    """Yield where the objects differ, with ``*`` for positions in lists: the same for similar objects."""
    operations: list[Any] = diff(before, after)
    yield from sorted({_INDEX.sub("/*", str(one["path"])) for one in operations})

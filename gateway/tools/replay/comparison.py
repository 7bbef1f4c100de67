"""The differences between two results of one review."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from admission_gateway_worker.json_patch.diff import same

if TYPE_CHECKING:
    from gateway.tools.replay.results import PartKey, Result, WebhookResult

Kind = Literal["newlyDenied", "newlyAllowed", "otherMessage", "otherObject", "failures", "changedAgain"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
UNKNOWN: Final = "(not known)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference."""

    kind: Kind
    webhook: str
    """CONFIGURATION/NAME of the webhook that makes the difference."""
    before: str = ""
    """The message before, for messages."""
    after: str = ""


def differences(before: Result, after: Result) -> list[Difference]:
    """Return the differences, none if *before* and *after* are equal.

    A request that is rejected because a webhook failed counts as a failure, not as denied.
    """
    found = _new_failures(before, after)
    rejecting = after.rejecting
    is_failure = rejecting is not None and rejecting.outcome == "FailedClosed"
    if before.allowed and not after.allowed:
        if not is_failure:
            found.append(Difference("newlyDenied", _name(rejecting), "", after.message))
    elif after.allowed and not before.allowed:
        found.append(Difference("newlyAllowed", _name(before.rejecting), before.message))
    elif _has_other_texts(before, after) and not (is_failure and found):
        found.append(Difference("otherMessage", _speaker(before, after), _texts(before), _texts(after)))
    if after.allowed and before.allowed and _has_other_object(before, after):
        found.append(Difference("otherObject", _changer(before, after)))
    return found


def _new_failures(before: Result, after: Result) -> list[Difference]:
    known = {(one.key, one.number, one.outcome) for one in before.failures}
    named = dict.fromkeys(
        (one.name, one.message) for one in after.failures if (one.key, one.number, one.outcome) not in known
    )
    return [Difference("failures", name, "", message) for name, message in named]


def _name(webhook: WebhookResult | None) -> str:
    return UNKNOWN if webhook is None else webhook.name


def _has_other_texts(before: Result, after: Result) -> bool:
    if not before.allowed and before.message and (before.code, before.message) != (after.code, after.message):
        return True
    return before.warnings is not None and before.warnings != after.warnings


def _texts(result: Result) -> str:
    message = [f"{result.code} {result.message}"] if not result.allowed else []
    return "\n".join([*message, *(f"warning: {text}" for text in result.warnings or ())])


def _speaker(before: Result, after: Result) -> str:
    """Return the webhook whose text differs, if that can be told."""
    texts = {one.part: one.message for one in before.webhooks}
    for one in after.webhooks:
        if texts.get(one.part, "") != one.message:
            return one.name
    return _name(after.rejecting or before.rejecting)


def _has_other_object(before: Result, after: Result) -> bool:
    if before.has_changed is None or not (before.has_changed or after.has_changed):
        return False
    return not same(before.final_object(), after.final_object())


def _changer(before: Result, after: Result) -> str:
    """Return the first webhook whose change differs."""
    old, new = before.patches(), after.patches()
    order: dict[PartKey, None] = dict.fromkeys((*new, *old))
    for key in order:
        if key not in old or key not in new or not same(old[key], new[key]):
            return f"{key[0][1]}/{key[0][2]}"
    return UNKNOWN

"""What came of one review, in a form in which the recorded answer and a new one can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from admission_gateway_worker.json_patch.diff import diff
from admission_gateway_worker.json_patch.patch import PatchConflict, apply_patch
from gateway.observe.decisions.details import changed_payloads
from gateway.observe.decisions.record import FAILURES, REJECTIONS, record_of
from gateway.observe.recording.lines import webhook_member
from gateway.pure.core.verdict import Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gateway.pure.core.answer import Answer
    from gateway.pure.core.review import Json

WebhookKey = tuple[str, str, str]
"""Phase, configuration and name of a webhook."""


class UnusableResultError(Exception):
    """A recorded answer is damaged."""


@dataclass(frozen=True, slots=True)
class WebhookResult:
    """One webhook's part."""

    key: WebhookKey
    outcome: str
    """As in a recording."""
    message: str = ""
    mode: str = "Enforce"
    round: int = 0
    milliseconds: float = 0.0

    @property
    def name(self) -> str:
        """CONFIGURATION/NAME."""
        return f"{self.key[1]}/{self.key[2]}"

    @property
    def rejects(self) -> bool:
        """Whether it rejects the request."""
        return self.mode == "Enforce" and self.outcome in REJECTIONS


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a review."""

    allowed: bool
    code: int
    message: str
    warnings: tuple[str, ...] | None
    """None if they are not known."""
    webhooks: tuple[WebhookResult, ...]
    has_changed: bool | None
    """Whether a webhook changed the object. None if that is not known."""
    final_object: Callable[[], object]
    """Returns the object after all changes. May raise UnusableResultError."""
    patches: Callable[[], dict[tuple[WebhookKey, int], list[Any]]]
    """Returns the changes of the object by webhook and round."""
    lacks_namespace: bool = False
    """Whether a webhook could not be matched without the labels of the namespace."""

    @property
    def rejecting(self) -> WebhookResult | None:
        """The first webhook that rejects the request."""
        return next((one for one in self.webhooks if one.rejects), None)

    @property
    def failures(self) -> list[WebhookResult]:
        """The webhooks without a usable answer, of those that are enforced."""
        return [one for one in self.webhooks if one.outcome in FAILURES and one.mode == "Enforce"]


def recorded(line: Json, phase: str, left_out: Collection[WebhookKey]) -> Result:
    """Return the answer in the *line* of a recording, without the webhooks in *left_out*.

    Raises:
        UnusableResultError: the line has no such answer.
    """
    request: Any = line["request"]
    try:
        entries = [(one, _webhook_result(phase, one)) for one in line["webhooks"]]
        kept = [(one, found) for one, found in entries if found.key not in left_out]
        webhooks = tuple(found for _, found in kept)
        patches = {(found.key, found.round): list(one["patch"]) for one, found in kept if "patch" in one}
        warnings = tuple(map(str, line["warnings"]))
        allowed, code, message = bool(line["allowed"]), int(line["code"]), str(line["message"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnusableResultError from error
    if len(kept) < len(entries) and not any(one.rejects for one in webhooks):
        allowed, code, message = True, 200, ""

    def final_object() -> object:
        found: object = request.get("object")
        try:
            for patch in patches.values():
                found = apply_patch(found, patch)
        except (PatchConflict, KeyError, TypeError, ValueError, RecursionError) as error:
            raise UnusableResultError from error
        return found

    return Result(allowed, code, message, warnings, webhooks, bool(patches), final_object, lambda: patches)


def made(answers: Sequence[Answer]) -> Result:
    """Return what came of a review with *answers*, one for each phase that was reached."""
    webhooks = tuple(
        _webhook_result(answer.selection.phase, webhook_member(one))
        for answer in answers
        for one in record_of(answer, 0.0, 0.0, "").webhooks
    )
    status = answers[-1].decision.status
    outcomes = [outcome for answer in answers for outcome in answer.evaluation.outcomes]
    return Result(
        status is None,
        200 if status is None else status.code,
        "" if status is None else status.message,
        tuple(dict.fromkeys(text for answer in answers for text in answer.decision.warnings)),
        webhooks,
        any(answer.evaluation.has_changed for answer in answers),
        lambda: answers[-1].evaluation.final_object,
        lambda: _patches(answers),
        any(
            isinstance(outcome.verdict, Failed) and outcome.verdict.reason is FailureReason.NAMESPACE
            for outcome in outcomes
        ),
    )


def _webhook_result(phase: str, member: Mapping[str, Any]) -> WebhookResult:
    """Return the result in *member*, which is one of ``webhooks`` of a recording."""
    return WebhookResult(
        (phase, str(member["configuration"]), str(member["webhook"])),
        str(member["outcome"]),
        str(member.get("message", "")),
        str(member.get("mode", "Enforce")),
        int(member.get("round", 0)),
        float(member.get("milliseconds", 0.0)),
    )


def _patches(answers: Sequence[Answer]) -> dict[tuple[WebhookKey, int], list[Any]]:
    found: dict[tuple[WebhookKey, int], list[Any]] = {}
    for answer in answers:
        evaluation = answer.evaluation
        current: object = evaluation.request.object
        for index, payload in changed_payloads(evaluation):
            outcome = evaluation.outcomes[index]
            webhook = outcome.invocation.webhook
            key = answer.selection.phase, webhook.configuration, webhook.name
            found[key, outcome.round] = list(diff(current, payload.object))
            current = payload.object
    return found


def known(*, allowed: bool, code: int = 200, message: str = "") -> Result:
    """Return an answer of which only the decision is known."""
    return Result(allowed, code, message, None, (), None, lambda: None, dict)

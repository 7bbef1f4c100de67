"""What came of one review, in a form in which the recorded answer and a new one can be compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from admission_gateway_worker.json_patch.diff import diff
from admission_gateway_worker.json_patch.patch import PatchConflict, apply_patch
from gateway.observe.decisions.record import FAILURES, REJECTIONS, record_of
from gateway.observe.recording.lines import webhook_member
from gateway.pure.core.stages import changed_payloads
from gateway.pure.core.verdict import Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from gateway.pure.core.answer import Answer
    from gateway.pure.core.review import Json

WebhookKey = tuple[str, str, str]
"""Phase, configuration and name of a webhook or policy."""
PartKey = tuple[WebhookKey, int, int]
"""A webhook, the round, and the number among those that have the same.

Policies of two engines may have one name, and the Pods of workloads are reviewed by an entry of their own.
"""


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
    number: int = 0
    """See ``PartKey``."""

    @property
    def part(self) -> PartKey:
        """What tells it apart from the others of a review."""
        return self.key, self.round, self.number

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
    patches: Callable[[], dict[PartKey, list[Any]]]
    """Returns the changes of the object, in order."""
    lacks_namespace: bool = False
    """Whether a webhook could not be matched without the labels of the namespace."""
    conflicts: tuple[str, ...] = ()
    """Lines about webhooks that overwrite each other, without values."""
    again: tuple[tuple[str, str], ...] = ()
    """CONFIGURATION/NAME of each webhook that changed its own result, with a line without values."""

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
        found = _numbered(_webhook_result(phase, one) for one in line["webhooks"])
        entries = list(zip(line["webhooks"], found, strict=True))
        kept = [(one, result) for one, result in entries if result.key not in left_out]
        webhooks = tuple(result for _, result in kept)
        patches = {result.part: list(one["patch"]) for one, result in kept if "patch" in one}
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
    by_answer = [
        _numbered(
            _webhook_result(answer.selection.phase, webhook_member(one))
            for one in record_of(answer, 0.0, 0.0, "").webhooks
        )
        for answer in answers
    ]
    status = answers[-1].decision.status
    outcomes = [outcome for answer in answers for outcome in answer.evaluation.outcomes]
    return Result(
        status is None,
        200 if status is None else status.code,
        "" if status is None else status.message,
        tuple(dict.fromkeys(text for answer in answers for text in answer.decision.warnings)),
        tuple(one for each in by_answer for one in each),
        any(answer.evaluation.has_changed for answer in answers),
        lambda: answers[-1].evaluation.final_object,
        lambda: _patches(answers, by_answer),
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


def _numbered(results: Iterable[WebhookResult]) -> tuple[WebhookResult, ...]:
    """Return *results*, of one review, with their numbers."""
    before: Counter[tuple[WebhookKey, int]] = Counter()
    found = []
    for one in results:
        named = one.key, one.round
        found.append(replace(one, number=before[named]) if before[named] else one)
        before[named] += 1
    return tuple(found)


def _patches(
    answers: Sequence[Answer], by_answer: Sequence[Sequence[WebhookResult]]
) -> dict[PartKey, list[Any]]:
    """Return the changes of the object in *answers*. The results of each begin with its outcomes."""
    found: dict[PartKey, list[Any]] = {}
    for answer, results in zip(answers, by_answer, strict=True):
        evaluation = answer.evaluation
        current: object = evaluation.request.object
        for index, payload in changed_payloads(evaluation):
            found[results[index].part] = list(diff(current, payload.object))
            current = payload.object
    return found


def known(*, allowed: bool, code: int = 200, message: str = "") -> Result:
    """Return an answer of which only the decision is known."""
    return Result(allowed, code, message, None, (), None, lambda: None, dict)

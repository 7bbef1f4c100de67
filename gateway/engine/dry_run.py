"""Dry runs: reviews that are not counted and not recorded, for commands and pages."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

import orjson

from gateway.base.errors import MalformedReview
from gateway.engine.admit import Admission
from gateway.pure.core.answer import Origin
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.explain import explain
from gateway.pure.core.matching import Selection
from gateway.pure.core.response import encode
from gateway.pure.core.speculation import ChangeRates
from gateway.pure.core.verdict import Denied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gateway.engine.snapshot import Snapshot
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.decision import Decision
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.policy import Params
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.webhook import Phase, Webhook

    SideEffects = Literal["refused", "left_out"]
    """What becomes of webhooks whose sideEffects allow no dry run. They refuse a request with ``dryRun``, as
    in the API server, or they take no part in the review."""

BUDGET_S: Final = 30.0
"""The time for each phase."""
BOTH_PHASES: Final[tuple[Phase, ...]] = ("mutate", "validate")


@dataclass(frozen=True, slots=True)
class DryRun:
    """A review after its phases."""

    digest: str
    """That of the configuration."""
    answers: tuple[Answer, ...]
    """The answers of the phases that were reached, in order. There is at least one."""
    seconds: tuple[float, ...]
    """How long each took."""
    left_out: tuple[tuple[Webhook, ...], ...]
    """The webhooks of each phase that took no part because of their sideEffects."""
    not_reached: tuple[Selection, ...]
    """The webhooks of the phases after one that rejected the request."""

    @property
    def decision(self) -> Decision:
        """The decision of all phases together, as a client of the API server sees it."""
        last = self.answers[-1].decision
        return replace(
            last,
            patch=self.answers[0].decision.patch if last.allowed else b"",
            warnings=tuple(dict.fromkeys(text for one in self.answers for text in one.decision.warnings)),
            audit_annotations={
                key: value
                for answer in reversed(self.answers)
                for key, value in answer.decision.audit_annotations.items()
            },
        )

    @property
    def result(self) -> Literal["allowed", "denied", "undecided"]:
        """The result; undecided: no webhook denied the request, and the failure of one rejects it."""
        if self.answers[-1].decision.allowed:
            return "allowed"
        return "denied" if any(isinstance(one.verdict, Denied) for one in self.rejections) else "undecided"

    @property
    def rejections(self) -> list[Outcome]:
        """The outcomes that reject the request, in order."""
        return [one for one in self.outcomes if one.rejects]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all phases, in order."""
        return [outcome for answer in self.answers for outcome in answer.evaluation.outcomes]

    @property
    def final_object(self) -> Json | None:
        """The object after all changes."""
        return self.answers[-1].evaluation.final_object

    @property
    def request(self) -> AdmissionRequest:
        """The request, before all changes."""
        return self.answers[0].evaluation.request

    def response(self) -> bytes:
        """Return the JSON of the AdmissionReview that answers all phases together."""
        return encode(self.request.api_version, self.request.uid, self.decision)

    def explained(self) -> Iterator[str]:
        """Yield one or more lines about each webhook, in order."""
        for answer in self.answers:
            yield from explain(answer.evaluation, answer.selection)
        for selection in self.not_reached:
            for webhook in selection.webhooks:
                yield (
                    f"{selection.phase} {webhook.configuration}/{webhook.name}: not reached, the mutating "
                    "phase rejected the request"
                )


class _Unobserved:
    """An observer of reviews that are neither counted nor recorded."""

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Do nothing."""

    def review_cancelled(self, phase: Phase) -> None:
        """Do nothing."""


def _without_side_effects(selection: Selection) -> Selection | None:
    """Return the webhooks of *selection* whose sideEffects allow a dry run, or None if all do."""
    kept = [webhook for webhook in selection.webhooks if webhook.allows_dry_run]
    if len(kept) == len(selection.webhooks):
        return None
    return Selection(selection.phase, kept, selection.exceptions)


async def _answer_of(admission: Admission, selection: Selection, body: bytes, budget_s: float) -> Answer:
    """Return the answer of *selection* to *body*; the review is cancelled with the caller.

    Raises:
        ReviewError: *body* is not a valid review.
    """
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    has_ended = False

    def end(settle: Callable[[Any], None], value: Answer | Exception) -> None:
        nonlocal has_ended
        has_ended = True
        if not answered.done():  # it may have been cancelled
            settle(value)

    cancel = admission.review(
        selection,
        body,
        Deadline.after(budget_s, admission.snapshot.backends.now()),
        partial(end, answered.set_result),
        partial(end, answered.set_exception),
        Origin(f"/{selection.phase}".encode()),
    )
    try:
        return await answered
    finally:
        if not has_ended:
            cancel()


def _after(answer: Answer, body: bytes) -> bytes:
    """Return the review *body* after the changes of *answer*, for the next phase.

    Raises:
        MalformedReview: the changed object nests too deeply.
    """
    if not answer.decision.patch:
        return body
    request = answer.evaluation.request
    changed = {**request.document, "object": answer.evaluation.final_object}
    try:
        return orjson.dumps(
            {"kind": "AdmissionReview", "apiVersion": request.api_version, "request": changed}
        )
    except TypeError:
        raise MalformedReview("the review nests too deeply") from None


class DryRuns:
    """The dry runs by one configuration."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._paths = snapshot.paths
        # With a memory of its own, so that the order of calls of other reviews does not change.
        # With the policies that API servers evaluate: a dry run is what both decide.
        self._snapshot = replace(snapshot, memory=ChangeRates(), moved=None)
        self._dry_parts: WeakKeyDictionary[Selection, Selection | None] = WeakKeyDictionary()
        self._alone: dict[Webhook, Selection] = {}

    async def __call__(
        self,
        body: bytes,
        selections: Sequence[Selection] | None = None,
        *,
        side_effects: SideEffects = "refused",
        at: float | None = None,
        namespaces: Mapping[str, Namespace] | None = None,
        objects: Params | None = None,
        budget_s: float = BUDGET_S,
    ) -> DryRun:
        """Return the review *body*; it is not counted and not recorded.

        Several may run at the same time, and each phase gets the object with the changes of the one before.

        Args:
            body: An AdmissionReview as JSON.
            selections: The webhooks of each phase. None for all of both phases.
            side_effects: What becomes of webhooks whose sideEffects allow no dry run.
            at: The time for exceptions, in seconds since 1970. None for now.
            namespaces: All namespaces, instead of those of the configuration and its cluster.
            objects: Parameters and other objects that policies read, instead of those of the cluster. A
                ``FixedParams`` is in place of those of files, too.
            budget_s: The time for each phase.

        Raises:
            ReviewError: *body* is not a valid review.
        """
        snapshot = self._snapshot
        if namespaces is not None:
            snapshot = replace(snapshot, namespaces=namespaces, look_up=None)
        if objects is not None:
            snapshot = replace(snapshot, params=objects)
        admission = Admission(snapshot, _Unobserved(), time.time if at is None else lambda: at)
        if selections is None:
            selections = [self._paths[f"/{phase}"] for phase in BOTH_PHASES]
        answers: list[Answer] = []
        seconds: list[float] = []
        left_out: list[tuple[Webhook, ...]] = []
        for selection in selections:
            if answers and not answers[-1].decision.allowed:
                break
            chosen = self._dry_part(selection) if side_effects == "left_out" else selection
            begin = snapshot.backends.now()
            answers.append(await _answer_of(admission, chosen, body, budget_s))
            seconds.append(snapshot.backends.now() - begin)
            is_whole = chosen is selection
            left_out.append(
                () if is_whole else tuple(one for one in selection.webhooks if not one.allows_dry_run)
            )
            body = _after(answers[-1], body)
        rest = tuple(selections[len(answers) :])
        return DryRun(snapshot.digest, tuple(answers), tuple(seconds), tuple(left_out), rest)

    def _dry_part(self, selection: Selection) -> Selection:
        """Return the webhooks of *selection* that a dry run may call, with one index for all dry runs."""
        if selection not in self._dry_parts:
            self._dry_parts[selection] = _without_side_effects(selection)
        return self._dry_parts[selection] or selection

    def only(self, webhook: Webhook, selection: Selection) -> Selection:
        """Return the one *webhook* of *selection*, with one index for all dry runs."""
        found = self._alone.get(webhook)
        if found is None:
            found = self._alone[webhook] = Selection(selection.phase, [webhook], selection.exceptions)
        return found

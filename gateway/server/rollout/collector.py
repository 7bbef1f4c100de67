"""Counts what the reviews of one process show of webhooks with a plan: evidence for the gates.

It counts for one window of each plan at a time. What began before the window does not count: its mode may be
that of another stage. Dry runs do not count: a preview, or a program that compares objects again and again,
would pass or fail gates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.core.verdict import Failed
from gateway.pure.rollout_plan.evidence import Tally, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gateway.pure.core.answer import Answer
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Phase, Webhook, WebhookId
    from gateway.pure.rollout_plan.evidence import Part


class _Window:
    """A window, and what has been seen in it."""

    __slots__ = ("began_at", "name", "tally")

    def __init__(self, name: str, began_at: float) -> None:
        self.name = name
        self.began_at = began_at
        self.tally = Tally()


class Collector:
    """The evidence of one process. A ``ReviewObserver``, and an ``AfterAnswer``."""

    def __init__(self, now: Callable[[], float]) -> None:
        """*now* is the clock of reviews."""
        self._now = now
        self._windows: dict[WebhookId, _Window] = {}

    def use(self, windows: Mapping[WebhookId, str]) -> None:
        """Count for these *windows* from now on; a window that is there already keeps its counts."""
        before, self._windows = self._windows, {}
        for webhook, name in windows.items():
            found = before.get(webhook)
            same = found is not None and found.name == name
            self._windows[webhook] = found if found and same else _Window(name, self._now())

    @property
    def windows(self) -> Mapping[WebhookId, str]:
        """The window of each webhook that is counted."""
        return {webhook: window.name for webhook, window in self._windows.items()}

    def part(self, webhook: WebhookId) -> Part:
        """Return what has been seen of *webhook*, which is counted."""
        return self._windows[webhook].tally.part()

    def review_answered(self, answer: Answer, _seconds: float) -> None:
        """Count the webhooks with a plan of *answer*."""
        evaluation = answer.evaluation
        if not self._windows or evaluation.request.dry_run:
            return
        seen: dict[WebhookId, list[Outcome]] = {}
        for outcome in evaluation.outcomes:
            webhook = outcome.invocation.webhook
            if webhook.plan is not None:
                seen.setdefault(webhook.plan_id, []).append(outcome)
        for id_, outcomes in seen.items():
            self._count(answer, id_, outcomes)
        for exemption in evaluation.exemptions:
            webhook = exemption.invocation.webhook
            if webhook.plan is not None and (tally := self._tally(webhook, answer)) is not None:
                tally.excepted()

    def review_cancelled(self, phase: Phase) -> None:
        """Do nothing: a cancelled review has no answer."""

    def called(self, answer: Answer, outcome: Outcome) -> None:
        """Count a call after the *answer*, of a webhook in the mode Shadow."""
        webhook = outcome.invocation.webhook
        if webhook.plan is not None and not answer.evaluation.request.dry_run:
            self._count(answer, webhook.plan_id, [outcome])

    def compared(self, answer: Answer, webhook: Webhook, kinds: Iterable[str]) -> None:
        """Count a comparison of the candidate of *webhook*, which has found differences of these *kinds*."""
        if webhook.plan is None or answer.evaluation.request.dry_run:
            return
        if (tally := self._tally(webhook, answer)) is not None:
            tally.compared(is_different=any(True for _ in kinds))

    def _tally(self, webhook: Webhook, answer: Answer) -> Tally | None:
        window = self._windows.get(webhook.plan_id)
        return None if window is None or answer.started_at < window.began_at else window.tally

    def _count(self, answer: Answer, webhook: WebhookId, outcomes: list[Outcome]) -> None:
        """Count one review of *webhook*, which may have been called again in the second round."""
        tally = self._tally(outcomes[0].invocation.webhook, answer)
        if tally is None:
            return
        request = answer.evaluation.request
        refuses = any(one.would_reject for one in outcomes)
        tally.answered(
            request.namespace,
            request.user,
            max((one.elapsed_s for one in outcomes if one.elapsed_s is not None), default=None),
            is_failure=any(type(one.verdict) is Failed for one in outcomes),
            refuses=refuses,
            is_enforced=outcomes[0].mode == "Enforce",
            owner=_owner(request) if refuses else "",
        )


def _owner(request: AdmissionRequest) -> str:
    # An outline has no owners: only a refusal is worth parsing a large object.
    found = request.object if request.has_object else request.old_object
    return owner_of(found, request.kind[2])

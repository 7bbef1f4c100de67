"""Counts of what has no effect yet, webhooks in other modes than Enforce and candidates, and of plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.observe.telemetry import definitions
from gateway.observe.telemetry.series import PHASES, TYPES, Counts
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.observe.telemetry.series import Numbers, NumbersKey
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.webhook import Webhook, WebhookId


class RolloutCounts:
    """The counts of one process since its start."""

    def __init__(self) -> None:
        self._not_enforced = Counts(definitions.WEBHOOK_NOT_ENFORCED)
        self._compared = Counts(definitions.CANDIDATE_REVIEWS)
        self._different = Counts(definitions.CANDIDATE_DIFFERENT_REVIEWS)
        self._differences = Counts(definitions.CANDIDATE_DIFFERENCES)
        self._dropped = Counts(definitions.CALLS_AFTER_ANSWER_DROPPED)
        self.all = (
            self._not_enforced,
            self._compared,
            self._different,
            self._differences,
            self._dropped,
        )
        """The collectors for the registry."""

    def not_enforced(self, outcome: Outcome) -> None:
        """Count what *outcome*, of a webhook in another mode than Enforce, would have done."""
        results = {
            "denied": type(outcome.verdict) is not Failed and outcome.would_reject,
            "failed": type(outcome.verdict) is Failed and outcome.would_reject,
            "changed": outcome.would_change,
        }
        webhook = outcome.invocation.webhook
        for result in (result for result, is_given in results.items() if is_given):
            self._not_enforced.add((webhook.name, TYPES[webhook.phase], outcome.mode, result))

    def compared(self, webhook: Webhook, kinds: Iterable[str]) -> None:
        """Count a comparison of the candidate of *webhook* with the client in force, and its differences."""
        labels = webhook.name, TYPES[webhook.phase]
        self._compared.add(labels)
        kinds = tuple(kinds)
        if kinds:
            self._different.add(labels)
        for kind in kinds:
            self._differences.add((*labels, kind))

    def dropped(self, webhook: Webhook) -> None:
        """Count a call of *webhook* after the answer that was not made."""
        self._dropped.add((webhook.name, TYPES[webhook.phase]))

    def add_to(self, numbers: dict[NumbersKey, Numbers]) -> None:
        """Add the counts to *numbers*, which makes missing values; can run in a thread."""
        for (name, kind, _, result), count in self._not_enforced.items():
            of_webhook = numbers[PHASES[kind], name]
            of_webhook.would_be_denied += count if result == "denied" else 0
            of_webhook.would_fail_closed += count if result == "failed" else 0
        for (name, kind), count in self._compared.items():
            numbers[PHASES[kind], name].compared += count
        for (name, kind), count in self._different.items():
            numbers[PHASES[kind], name].different += count
        for (name, kind, difference), count in self._differences.items():
            of_webhook = numbers[PHASES[kind], name]
            of_webhook.newly_denied += count if difference == "newly_denied" else 0
            of_webhook.newly_allowed += count if difference == "newly_allowed" else 0
            of_webhook.candidate_failed += count if difference == "failed" else 0


class PlanNumbers(NamedTuple):
    """What metrics show of a rollout plan."""

    webhook: WebhookId
    stage: int
    """From 1."""
    phase: str
    gates: Mapping[str, int]
    """The number of gates by what they said last."""
    waits_for: str
    """A ``gateway.pure.rollout_plan.waiting.Reason``."""

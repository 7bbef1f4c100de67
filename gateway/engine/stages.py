"""The stages of rollout plans that are in force in a process, which change without another configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.webhook import Rollout, WebhookId


class Stages:
    """What is in force of webhooks that have a plan, or had one that was removed.

    A review reads it once, when its modes are decided.
    """

    def __init__(self) -> None:
        self._in_force: dict[WebhookId, Rollout] = {}
        self.in_force: Mapping[WebhookId, Rollout] = self._in_force
        """By webhook. Where one is missing, ``Webhook.rollout`` is in force: the first stage."""

    def put(self, found: Mapping[WebhookId, Rollout]) -> None:
        """Put *found* in force, in place of all others. Reviews whose modes are decided keep these."""
        for gone in self._in_force.keys() - found.keys():
            del self._in_force[gone]
        self._in_force.update(found)

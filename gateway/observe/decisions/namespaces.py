"""Denials, failures and fail-opens by namespace and webhook, since the start of a process.

Those that the mode of the webhook lets pass are counted apart from those that refuse the request.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.verdict import Allowed, Denied

if TYPE_CHECKING:
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.webhook import Phase

MAX_CELLS: Final = 10_000
"""Pairs of a namespace and a webhook: some 2 MiB. Namespaces are made up by clients."""

COUNTS: Final = ("denied", "failedClosed", "failedOpen", "wouldBeRefused")
"""Members of a cell. The last: denials and failures under Fail that the mode let pass."""
_DENIED, _FAILED_CLOSED, _FAILED_OPEN, _WOULD_BE_REFUSED = range(4)


class NamespaceCounts:
    """Counts of one process."""

    ordinary_at: Final = inf
    """Allowed requests are not counted."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, Phase, str, str], list[int]] = {}
        """The ``COUNTS``, by namespace, phase, configuration and webhook."""
        self.left_out = 0
        """Outcomes that were not counted, because there were ``MAX_CELLS`` cells."""

    def offer(self, answer: Answer, seconds: float, digest: str, *, is_noteworthy: bool) -> None:
        """Count the outcomes of *answer* other than Allowed; a ``DecisionSink``."""
        if not is_noteworthy:
            return
        for outcome in answer.evaluation.outcomes:
            verdict = outcome.verdict
            if type(verdict) is Allowed:
                continue
            webhook = outcome.invocation.webhook
            key = answer.evaluation.request.namespace, webhook.phase, webhook.configuration, webhook.name
            cell = self._cells.get(key)
            if cell is None:
                if len(self._cells) >= MAX_CELLS:
                    self.left_out += 1
                    continue
                cell = self._cells[key] = [0] * len(COUNTS)
            if not outcome.would_reject:
                cell[_FAILED_OPEN] += 1
            elif not outcome.rejects:
                cell[_WOULD_BE_REFUSED] += 1
            else:
                cell[_DENIED if type(verdict) is Denied else _FAILED_CLOSED] += 1

    def document(self, webhook: tuple[str, str, str] | None = None) -> dict[str, Any]:
        """Return the counts as JSON: ``cells``, and ``leftOut``; can run in a thread.

        With the phase, configuration and name of a *webhook* only its own.
        """
        return {
            "cells": [
                dict(zip(("namespace", "phase", "configuration", "webhook"), key, strict=True))
                | dict(zip(COUNTS, cell, strict=True))
                for key, cell in list(self._cells.items())
                if webhook is None or key[1:] == webhook
            ],
            "leftOut": self.left_out,
        }

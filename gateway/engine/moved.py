"""The policies that API servers evaluate, which reviews leave out for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.admission_policies.placing import Named, digest_of
from gateway.pure.core.matching import Selection
from gateway.pure.core.webhook import PolicyRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gateway.pure.core.webhook import Webhook

_KEPT: Final = 256
"""Cached selections. The cache is emptied when it has more."""


class MovedPolicies:
    """The policies that API servers have in force, as last read, until that is too old."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._digests: Mapping[Named, str] = {}
        self._until = 0.0
        self._rest: dict[Selection, Selection] = {}

    def renew(self, digests: Mapping[Named, str], until: float) -> None:
        """Leave out the policies that have these *digests* until *until*, by the clock of reviews."""
        if digests != self._digests:
            self._digests = dict(digests)
            self._rest.clear()
        self._until = until

    @property
    def digests(self) -> Mapping[Named, str]:
        """The digest of each policy that is left out now, if it has this digest."""
        return self._digests if self._digests and self._now() < self._until else {}

    def leave_out(self, selection: Selection) -> Selection:
        """Return *selection* without the policies that API servers evaluate."""
        digests = self.digests
        if not digests:
            return selection
        rest = self._rest.get(selection)
        if rest is None:
            kept = without(selection.webhooks, digests)
            if len(kept) != len(selection.webhooks):
                rest = Selection(selection.phase, kept, selection.exceptions)
            if len(self._rest) >= _KEPT:
                self._rest.clear()
            self._rest[selection] = rest = rest or selection
        return rest


def among(webhooks: Iterable[Webhook], digests: Mapping[Named, str]) -> dict[Named, str]:
    """Return the part of *digests* that policies among *webhooks* have."""
    found = dict[Named, str]()
    for webhook in webhooks:
        client = webhook.client
        if isinstance(client, PolicyRef):
            key = Named(client.kind, webhook.configuration)
            wanted = digests.get(key)
            if wanted is not None and wanted == digest_of(client.kind, client.policy.expressions):
                found[key] = wanted
    return found


def without(webhooks: Iterable[Webhook], digests: Mapping[Named, str]) -> tuple[Webhook, ...]:
    """Return *webhooks* without the policies that have their digest in *digests*."""
    return tuple(one for one in webhooks if not among((one,), digests))

"""How often webhooks change objects, to avoid speculative calls that would be discarded.

A speculative call of a mutating webhook, before its turn, is wasted if an earlier webhook changes the object.
Behind one that usually does, the gateway sends a chain, or waits. This memory decides only the number and the
time of calls, never the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Webhook

_KEPT: Final = 16_384
"""Pairs of webhook and kind of request in the memory, which is emptied when it is full."""

_WEIGHT: Final = 0.2
"""Weight of the latest answer in the moving average: about ten answers change the result."""


class ChangeRates:
    """How often each webhook has changed objects of each kind lately."""

    def __init__(self) -> None:
        self._rates: dict[tuple[Webhook, str, str, str], float] = {}

    def usually_changes(self, webhook: Webhook, request: AdmissionRequest) -> bool:
        """Whether *webhook* has lately changed more than half of the requests like *request*."""
        # The memory is empty if no webhook changes anything; then no key is made.
        return bool(self._rates) and self._rates.get(self._key(webhook, request), 0.0) > 0.5

    def note(self, webhook: Webhook, request: AdmissionRequest, *, changed: bool) -> None:
        """Note whether *webhook* changed the object of *request*."""
        if not changed and not self._rates:
            return
        key = self._key(webhook, request)
        rate = self._rates.get(key)
        if rate is None:
            if not changed:
                return
            if len(self._rates) >= _KEPT:
                self._rates.clear()
            rate = 0.0
        rate += _WEIGHT * (changed - rate)
        if rate < 0.01:
            del self._rates[key]
        else:
            self._rates[key] = rate

    @staticmethod
    def _key(webhook: Webhook, request: AdmissionRequest) -> tuple[Webhook, str, str, str]:
        group, _, resource = request.resource
        return webhook, request.operation, group, resource

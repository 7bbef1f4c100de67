"""Remembers which webhooks change objects, so that calls are not made for nothing.

A mutating webhook may be called before its turn, on the bet that those before it change nothing. The
bet is lost, and the call wasted, behind a webhook that usually does change such objects. What is remembered
here decides only how many calls are made and when, never what is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.core.review import AdmissionRequest
    from gateway.core.webhook import Webhook

_KEPT: Final = 16_384
"""Pairs of webhook and kind of request remembered before starting over."""

_WEIGHT: Final = 0.2
"""Share of the latest answer in the moving average: some ten answers make a habit or break it."""


class ChangeMemory:
    """How often each webhook lately changed which kind of object."""

    def __init__(self) -> None:
        self._rates: dict[tuple[Webhook, str, str, str], float] = {}

    def usually_changes(self, webhook: Webhook, request: AdmissionRequest) -> bool:
        """Whether *webhook* changed more than half of the requests like *request* that it saw lately."""
        # Where no webhook changes anything the memory is empty, and no key has to be made.
        return bool(self._rates) and self._rates.get(self._key(webhook, request), 0.0) > 0.5

    def note(self, webhook: Webhook, request: AdmissionRequest, *, changed: bool) -> None:
        """Remember what *webhook* did with *request*."""
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

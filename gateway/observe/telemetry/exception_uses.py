"""The uses of exceptions: their number, and the time of the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.outcome import Exemption

MAX_EXCEPTIONS: Final = 1000
"""Exceptions that are counted each by itself, the first by id. Each has three series in every process."""
OTHERS: Final = "(others)"
"""Instead of an id: all further exceptions together. No exception has this id."""


@dataclass(slots=True)
class Uses:
    """The uses of one exception since the process started."""

    expires_at: float | None = None
    number: int = 0
    """Webhooks that were left out of a review."""
    last_at: float = 0.0
    """Seconds since 1970, 0 before the first use."""


class ExceptionUses:
    """The uses of the exceptions of the configuration in force, by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, Uses] = {}

    def use(self, exceptions: Sequence[PolicyException]) -> None:
        """Count the uses of *exceptions* from now on; those that were known keep their numbers."""
        known, self.by_id = self.by_id, {}
        for one in exceptions[:MAX_EXCEPTIONS]:
            uses = self.by_id[one.id] = known.get(one.id, Uses())
            uses.expires_at = one.expires_at
        if len(exceptions) > MAX_EXCEPTIONS:
            self.by_id[OTHERS] = known.get(OTHERS, Uses())

    def add(self, exemptions: Iterable[Exemption], now: float) -> None:
        """Count *exemptions*, those of a review that ended at *now*."""
        for exemption in exemptions:
            # A review that began before a reload may have used an exception that is gone.
            uses = self.by_id.get(exemption.exception.id) or self.by_id.get(OTHERS)
            if uses is not None:
                uses.number += 1
                uses.last_at = now

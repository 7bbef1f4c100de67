"""What becomes of the spans of traces, for metrics."""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

SpanFate = Literal["exported", "export_failed", "queue_full", "not_recorded"]
"""``not_recorded`` counts reviews, which have no spans because of the bound on spans per second."""


class SpanCounts(Counter[SpanFate]):
    """Counts of spans by fate. Each fate is counted by one thread."""

    def begin(self) -> None:
        """Have a count for each fate, as soon as there can be spans."""
        for fate in get_args(SpanFate):
            self[fate] += 0

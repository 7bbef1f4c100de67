"""Histograms of the Prometheus text format: the observations between two moments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"(?P<name>\w+?)_(?P<part>bucket|sum|count)\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Histogram:
    """The sum of some series of one histogram, in seconds."""

    buckets: dict[float, float] = field(default_factory=dict)
    """The number of observations up to each bound."""
    total_s: float = 0.0
    count: float = 0.0

    @classmethod
    def read(cls, text: str, name: str, /, **labels: str) -> Histogram:
        """Return the sum of the series *name* in the metrics *text* whose labels match these expressions."""
        buckets: dict[float, float] = {}
        sums = {"sum": 0.0, "count": 0.0}
        for line in text.splitlines():
            sample = _SAMPLE.fullmatch(line) if line.startswith(name) else None
            if sample is None or sample["name"] != name:
                continue
            found = dict(_LABEL.findall(sample["labels"]))
            if not all(re.fullmatch(wanted, found.get(label, "")) for label, wanted in labels.items()):
                continue
            value = float(sample["value"])
            if sample["part"] == "bucket":
                bound = float(found["le"])
                buckets[bound] = buckets.get(bound, 0.0) + value
            else:
                sums[sample["part"]] += value
        return cls(buckets, sums["sum"], sums["count"])

    def since(self, earlier: Histogram) -> Histogram:
        """Return the observations after *earlier*."""
        buckets = {bound: count - earlier.buckets.get(bound, 0.0) for bound, count in self.buckets.items()}
        return Histogram(buckets, self.total_s - earlier.total_s, self.count - earlier.count)

    def quantile_ms(self, share: float) -> float:
        """Return the smallest value that *share* of the observations do not exceed, in milliseconds.

        Interpolated within its bucket, as Prometheus' histogram_quantile does: exact to the bucket's width.
        """
        rank, lower, below = share * self.count, 0.0, 0.0
        for bound in sorted(self.buckets):
            until = self.buckets[bound]
            if until >= rank and until > below:
                if bound == float("inf"):
                    break
                return (lower + (bound - lower) * (rank - below) / (until - below)) * 1000
            lower, below = bound, until
        return lower * 1000

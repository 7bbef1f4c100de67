"""What several processes have counted together, those that have ended included.

A counter that falls looks to Prometheus as if it had started over, and all that is left of it as if it had
just happened. So what a process had counted stays in the sum when it ends, as far as it was known: what it
counted after the last scrape is lost with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.scrape import summed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

_COUNTING: Final = {"counter", "histogram"}


class Totals:
    """The expositions of processes that come and go, each known by its process id."""

    def __init__(self) -> None:
        self._last: dict[int, bytes] = {}
        """What the running ones said last."""
        self._ended = b""
        """The counters of those that have ended, added up."""

    def add(self, expositions: Mapping[int, bytes], running: set[int]) -> tuple[bytes, str]:
        """Return one exposition for *expositions*, by process id, and its media type.

        Processes that are not among *running* have ended, perhaps just after they were asked.
        """
        self._last.update(expositions)
        for pid in self._last.keys() - running:
            self._ended = _counters(summed([self._ended, self._last.pop(pid)])[0])
        return summed([*self._last.values(), self._ended])


class _Counters:
    """A collector of what only grows in an exposition."""

    def __init__(self, exposition: bytes) -> None:
        self._exposition = exposition

    def collect(self) -> Iterator[Metric]:
        """Yield its counters and histograms. The name is prometheus_client's."""
        for family in text_string_to_metric_families(self._exposition.decode()):
            if family.type in _COUNTING:
                yield family


def _counters(exposition: bytes) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Counters(exposition))
    return generate_latest(registry)

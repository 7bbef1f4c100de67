"""The metrics of several gateway processes as one exposition.

Counters and histograms are sums, with the newest exemplar of each bucket. Gauges are sums too, except those
about the configuration, the certificate or the cluster, where the lowest value counts: a reload that failed
in one process has failed. Of times of a last use the highest counts. Metrics of the processes themselves have
a label for the process instead of a sum.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gateway.observe.telemetry.definitions import DEFINITIONS
from gateway.observe.telemetry.exposition import OPENMETRICS, expose
from gateway.observe.telemetry.process import SUPERVISOR, OwnProcess
from gateway.observe.telemetry.series import newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from prometheus_client.samples import Sample

    from gateway.observe.telemetry.exposition import Exposition

_TIMEOUT_S: Final = 2.0
_LOWEST: Final = {definition.name for definition in DEFINITIONS if definition.is_lowest}
_HIGHEST: Final = {definition.name for definition in DEFINITIONS if definition.is_highest}
_CUMULATIVE: Final = {"counter", "histogram"}


class FetchError(Exception):
    """A process does not answer on its admin port."""


async def fetch(
    path: Path, target: str, posted: bytes = b"", timeout_s: float = _TIMEOUT_S
) -> tuple[int, bytes]:
    """Return status and body of *target* at the unix socket *path*; metrics are in OpenMetrics.

    The method is GET, or POST with the body *posted*.

    Raises:
        FetchError: the connection is refused, or there is no answer within the timeout.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                method = b"POST" if posted else b"GET"
                writer.write(b"%b %b HTTP/1.1\r\nHost: localhost\r\n" % (method, target.encode()))
                writer.write(b"Accept: %b\r\nConnection: close\r\n" % OPENMETRICS)
                writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(posted), posted))
                head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
            finally:
                writer.close()
            return int(head.split(b" ", 2)[1]), body
    except (OSError, TimeoutError, ValueError, IndexError):
        raise FetchError("does not answer") from None


class ProcessMetrics:
    """The sum of the metrics of processes, each identified by its process id, including ended ones.

    Prometheus takes a counter that falls for one that has restarted, and counts all that is left of it once
    more. So the counters of an ended process stay in the sum, with their values at the last scrape.
    """

    def __init__(self) -> None:
        self._last: dict[int, bytes] = {}
        """The last expositions of the running processes."""
        self._ended: list[Metric] = []
        """The sum of the counters and histograms of ended processes."""
        self._ended_pids: set[int] = set()
        """Processes in that sum. Their number is bounded by that of process ids."""
        self._own = OwnProcess(SUPERVISOR)

    def add(self, expositions: Mapping[int, bytes], running: set[int], accept: bytes = b"") -> Exposition:
        """Return one exposition for *expositions*, by process id, in a format by the header *accept*.

        The expositions are in OpenMetrics. Processes that are not in *running* have ended, perhaps just after
        their exposition.
        """
        # A process can have been counted as ended by a scrape that began later than this one.
        self._ended_pids -= running
        self._last.update(
            (pid, exposition) for pid, exposition in expositions.items() if pid not in self._ended_pids
        )
        for pid in self._last.keys() - running:
            self._ended_pids.add(pid)
            total = _sum([self._ended, _families(self._last.pop(pid))])
            self._ended = [family for family in total if family.type in _CUMULATIVE]
        return expose(_Sum([*map(_families, self._last.values()), self._ended, self._own.collect()]), accept)


def _families(exposition: bytes) -> Iterable[Metric]:
    families: Iterable[Metric] = text_string_to_metric_families(exposition.decode())  # type: ignore[no-untyped-call]
    return families


class _Sum(Collector):
    """The sum of the *parts*, each the families of one process."""

    def __init__(self, parts: Iterable[Iterable[Metric]]) -> None:
        self._families = _sum(parts)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _sum(parts: Iterable[Iterable[Metric]]) -> list[Metric]:
    families: dict[str, Metric] = {}
    samples: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], Sample]] = {}
    for family in chain.from_iterable(parts):
        families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        found = samples.setdefault(family.name, {})
        for sample in family.samples:
            key = sample.name, tuple(sample.labels.items())
            before = found.get(key)
            found[key] = sample if before is None else _added(before, sample)
    for name, family in families.items():
        family.samples = list(samples[name].values())
    return list(families.values())


def _added(one: Sample, other: Sample) -> Sample:
    """Return the sum of two samples of a series, with the newer exemplar."""
    value = one.value + other.value
    if one.name in _LOWEST or one.name in _HIGHEST:
        value = (min if one.name in _LOWEST else max)(one.value, other.value)
    exemplar = one.exemplar if other.exemplar is None else newest(one.exemplar, other.exemplar)
    return one._replace(value=value, exemplar=exemplar)

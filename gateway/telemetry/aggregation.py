"""The metrics of several gateway processes as one exposition.

Counters and histograms are sums. Gauges are sums too, except those about the configuration, the certificate
or the cluster, where the lowest value counts: a reload that failed in one process has failed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_TIMEOUT_S: Final = 2.0
_LOWEST: Final = {
    "admission_gateway_cluster_namespaces",
    "admission_gateway_cluster_watch_connected",
    "admission_gateway_config_last_reload_successful",
    "admission_gateway_config_last_reload_success_timestamp_seconds",
    "admission_gateway_tls_certificate_expiry_timestamp_seconds",
}
_CUMULATIVE: Final = {"counter", "histogram"}


class FetchError(Exception):
    """A process does not answer on its admin port."""


async def fetch(path: Path, target: str) -> tuple[int, bytes]:
    """Return status and body of GET *target* at the unix socket *path*.

    Raises:
        FetchError: the connection is refused, or there is no answer within the timeout.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n" % target.encode())
                writer.write(b"Connection: close\r\n\r\n")
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
        self._ended = b""
        """The sum of the counters and histograms of ended processes."""

    def add(self, expositions: Mapping[int, bytes], running: set[int]) -> tuple[bytes, str]:
        """Return one exposition for *expositions*, by process id, and its media type.

        Processes that are not in *running* have ended, perhaps just after their exposition.
        """
        self._last.update(expositions)
        for pid in self._last.keys() - running:
            total = _sum([self._ended, self._last.pop(pid)])
            self._ended = _exposition(family for family in total if family.type in _CUMULATIVE)
        return summed([*self._last.values(), self._ended])


def summed(expositions: Iterable[bytes]) -> tuple[bytes, str]:
    """Return one exposition for *expositions* in the Prometheus text format, and its media type."""
    return _exposition(_sum(expositions)), CONTENT_TYPE_LATEST


def _sum(expositions: Iterable[bytes]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for exposition in expositions:
        for family in text_string_to_metric_families(exposition.decode()):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            samples = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sample.labels.items())
                if key not in samples:
                    samples[key] = sample.value
                elif sample.name in _LOWEST:
                    samples[key] = min(samples[key], sample.value)
                else:
                    samples[key] += sample.value
    for name, samples in values.items():
        for (sample_name, labels), value in samples.items():
            families[name].add_sample(sample_name, dict(labels), value)
    return families.values()


class _Collector:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _exposition(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collector(families))
    return generate_latest(registry)

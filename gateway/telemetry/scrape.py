"""The metrics of several processes as one: fetched from each, and added up.

Counters and histograms are sums. Gauges are sums too, except those that state a fact about a configuration,
a certificate or the cluster, of which the worst counts: a reload that failed in one process has failed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_TIMEOUT_S: Final = 2.0
_LEAST: Final = {
    "admission_gateway_cluster_namespaces",
    "admission_gateway_cluster_watch_connected",
    "admission_gateway_config_last_reload_successful",
    "admission_gateway_config_last_reload_success_timestamp_seconds",
    "admission_gateway_tls_certificate_expiry_timestamp_seconds",
}


class Unreachable(Exception):
    """A process does not answer on its admin port."""


async def fetch(path: Path, target: str) -> tuple[int, bytes]:
    """Return status and body of GET *target* at the unix socket *path*.

    Raises:
        Unreachable: nobody listens there, or no answer came in time.
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
        raise Unreachable("does not answer") from None


class _Sum:
    """A collector of what was added up."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def summed(expositions: Sequence[bytes]) -> tuple[bytes, str]:
    """Return one exposition for *expositions* in the Prometheus text format, and its media type."""
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
                elif sample.name in _LEAST:
                    samples[key] = min(samples[key], sample.value)
                else:
                    samples[key] += sample.value
    for name, samples in values.items():
        for (sample_name, labels), value in samples.items():
            families[name].add_sample(sample_name, dict(labels), value)
    registry = CollectorRegistry()
    registry.register(_Sum(families.values()))
    return generate_latest(registry), CONTENT_TYPE_LATEST

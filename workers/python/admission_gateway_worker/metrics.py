"""The metrics of a worker over HTTP, in Prometheus' text format.

This module and prometheus-client are imported only where metrics are served.
"""

from __future__ import annotations

import asyncio
import platform
import resource
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from admission_gateway_worker import __version__
from admission_gateway_worker.counters import BOUNDS_S, OUTCOMES, families
from admission_gateway_worker.listen import Address, StartError, listening, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission_gateway_worker.counters import Counters

PATH: Final = "/metrics"
REQUEST_TIMEOUT_S: Final = 5.0
MAX_CONNECTIONS: Final = 16
MAX_HEAD_BYTES: Final = 8192
"""Bounds of a request and of their number: the port has no authentication."""

_PROCESS: Final = ("process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds")
"""Metrics that are summed over processes."""


class WorkerCollector(Collector):
    """The metrics of some policies, summed over the processes of the worker."""

    def __init__(
        self, policies: Sequence[str], counters: Sequence[Counters], children: Callable[[], Iterable[int]]
    ) -> None:
        """*children* returns the ids of the processes besides this one."""
        self._policies = policies
        self._counters = counters
        self._children = children

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        build = GaugeMetricFamily(
            "admission_gateway_worker_build_info",
            "The SDK of the worker.",
            labels=("sdk", "version", "runtime"),
        )
        build.add_metric(("python", __version__, platform.python_version()), 1)
        reviews = CounterMetricFamily(
            "admission_gateway_worker_policy_reviews",
            "Reviews by outcome; error: the policy failed or exceeded its deadline.",
            labels=("policy", "outcome"),
        )
        in_flight = GaugeMetricFamily(
            "admission_gateway_worker_policy_in_flight",
            "Reviews whose policy has begun and that have no answer yet.",
            labels=("policy",),
        )
        duration = HistogramMetricFamily(
            "admission_gateway_worker_policy_duration_seconds",
            "Time from the begin of a policy to its answer.",
            labels=("policy",),
        )
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        for policy in self._policies:
            counts = zip(*(one.outcomes(policy) for one in self._counters), strict=True)
            for outcome, values in zip(OUTCOMES, counts, strict=True):
                reviews.add_metric((policy, outcome), sum(values))
            in_flight.add_metric((policy,), sum(one.in_flight(policy) for one in self._counters))
            found = [one.durations(policy) for one in self._counters]
            buckets = [sum(values) for values in zip(*(buckets for buckets, _ in found), strict=True)]
            seconds = sum(seconds for _, seconds in found)
            duration.add_metric((policy,), list(zip(bounds, accumulate(buckets), strict=True)), seconds)
        return [build, reviews, in_flight, duration, *self._families(), *self._process()]

    def _families(self) -> Iterable[Metric]:
        """Return the counters that policies have of their own; values that are 0 are left out."""
        for family in families():
            metric = CounterMetricFamily(family.name, family.text, labels=family.labels)
            counts = zip(*(one.values(family) for one in self._counters), strict=True)
            for values, counted in zip(family.values, counts, strict=True):
                if total := sum(counted):
                    metric.add_metric(values, total)
            yield metric

    def _process(self) -> Iterable[Metric]:
        """Return the metrics of the processes: a sum, or those of this one (start, limits)."""
        of_children = {
            (metric.name, child): metric.samples[0].value
            for child in self._children()
            for metric in ProcessCollector(pid=lambda child=child: child, registry=None).collect()  # type: ignore[misc]
        }
        for metric in ProcessCollector(registry=None).collect():
            if metric.name in _PROCESS:
                sample = metric.samples[0]
                value = sample.value + sum(
                    value for (name, _), value in of_children.items() if name == metric.name
                )
                if metric.name == "process_cpu_seconds":
                    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
                    value += ended.ru_utime + ended.ru_stime
                metric.samples[0] = sample._replace(value=value)
            yield metric


class MetricsServer:
    """Serves the metrics of a collector, one request on each connection."""

    def __init__(self, collector: WorkerCollector) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        self._listeners: list[asyncio.Server] = []
        self._connections = 0
        self.address = ""
        """HOST:PORT, once it is started."""

    async def start(self, listen: str) -> None:
        """Bind *listen* and serve.

        Raises:
            StartError: it cannot be bound.
            ValueError: it is not HOST:PORT.
        """
        address = parse_metrics_address(listen)
        try:
            bound = listening(address, reuse_port=False)
        except StartError as error:
            raise StartError(f"--metrics-listen: {error}") from None
        for sock in bound:
            self._listeners.append(await asyncio.start_server(self._answer, sock=sock, limit=MAX_HEAD_BYTES))
        self.address = str(Address(address.host, bound[0].getsockname()[1]))

    def stop(self) -> None:
        """Close the port."""
        for listener in self._listeners:
            listener.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._response(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._connections -= 1
            with suppress(OSError):
                writer.close()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        kind, body = "text/plain; charset=utf-8", b""
        if rest.partition(b" ")[0].partition(b"?")[0] != PATH.encode():
            status, body = "404 Not Found", f"the metrics are at {PATH}\n".encode()
        elif method not in {b"GET", b"HEAD"}:
            status, body = "405 Method Not Allowed", b"only GET and HEAD are served\n"
        else:
            status, kind, body = "200 OK", CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)
        fields = f"content-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close"
        return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + (b"" if method == b"HEAD" else body)


def parse_metrics_address(text: str) -> Address:
    """Return the address of the metrics.

    Raises:
        ValueError: *text* is not HOST:PORT.
    """
    address = parse_address(text)
    if address.path is not None:
        raise ValueError("HOST:PORT is expected")
    return address

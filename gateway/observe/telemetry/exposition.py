"""Metrics as text: the Prometheus format, or OpenMetrics, which has exemplars.

Source: prometheus.io "Exposition formats" and "Scrape protocol content negotiation"; OpenMetrics 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

OPENMETRICS: Final = b"application/openmetrics-text"
Exposition = tuple[bytes, str]
"""Metrics as bytes, and their media type."""


def expose(collector: Collector, accept: bytes) -> Exposition:
    """Return the exposition of *collector* in OpenMetrics if the header *accept* names it, else as text."""
    if accepts_openmetrics(accept):
        body: bytes = openmetrics.generate_latest(collector)  # type: ignore[no-untyped-call]
        return body, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(collector), CONTENT_TYPE_LATEST


def accepts_openmetrics(accept: bytes) -> bool:
    """Whether the header *accept* names OpenMetrics in a version that is served, without the weight 0."""
    for media_range in accept.lower().split(b","):
        media_type, *parameters = (part.strip() for part in media_range.split(b";"))
        values = dict(parameter.partition(b"=")[::2] for parameter in parameters)
        is_served = media_type == OPENMETRICS and values.get(b"version", b"1.0.0") == b"1.0.0"
        if is_served and values.get(b"q", b"1").strip(b"0."):
            return True
    return False

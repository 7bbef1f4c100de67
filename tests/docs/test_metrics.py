"""The table of metrics has every series that the gateway exposes, with its type and labels, and no others."""

from __future__ import annotations

from types import SimpleNamespace

from gateway.observe.telemetry.definitions import DEFINITIONS
from gateway.observe.telemetry.metrics import Metrics, SpanCounts

Series = dict[str, tuple[str, tuple[str, ...]]]


def exposed() -> Series:
    metrics = Metrics("0")
    metrics.watch = (True, 1)
    metrics.findings_dropped = 0
    metrics.placement = {}
    metrics.is_recording = True
    metrics.history = SimpleNamespace(errors=0, is_pinned=False)
    metrics.spans = spans = SpanCounts()
    spans.begin()
    metrics.activate("digest", ())
    declared = {
        name: tuple(getattr(collector, "_labelnames", ()))
        for collector, names in metrics.registry._collector_to_names.items()
        for name in names
    }
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            tuple(
                getattr(family, "_labelnames", None)
                or declared.get(family.name, ())
                or (family.samples[0].labels if family.samples else ())
            ),
        )
        for family in metrics.registry.collect()
    }


def test_the_table_has_every_series_with_type_and_labels() -> None:
    assert {one.name: (one.kind, one.labels) for one in DEFINITIONS} == exposed()

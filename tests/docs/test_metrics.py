"""docs/metrics.md has every series that the gateway exposes, with its type and labels, and no others."""

from __future__ import annotations

import re

from gateway.telemetry.metrics import Metrics
from tests.docs.pages import DOCS, rows

Series = dict[str, tuple[str, tuple[str, ...]]]


def exposed() -> Series:
    metrics = Metrics()
    metrics.watch = (True, 1)
    declared = {
        name: tuple(getattr(collector, "_labelnames", ()))
        for collector, names in metrics.registry._collector_to_names.items()
        for name in names
    }
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            tuple(getattr(family, "_labelnames", None) or declared.get(family.name, ())),
        )
        for family in metrics.registry.collect()
    }


def documented() -> Series:
    found = rows((DOCS / "metrics.md").read_text(), 4)
    return {
        name.strip("`"): (kind, tuple(re.findall(r"`([^`]+)`", labels)))
        for name, kind, labels, meaning in found
        if meaning
    }


def test_the_page_has_every_series_with_type_and_labels() -> None:
    assert documented() == exposed()

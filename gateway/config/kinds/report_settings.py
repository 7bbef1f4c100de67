"""``reports`` of a GatewayConfiguration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.config.kinds.declare import Boolean, Declared, Duration, Integer, declare

MAX_RESULTS: Final = 1000
"""Results of one report: at 1 KiB each, a megabyte, which etcd takes."""


@dataclass(frozen=True, slots=True)
class ReportSettings(Declared):
    """Which findings are written into the cluster."""

    max_results: int = declare(Integer(1, MAX_RESULTS), "Results of one report, from 1 to 1,000", default=100)
    retention_s: float = declare(
        Duration(60.0, 30 * 86_400.0),
        "How long a result is kept after it was last found, from 1m to 720h",
        default=86_400.0,
        name="retention",
    )
    events: bool = declare(Boolean(), "Whether a denied UPDATE or DELETE creates an Event", default=False)

"""The table of the metrics that the worker SDKs expose, for the dashboard.

workers/README.md describes them, and each SDK has its own code for them.
"""

from __future__ import annotations

from typing import Final

from gateway.observe.telemetry.definitions import PREFIX, Definition

_W: Final = f"{PREFIX}worker_"
WORKER_METRICS: Final = (
    Definition(f"{_W}policy_reviews_total", "counter", "reviews by outcome", ("policy", "outcome")),
    Definition(f"{_W}policy_duration_seconds", "histogram", "duration of a policy", ("policy",)),
    Definition(f"{_W}policy_in_flight", "gauge", "reviews whose policy runs", ("policy",)),
    Definition(f"{_W}build_info", "gauge", "always 1", ("sdk", "version", "runtime")),
)

"""``reports`` of a GatewayConfiguration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields

MAX_RESULTS: Final = 1000
"""Of one report: at 1 KiB each, a megabyte, which etcd takes."""
RETENTION_S: Final = (60.0, 30 * 86_400.0)


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Which findings are written into the cluster."""

    max_results: int = 100
    """Results of one namespace; the newest are kept."""
    retention_s: float = 86_400.0
    """Seconds for which a result is kept after it was last found."""
    events: bool = False
    """Whether an Event is created when a request about an existing object is denied."""


def read_reports(fields: Fields | None) -> ReportSettings | None:
    """Return the settings behind *fields*; None: no reports are written."""
    if fields is None:
        return None
    default = ReportSettings()
    settings = ReportSettings(
        max_results=fields.integer("maxResults", default.max_results, 1, MAX_RESULTS),
        retention_s=fields.duration("retention", default.retention_s, *RETENTION_S),
        events=fields.boolean("events"),
    )
    fields.finish()
    return settings

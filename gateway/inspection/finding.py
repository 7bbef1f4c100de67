"""What an inspection finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["error", "warning"]

REGISTER: Final = "run admission-gateway manifests --apply again"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong, or doubtful, between cluster and configuration. They sort errors first."""

    severity: Severity
    place: str
    """The object, and what in it; or the configured webhook."""
    message: str
    """What was found, and what was expected."""
    advice: str
    """What to do."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.place}: {self.message}; {self.advice}"

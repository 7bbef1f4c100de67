"""When the watchdog relaxes a registration and when it restores it: decisions without a clock and I/O.

Two things are seen at each look: a dry run that the API server sends to the gateway, and the ready endpoints
of the gateway. Times are seconds since 1970, because they are stored in the registration.

Laws:

1. With mode Alert nothing is ever relaxed.
2. It opens only after ``failures`` looks in a row at which the API server could not reach the gateway, or
   waited for it in vain, and no endpoint was ready, over at least ``after_s`` seconds. A ready endpoint, an
   overloaded API server, and one that cannot be reached end the row: otherwise load would open a cluster.
3. It closes only after ``recovered_s`` seconds in which every look was answered.
4. Once open it stays open for ``min_open_s``, and closed for ``min_closed_s``.
5. It does not open twice within ``again_s``: then a person has to decide.
6. The step ``Ignore`` follows ``Exempt``, with mode Ignore, and after ``escalate_after_s`` at the earliest.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Final, Literal, get_args

Mode = Literal["Alert", "Exempt", "Ignore"]
Step = Literal["Closed", "Exempt", "Ignore"]
"""The registration as its owner wrote it; with exemptions; with no requests at all but the watchdog's own."""
Sight = Literal["answered", "unreachable", "timeout", "slow", "unknown"]
"""What a dry run shows. Timeout: the API server waited for the gateway in vain. Slow: one of both has too
much to do. Unknown: the API server did not say."""
_AWAY: Final = frozenset({"unreachable", "timeout"})

_STEPS: Final[tuple[Step, ...]] = get_args(Step)


@dataclass(frozen=True, slots=True)
class Settings:
    """When to act."""

    mode: Mode = "Alert"
    failures: int = 6
    after_s: float = 60.0
    recovered_s: float = 30.0
    min_open_s: float = 60.0
    min_closed_s: float = 300.0
    escalate_after_s: float = 300.0
    again_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Stored:
    """The state in the annotation of a registration, which all watchdogs share."""

    step: Step = "Closed"
    since: float = 0.0
    """When the step began."""
    opened: float = 0.0
    """When it was last opened. 0 if never."""

    @classmethod
    def parse(cls, text: object) -> Stored:
        """Return the state in *text*; one that cannot be read is closed, and was opened never."""
        try:
            found = json.loads(text) if isinstance(text, str) else {}
        except ValueError:
            return cls()
        match found:
            case {"step": str(text), "since": int() | float() as since, "opened": int() | float() as opened}:
                for step in _STEPS:
                    if step == text:
                        return cls(step, float(since), float(opened))
        return cls()

    def text(self) -> str:
        """Return the annotation."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Trend:
    """What a watchdog has seen in a row."""

    failures: int = 0
    failing_since: float | None = None
    """The first of the looks in a row at which the gateway did not answer and no endpoint was ready."""
    answered_since: float | None = None
    unwell_since: float | None = None
    """The first look in a row at which the dry run was not answered, for whatever reason."""

    def seen(self, sight: Sight, ready: int, now: float) -> Trend:
        """Return the trend after a look at *now* with *ready* endpoints."""
        unwell_since = None if sight == "answered" else self._since(self.unwell_since, now)
        if sight in _AWAY and ready == 0:
            return Trend(self.failures + 1, self._since(self.failing_since, now), None, unwell_since)
        if sight == "answered":
            return Trend(0, None, self._since(self.answered_since, now))
        return Trend(unwell_since=unwell_since)

    @staticmethod
    def _since(known: float | None, now: float) -> float:
        return now if known is None else known


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state, and why. Equal states mean that nothing is done."""

    stored: Stored
    reason: str = ""
    """Why something is done, or is not although the gateway is away."""


def decide(settings: Settings, stored: Stored, trend: Trend, now: float) -> Decision:
    """Return what to do with a registration in state *stored* at *now*."""
    # A time to come is of another clock: the registration must not stay open because of it.
    open_s = now - stored.since if stored.since <= now else math.inf
    if stored.step != "Closed":
        if trend.answered_since is not None:
            well_s = now - trend.answered_since
            if well_s >= settings.recovered_s and open_s >= settings.min_open_s:
                return Decision(
                    Stored("Closed", now, stored.opened), f"the gateway has answered for {well_s:.0f} s"
                )
            return Decision(stored)
        may_escalate = settings.mode == "Ignore" and stored.step == "Exempt"
        if may_escalate and open_s >= settings.escalate_after_s and _is_away(settings, trend, now):
            reason = f"the gateway is still away {open_s:.0f} s after system components were exempted"
            return Decision(Stored("Ignore", now, stored.opened), reason)
        return Decision(stored)
    if not _is_away(settings, trend, now):
        return Decision(stored)
    if settings.mode == "Alert":
        return Decision(stored, "the gateway is away; mode is Alert, so the registration stays as it is")
    if stored.opened and now - stored.opened < settings.again_s:
        return Decision(
            stored,
            f"the gateway is away, and the registration was opened {now - stored.opened:.0f} s ago already: "
            "a person has to decide",
        )
    if stored.since and open_s < settings.min_closed_s:
        return Decision(stored, f"the gateway is away, and the registration was closed {open_s:.0f} s ago")
    away_s = now - (trend.failing_since or now)
    reason = f"the gateway has not answered for {away_s:.0f} s, and has no ready endpoint"
    return Decision(Stored("Exempt", now, now), reason)


def _is_away(settings: Settings, trend: Trend, now: float) -> bool:
    since = trend.failing_since
    return since is not None and trend.failures >= settings.failures and now - since >= settings.after_s

"""Which endpoints of a pool are in rotation: who fails again and again is left out for a while, and so is who
has stopped.

A worker that has stopped (SIGSTOP, a host that is gone, a paused container) breaks no connection. It is asked
for a sign of life once a call has waited in silence for a quarter of its time; when half of the time is over
and none has come, the calls that may be asked twice are, while the rest can still be answered by the first.

Source: gRFC A50 and Envoy's outlier detection, for ejection and its ceiling.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.dispatch.endpoint import WorkerEndpoint
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

State = Literal["ready", "connecting", "down", "draining", "ejected", "unhealthy", "stalled"]

PREFERENCE: Final[dict[State, int]] = {
    "ready": 0,
    "ejected": 1,
    "unhealthy": 1,
    "stalled": 2,
    "connecting": 2,
    "down": 3,
    "draining": 4,
}
"""The lower, the sooner an endpoint is asked: where none is ready, another one is better than none."""

EJECT_AFTER: Final = 5
"""Failures in a row."""
FIRST_EJECTION_S: Final = 2.0
LONGEST_EJECTION_S: Final = 60.0

FIRST_BAN_S: Final = 1.0
LONGEST_BAN_S: Final = 60.0
FREE_BREAKS: Final = 5
"""Streams that answers may break before the next one has to wait."""
HONEST_FOR_S: Final = 60.0
"""After the end of a ban, answers must come for so long before the next ban is as short as the first."""

_NO_FAULT: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})
"""Statuses that are no reason by themselves to ask somebody else: if a worker has too much to do, the others
would soon have too much too; and time runs out for one policy that never ends, too."""

CHECK_INTERVAL_S: Final = 0.1
PROBE_AT: Final = 0.25
"""Of the time that a call has."""
STALLED_AT: Final = 0.5
PROBE_TIMEOUT_S: Final = 0.4
"""At the least. A machine that has too much to do is slow to answer too, and is not to be given more."""
PROBE_EVERY_S: Final = 1.0
"""One that has stopped."""
MAX_EJECTED: Final = 0.5
"""Of the endpoints of a pool: where most fail, the fault is likely elsewhere, and the rest could not cope."""


class OutlierState:
    """The conduct of one endpoint since it was last reached."""

    __slots__ = (
        "_answered_at",
        "_ban_s",
        "_breaks",
        "_broke_at",
        "_ejection_s",
        "_readmitted_at",
        "_served_at",
        "banned_until",
        "ejected_until",
        "failed_in_a_row",
        "is_serving",
        "probed_at",
        "stalled_at",
        "stream_after",
    )

    def __init__(self) -> None:
        self.is_serving = True
        """By its own word, see ``gateway.dispatch.health``."""
        self.banned_until = 0.0
        """When a worker that broke the protocol may be asked again, also over a new connection."""
        self.stream_after = 0.0
        """When it may be asked over a stream again after answers broke several."""
        self._ban_s = 0.0
        self._served_at = 0.0
        self._breaks = 0
        self._broke_at = 0.0
        self.reset()

    def reset(self) -> None:
        """Begin anew: another worker may be there now."""
        self.failed_in_a_row = 0
        self._answered_at = 0.0
        self.ejected_until: float | None = None
        self.stalled_at: float | None = None
        """Since when it is taken for one that has stopped; like all times here on the clock of deadlines."""
        self.probed_at: float | None = None
        """When it was asked for a sign of life that has not come yet."""
        self._ejection_s = 0.0
        self._readmitted_at = 0.0

    @property
    def state(self) -> State:
        """What keeps it out of the rotation; ``ready`` if nothing does."""
        if self.ejected_until is not None:
            return "ejected"
        if not self.is_serving:
            return "unhealthy"
        return "ready" if self.stalled_at is None else "stalled"

    def answered(self, now: float) -> None:
        """Take note of a good answer at *now*."""
        self.failed_in_a_row = 0
        self._answered_at = self._served_at = now

    def failed(self, code: str, number: int) -> None:
        """Take note of *number* calls that ended with gRPC status *code*, which is not OK."""
        if code not in _NO_FAULT:
            self.failed_in_a_row += number

    def timed_out(self, started: float) -> None:
        """Take note of a call that began at *started* and was not answered in time."""
        if self._answered_at < started:
            self.failed_in_a_row += 1

    def eject(self, now: float) -> float:
        """Take it out of the rotation at *now*; return for how many seconds. Each time it is for longer."""
        if now - self._readmitted_at > 2 * self._ejection_s:
            self._ejection_s = 0.0
        self._ejection_s = min(LONGEST_EJECTION_S, max(FIRST_EJECTION_S, 2 * self._ejection_s))
        self.ejected_until = now + self._ejection_s
        return self._ejection_s

    def ban(self, now: float) -> float:
        """Have nothing asked of it from *now* on; return for how many seconds. Each time it is for longer."""
        is_honest = self._served_at - self.banned_until >= HONEST_FOR_S
        self._ban_s = FIRST_BAN_S if is_honest else min(LONGEST_BAN_S, max(FIRST_BAN_S, 2 * self._ban_s))
        self.banned_until = now + self._ban_s
        return self._ban_s

    def broke(self, now: float) -> None:
        """Take note of a stream that an answer broke at *now*. Each time the next one waits for longer."""
        if now - self._broke_at > 2 * LONGEST_BAN_S:
            self._breaks = 0
        self._breaks = min(self._breaks + 1, 2 * FREE_BREAKS + 1)
        self._broke_at = now
        if self._breaks > FREE_BREAKS:
            self.stream_after = now + min(LONGEST_BAN_S, FIRST_BAN_S * 2 ** (self._breaks - FREE_BREAKS))

    def readmit(self, now: float) -> None:
        """Put it back into the rotation at *now*, on probation: one more failure is enough."""
        self.ejected_until = None
        self._readmitted_at = now
        self.failed_in_a_row = EJECT_AFTER - 1


class OutlierDetector:
    """Looks at the endpoints of one pool for as long as there is anything to see."""

    def __init__(self, now: Callable[[], float], metrics: PoolMetrics) -> None:
        self._now = now
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._endpoints: Sequence[WorkerEndpoint] = ()
        self._timer: asyncio.TimerHandle | None = None

    def look_after(self, endpoints: Sequence[WorkerEndpoint]) -> None:
        """Look at *endpoints*, of which one was chosen for a call, from now on."""
        self._endpoints = endpoints
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._endpoints = ()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now, endpoints = self._now(), self._endpoints
        for endpoint in endpoints:
            self._look_for_failures(endpoint, now)
            self._look_for_life(endpoint, now)
        if any(endpoint.slots or endpoint.state in ("ejected", "stalled") for endpoint in endpoints):
            self.look_after(endpoints)

    def _look_for_failures(self, endpoint: WorkerEndpoint, now: float) -> None:
        outlier = endpoint.outlier
        if outlier.ejected_until is not None:
            if now >= outlier.ejected_until:
                outlier.readmit(now)
                endpoint.judge()
                log.info("worker %s is asked again", endpoint.address)
        elif outlier.failed_in_a_row >= EJECT_AFTER and endpoint.state == "ready" and self._can_spare_one():
            failed, for_s = outlier.failed_in_a_row, outlier.eject(now)
            endpoint.judge()
            log.warning(
                "worker %s failed %d calls in a row: left out for %g s", endpoint.address, failed, for_s
            )

    def _can_spare_one(self) -> bool:
        out = sum(endpoint.state in ("ejected", "stalled") for endpoint in self._endpoints)
        return out + 1 <= len(self._endpoints) * MAX_EJECTED

    def _look_for_life(self, endpoint: WorkerEndpoint, now: float) -> None:
        outlier, last_received_at = endpoint.outlier, endpoint.last_received_at
        if outlier.stalled_at is not None:
            if last_received_at > outlier.stalled_at:
                outlier.stalled_at = outlier.probed_at = None
                endpoint.judge()
                log.info("worker %s shows signs of life again", endpoint.address)
            elif outlier.probed_at is None or now - outlier.probed_at >= PROBE_EVERY_S:
                outlier.probed_at = now
                endpoint.probe()
            return
        silence_s = now - last_received_at
        if silence_s < CHECK_INTERVAL_S or not endpoint.slots:
            outlier.probed_at = None
            return
        waited = max(
            min(now - slot.started, silence_s) / (slot.expires_at - slot.started) for slot in endpoint.slots
        )
        if waited < PROBE_AT:
            outlier.probed_at = None
        elif outlier.probed_at is None:
            outlier.probed_at = now
            endpoint.probe()
        elif waited >= STALLED_AT and now - outlier.probed_at >= PROBE_TIMEOUT_S and self._can_spare_one():
            outlier.stalled_at = now
            endpoint.judge()
            oldest_s = now - next(iter(endpoint.slots)).started
            silent_s = min(silence_s, oldest_s)
            log.warning("worker %s has stopped: no sign of life for %.1f s", endpoint.address, silent_s)
            for slot in tuple(endpoint.slots):
                self._metrics.retries += slot.observer.hedge(slot)

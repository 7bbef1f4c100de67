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
from typing import TYPE_CHECKING, Final

from gateway.dispatch.standing import EJECT_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.dispatch.endpoint import Endpoint
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.1
PROBE_AT: Final = 0.25
"""Of the time that a call has."""
STALLED_AT: Final = 0.5
PONG_WITHIN_S: Final = 0.4
"""At the least. A machine that has too much to do is slow to answer too, and is not to be given more."""
PROBE_EVERY_S: Final = 1.0
"""One that has stopped."""
MAX_OUT: Final = 0.5
"""Of the endpoints of a pool: where most fail, the fault is likely elsewhere, and the rest could not cope."""


class Rotation:
    """Looks at the endpoints of one pool for as long as there is anything to see."""

    def __init__(self, now: Callable[[], float], metrics: PoolMetrics) -> None:
        self._now = now
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._endpoints: Sequence[Endpoint] = ()
        self._timer: asyncio.TimerHandle | None = None

    def look_after(self, endpoints: Sequence[Endpoint]) -> None:
        """Look at *endpoints*, of which one was chosen for a call, from now on."""
        self._endpoints = endpoints
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

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

    def _look_for_failures(self, endpoint: Endpoint, now: float) -> None:
        standing = endpoint.standing
        if standing.ejected_until is not None:
            if now >= standing.ejected_until:
                standing.readmit(now)
                endpoint.judge()
                log.info("worker %s is asked again", endpoint.address)
        elif standing.failed_in_a_row >= EJECT_AFTER and endpoint.state == "ready" and self._can_spare_one():
            failed, for_s = standing.failed_in_a_row, standing.eject(now)
            endpoint.judge()
            log.warning(
                "worker %s failed %d calls in a row: left out for %g s", endpoint.address, failed, for_s
            )

    def _can_spare_one(self) -> bool:
        out = sum(endpoint.state in ("ejected", "stalled") for endpoint in self._endpoints)
        return out + 1 <= len(self._endpoints) * MAX_OUT

    def _look_for_life(self, endpoint: Endpoint, now: float) -> None:
        standing, heard_at = endpoint.standing, endpoint.heard_at
        if standing.stalled_at is not None:
            if heard_at > standing.stalled_at:
                standing.stalled_at = standing.probed_at = None
                endpoint.judge()
                log.info("worker %s shows signs of life again", endpoint.address)
            elif standing.probed_at is None or now - standing.probed_at >= PROBE_EVERY_S:
                standing.probed_at = now
                endpoint.probe()
            return
        silence_s = now - heard_at
        if silence_s < LOOK_EVERY_S or not endpoint.slots:
            standing.probed_at = None
            return
        waited = max(
            min(now - slot.started, silence_s) / (slot.deadline - slot.started) for slot in endpoint.slots
        )
        if waited < PROBE_AT:
            standing.probed_at = None
        elif standing.probed_at is None:
            standing.probed_at = now
            endpoint.probe()
        elif waited >= STALLED_AT and now - standing.probed_at >= PONG_WITHIN_S and self._can_spare_one():
            standing.stalled_at = now
            endpoint.judge()
            oldest_s = now - next(iter(endpoint.slots)).started
            silent_s = min(silence_s, oldest_s)
            log.warning("worker %s has stopped: no sign of life for %.1f s", endpoint.address, silent_s)
            for slot in tuple(endpoint.slots):
                self._metrics.moved += slot.asker.ask_twice(slot)

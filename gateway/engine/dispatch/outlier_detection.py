"""Outlier detection: the endpoints of a pool that fail repeatedly or stop responding get no calls for a
while.

A stopped worker (SIGSTOP, a lost host, a paused container) breaks no connection. An endpoint is probed when a
call has waited without any received byte for a quarter of its time. If half of the time has passed and
nothing was received, the endpoint is stalled: calls that may be repeated are sent to another endpoint too,
and the first answer counts.

Source: gRFC A50 and Envoy's outlier detection, for ejection and its ceiling.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.engine.dispatch.calls import EndpointState, InFlightCalls
    from gateway.observe.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

EJECT_AFTER: Final = 5
"""Consecutive failures."""
FIRST_EJECTION_S: Final = 2.0
LONGEST_EJECTION_S: Final = 60.0
MAX_EJECTED: Final = 0.5
"""Share of a pool's endpoints. If most of them fail, the cause is likely elsewhere, and the rest would be
overloaded."""

FIRST_BAN_S: Final = 1.0
LONGEST_BAN_S: Final = 60.0
FREE_BREAKS: Final = 5
"""Streams that answers may break before the next stream is delayed."""
BAN_RESET_AFTER_S: Final = 60.0
"""After the end of a ban, answers must come for so long before the next ban is as short as the first."""

CHECK_INTERVAL_S: Final = 0.1
PROBE_AT: Final = 0.25
"""Share of a call's time after which a silent endpoint is probed."""
STALLED_AT: Final = 0.5
"""Share of a call's time after which a silent endpoint is stalled."""
PROBE_TIMEOUT_S: Final = 0.4
"""At the least. An overloaded machine answers late too, and should not get more calls."""
PROBE_EVERY_S: Final = 1.0
"""Interval of probes to a stalled endpoint."""

_NOT_AN_OUTLIER: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})
"""Statuses that are no reason to use another endpoint: an overloaded worker's calls would overload the others
next, and a policy that never ends exceeds its deadline on every endpoint."""


class OutlierState:
    """The failures of one endpoint since it was last connected, and what follows from them.

    All times are in seconds on the monotonic clock.
    """

    __slots__ = (
        "_ban_s",
        "_breaks",
        "_ejection_s",
        "_last_break_at",
        "_last_success_at",
        "_served_at",
        "_unejected_at",
        "banned_until",
        "consecutive_failures",
        "ejected_until",
        "is_serving",
        "probed_at",
        "stalled_at",
        "stream_after",
    )

    def __init__(self) -> None:
        self.is_serving = True
        """As the worker reports, see ``gateway.engine.dispatch.health``."""
        self.banned_until = 0.0
        """End of the ban after a protocol violation; it holds for new connections too."""
        self.stream_after = 0.0
        """No new stream before this instant, because answers broke several streams."""
        self._ban_s = 0.0
        self._served_at = 0.0
        self._breaks = 0
        self._last_break_at = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget what may not be true of another worker at the same address."""
        self.consecutive_failures = 0
        self._last_success_at = 0.0
        self.ejected_until: float | None = None
        self.stalled_at: float | None = None
        self.probed_at: float | None = None
        """When the probe was sent that is not answered yet."""
        self._ejection_s = 0.0
        self._unejected_at = 0.0

    @property
    def state(self) -> EndpointState:
        """Why the connected endpoint gets no calls; ``ready`` if it does."""
        if self.ejected_until is not None:
            return "ejected"
        if not self.is_serving:
            return "unhealthy"
        return "ready" if self.stalled_at is None else "stalled"

    def succeeded(self, now: float) -> None:
        """Record an answer."""
        self.consecutive_failures = 0
        self._last_success_at = self._served_at = now

    def failed(self, code: str, number: int) -> None:
        """Record *number* calls that ended with gRPC status *code*, which is not OK."""
        if code not in _NOT_AN_OUTLIER:
            self.consecutive_failures += number

    def timed_out(self, started_at: float) -> None:
        """Record a call that started at *started_at* and was not answered in time."""
        if self._last_success_at < started_at:
            self.consecutive_failures += 1

    def eject(self, now: float) -> float:
        """Eject the endpoint; return for how many seconds. Repeated ejections are longer."""
        if now - self._unejected_at > 2 * self._ejection_s:
            self._ejection_s = 0.0
        self._ejection_s = min(LONGEST_EJECTION_S, max(FIRST_EJECTION_S, 2 * self._ejection_s))
        self.ejected_until = now + self._ejection_s
        return self._ejection_s

    def uneject(self, now: float) -> None:
        """End the ejection; one more failure ejects the endpoint again."""
        self.ejected_until = None
        self._unejected_at = now
        self.consecutive_failures = EJECT_AFTER - 1

    def ban(self, now: float) -> float:
        """Ban the endpoint for a protocol violation, for longer each time; return for how many seconds."""
        is_first = self._served_at - self.banned_until >= BAN_RESET_AFTER_S
        self._ban_s = FIRST_BAN_S if is_first else min(LONGEST_BAN_S, max(FIRST_BAN_S, 2 * self._ban_s))
        self.banned_until = now + self._ban_s
        return self._ban_s

    def stream_broke(self, now: float) -> None:
        """Record a stream that an answer broke. Repeated breaks delay the next stream for longer."""
        if now - self._last_break_at > 2 * LONGEST_BAN_S:
            self._breaks = 0
        self._breaks = min(self._breaks + 1, 2 * FREE_BREAKS + 1)
        self._last_break_at = now
        if self._breaks > FREE_BREAKS:
            self.stream_after = now + min(LONGEST_BAN_S, FIRST_BAN_S * 2 ** (self._breaks - FREE_BREAKS))


class MonitoredEndpoint(Protocol):
    """An endpoint as the detector sees it."""

    address: str
    calls: InFlightCalls
    outlier: OutlierState
    state: EndpointState

    @property
    def last_received_at(self) -> float:
        """When anything was last received from the worker."""

    def probe(self) -> None:
        """Make the worker send something, which updates ``last_received_at``."""

    def update_state(self) -> None:
        """Derive the state again from ``outlier``."""


class OutlierDetector:
    """Checks the endpoints of one pool periodically, while calls are in flight or an endpoint is out."""

    def __init__(self, now: Callable[[], float], metrics: PoolMetrics) -> None:
        self._now = now
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._endpoints: Sequence[MonitoredEndpoint] = ()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, endpoints: Sequence[MonitoredEndpoint]) -> None:
        """Start the checks, unless they are under way; called for each choice of an endpoint."""
        self._endpoints = endpoints
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._check)

    def close(self) -> None:
        """Stop the checks."""
        self._endpoints = ()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        now, endpoints = self._now(), self._endpoints
        for endpoint in endpoints:
            self._check_failures(endpoint, now)
            self._check_responsiveness(endpoint, now)
        if any(endpoint.calls.groups or endpoint.state in ("ejected", "stalled") for endpoint in endpoints):
            self.watch(endpoints)

    def _check_failures(self, endpoint: MonitoredEndpoint, now: float) -> None:
        outlier = endpoint.outlier
        if outlier.ejected_until is not None:
            if now >= outlier.ejected_until:
                outlier.uneject(now)
                endpoint.update_state()
                log.info("ejection of worker %s is over; it gets calls again", endpoint.address)
        elif (
            outlier.consecutive_failures >= EJECT_AFTER
            and endpoint.state == "ready"
            and self._may_remove_another()
        ):
            failures, ejection_s = outlier.consecutive_failures, outlier.eject(now)
            endpoint.update_state()
            log.warning(
                "worker %s ejected after %d consecutive failures; no calls for %g s",
                endpoint.address,
                failures,
                ejection_s,
            )

    def _may_remove_another(self) -> bool:
        removed = sum(endpoint.state in ("ejected", "stalled") for endpoint in self._endpoints)
        return removed + 1 <= len(self._endpoints) * MAX_EJECTED

    def _check_responsiveness(self, endpoint: MonitoredEndpoint, now: float) -> None:
        outlier, last_received_at = endpoint.outlier, endpoint.last_received_at
        if outlier.stalled_at is not None:
            if last_received_at > outlier.stalled_at:
                outlier.stalled_at = outlier.probed_at = None
                endpoint.update_state()
                log.info("worker %s responds again; it gets calls again", endpoint.address)
            elif outlier.probed_at is None or now - outlier.probed_at >= PROBE_EVERY_S:
                outlier.probed_at = now
                endpoint.probe()
            return
        silence_s, groups = now - last_received_at, endpoint.calls.groups
        if silence_s < CHECK_INTERVAL_S or not groups:
            outlier.probed_at = None
            return
        waited = max(
            min(now - group.started_at, silence_s) / (group.expires_at - group.started_at) for group in groups
        )
        if waited < PROBE_AT:
            outlier.probed_at = None
        elif outlier.probed_at is None:
            outlier.probed_at = now
            endpoint.probe()
        elif (
            waited >= STALLED_AT and now - outlier.probed_at >= PROBE_TIMEOUT_S and self._may_remove_another()
        ):
            outlier.stalled_at = now
            endpoint.update_state()
            log.warning(
                "worker %s stalled: nothing received for %.1f s; its calls are retried elsewhere",
                endpoint.address,
                min(silence_s, now - next(iter(groups)).started_at),
            )
            for group in tuple(groups):
                self._metrics.retries += group.observer.hedge(group)

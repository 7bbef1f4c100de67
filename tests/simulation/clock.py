"""A virtual-time driver of Evaluation: workers with latencies, timeouts and crashes, all from one seed.

Time is a number that jumps to the next thing that happens; nothing here waits.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gateway.core.verdict import Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.core.call import Call
    from gateway.core.evaluation import Evaluation
    from gateway.core.verdict import Verdict

LATE = Failed(FailureReason.DEADLINE, "DEADLINE_EXCEEDED: no answer in time", 504)
GONE = Failed(FailureReason.STATUS, "UNAVAILABLE: the worker went away", 503)


@dataclass(frozen=True)
class Ending:
    """How a worker would end a call if it had all the time: after so many seconds, so."""

    latency_s: float
    verdict: Verdict


@dataclass
class Simulation:
    """One evaluation on virtual time."""

    evaluation: Evaluation
    worker: Callable[[Call], Ending]
    budget_s: float
    crashes: Sequence[tuple[float, int]] = ()
    """When an endpoint goes away, and which: calls to it that are out fail, later ones find its successor."""
    endpoints: int = 1
    now: float = 0.0
    made: list[Call] = field(default_factory=list)
    out: dict[Call, int] = field(default_factory=dict)
    """Calls under way, and the endpoint that has each."""

    def run(self) -> None:
        """Run to the end; raises AssertionError where the evaluation breaks its word."""
        self._serial = itertools.count()
        # Of things at the same time, the one that was planned first comes first.
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        for at, endpoint in self.crashes:
            self._plan(at, partial(self._crash, endpoint))
        self._make(self.evaluation.start())
        while not self.evaluation.done:
            assert self.out, "nothing is under way, and the review is not over"
            at, _, happen = heapq.heappop(self._agenda)
            assert at >= self.now
            self.now = at
            happen()
        assert not self.out, "calls outlive the review"

    def _plan(self, at: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at, next(self._serial), action))

    def _make(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.made.append(call)
            self.out[call] = len(self.made) % self.endpoints
            deadline = min(self.now + call.invocation.webhook.timeout_s, self.budget_s)
            ending = self.worker(call)
            if self.now + ending.latency_s <= deadline:
                self._plan(self.now + ending.latency_s, partial(self._end, call, ending.verdict))
            else:
                self._plan(max(deadline, self.now), partial(self._end, call, LATE))
        for call in self.evaluation.take_withdrawn():
            del self.out[call]

    def _end(self, call: Call, verdict: Verdict) -> None:
        # What was withdrawn or has failed meanwhile ends unheard.
        if self.out.pop(call, None) is not None:
            self._make(self.evaluation.receive(call, verdict))

    def _crash(self, endpoint: int) -> None:
        for call in [call for call, at in self.out.items() if at == endpoint]:
            self._end(call, GONE)

"""Decides whether a policy has to run in threads because it blocks the event loop.

One long run proves nothing: on a busy machine the kernel preempts a thread for milliseconds, and code seems
to compute longer when a hypervisor steals time. Such a pause occurs in one of thousands of runs of a short
policy, and hardly ever again soon after. Therefore a policy moves to threads after three long runs with few
short ones between them. It moves back after a pause, which is longer each time.
"""

from __future__ import annotations

import resource
import time
from typing import Final, Literal

Cause = Literal["blocked", "computed"]

INLINE_LIMIT_S: Final = 0.005
"""The longest time for which a policy may block the event loop; 200 such runs a second would fill it."""

LONG_RUNS: Final = 3
"""Long runs after which a policy moves to threads, less those that the short runs meanwhile outweigh."""

SHORT_RUNS: Final[dict[Cause, int]] = {"blocked": 50, "computed": 4}
"""Short runs that outweigh a long one. Stolen time looks like computing, never like waiting for a disk or
a network, which only some runs of a policy may do."""

FIRST_PAUSE_S: Final = 10.0
MAX_PAUSE_S: Final = 3600.0
"""Pause of a policy from the event loop: seconds for which it runs in threads, the first time and at most.
After a pause, one more long run begins another pause of twice the length."""


class LoopWatch:
    """Distinguishes runs that blocked or computed for long from runs that waited for a CPU.

    A blocking thread yields the CPU voluntarily, which the kernel counts separately from preemption.
    """

    _SCOPE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)

    def __init__(self) -> None:
        self.mark()

    def mark(self) -> None:
        """Record the counters; call before a sequence of runs."""
        usage = resource.getrusage(self._SCOPE)
        self._at = time.monotonic()
        self._cpu_s = usage.ru_utime + usage.ru_stime
        self._blocked = usage.ru_nvcsw

    def cause(self, started: float) -> Cause | None:
        """Return why the run from *started* until now took long; None if it waited for a CPU."""
        usage = resource.getrusage(self._SCOPE)
        # Earlier runs since the mark used at most their duration of CPU time.
        computed_s = usage.ru_utime + usage.ru_stime - self._cpu_s - (started - self._at)
        blocked = usage.ru_nvcsw > self._blocked
        self.mark()
        if computed_s > INLINE_LIMIT_S:
            return "computed"
        return "blocked" if blocked else None


class Slowness:
    """The long runs of one policy."""

    __slots__ = ("_long_runs", "_pause_s", "until")

    def __init__(self) -> None:
        self.until = 0.0
        """Monotonic time until which the policy has to run in threads."""
        self._long_runs: dict[Cause, float] = {}
        self._pause_s = FIRST_PAUSE_S

    def __bool__(self) -> bool:
        """Whether short runs are to be noted."""
        return bool(self._long_runs)

    def note_short(self) -> None:
        """Note a run that did not take long."""
        for cause, runs in tuple(self._long_runs.items()):
            self._long_runs[cause] = runs - 1 / SHORT_RUNS[cause]
            if self._long_runs[cause] <= 0:
                del self._long_runs[cause]
        if not self._long_runs:
            self._pause_s = FIRST_PAUSE_S

    def note_long(self, cause: Cause, now: float) -> bool:
        """Note a long run that ended at monotonic time *now*; return whether the policy has to move to
        threads.
        """
        runs = self._long_runs.get(cause, 0.0) + 1
        self._long_runs[cause] = min(runs, LONG_RUNS - 1)
        if runs < LONG_RUNS:
            return False
        self.until = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        return True

"""What runs for the soak with faults: a gateway, and two workers that can be made to fail and come back."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest.launch import BenchError, Child, launched
from loadtest.servers import children
from loadtest.soak_memory import Sample, peak_mib, resident_mib
from loadtest.soak_mix import documents
from loadtest.soak_sums import Series
from loadtest.soak_worker import make_counts, read_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WORKERS: Final = 2
FAULTS: Final = ("cut", "killed", "stopped")
"""What a worker can suffer: its connections end, or it does, and is started again."""
GRACE_S: Final = 3
"""What a worker that is told to stop has for its calls: more than any of them waits."""
QUIET_WITHIN_S: Final = 45.0
"""Longer than the gateway gives a connection to end."""
REST_S: Final = 1.0
_POLL_S: Final = 0.1
_SCRAPE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds of the system."""

    descriptors: int
    threads: int

    def is_within(self, other: Held) -> bool:
        """Return whether it is no more than *other*, of either."""
        return self.descriptors <= other.descriptors and self.threads <= other.threads


def held(pid: int) -> Held:
    """Return the open descriptors and the threads of process *pid*.

    Raises:
        OSError: there is no such process.

    Source: proc(5), /proc/PID/fd and /proc/PID/task.
    """
    return Held(*(len(os.listdir(f"/proc/{pid}/{name}")) for name in ("fd", "task")))  # noqa: PTH208


class Worker:
    """One of the workers: the same address and the same counts, whichever process is behind them."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"worker {number}"
        self.target = f"unix:{folder / f'worker-{number}.sock'}"
        self.pid = 0
        self.counts = folder / f"worker-{number}.counts"
        self._log = folder / f"worker-{number}.log"
        self._running = ExitStack()
        make_counts(self.counts)

    def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            BenchError: it does not.
        """
        command = [sys.executable, "-m", "loadtest.soak_worker", str(self.counts)]
        command += ["--listen", self.target, "--grace", str(GRACE_S)]
        child = self._running.enter_context(launched(self.name, command, self._log))
        child.says(r"policies on (\S+)")
        self.pid = child.pid

    def stop(self) -> None:
        """Tell it to stop and wait until it has."""
        self._running.close()

    def suffer(self, fault: str) -> None:
        """Do to it what *fault* says; afterwards it serves."""
        if fault == "cut":
            os.kill(self.pid, signal.SIGUSR1)
            return
        if fault == "killed":
            os.kill(self.pid, signal.SIGKILL)
        self.stop()
        self.start()


@dataclass(frozen=True, slots=True)
class Running:
    """All processes of a run."""

    gateway: Child
    log: Path
    """Of the gateway."""
    url: str
    admin: str
    workers: Sequence[Worker]
    processes: int

    @property
    def gateways(self) -> dict[str, int]:
        """Process ids of what reviews pass through, by name."""
        if self.processes == 1:
            return {"the gateway": self.gateway.pid}
        return {f"gateway {number}": pid for number, pid in enumerate(children(self.gateway.pid))}

    def scrape(self) -> Series:
        """Return all series as they are now."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=_SCRAPE_S) as answer:
            return Series(answer.read().decode())

    def held(self) -> dict[str, Held]:
        """Return what each process holds, by its name."""
        pids = self.gateways | {worker.name: worker.pid for worker in self.workers}
        return {name: held(pid) for name, pid in pids.items()}

    def sample(self, reviews: int) -> Sample:
        """Return the most memory that a gateway had so far, and what the largest worker has."""
        gateway_mib = max(map(peak_mib, self.gateways.values()))
        return Sample(reviews, gateway_mib, max(resident_mib(worker.pid) for worker in self.workers))

    def calls(self) -> tuple[int, int]:
        """Return how many calls the workers saw, and how many they answered."""
        counts = [read_counts(worker.counts) for worker in self.workers]
        return sum(seen for seen, _ in counts), sum(answered for _, answered in counts)

    def await_workers(self) -> None:
        """Wait until the gateway has reached all of its workers.

        Raises:
            BenchError: it does not.
        """
        give_up = time.monotonic() + QUIET_WITHIN_S
        while self.scrape()("worker_endpoints", state="ready") < WORKERS * self.processes:
            if time.monotonic() > give_up:
                raise BenchError(f"the gateway does not reach its workers in {QUIET_WITHIN_S:g} s")
            time.sleep(_POLL_S)

    def await_rest(self) -> dict[str, Held]:
        """Return what each process holds when that has been the same for ``REST_S``, or when time is up.

        At first connections for health are still to come, and one for a scrape still to go.
        """
        now, since = self.held(), time.monotonic()
        give_up = since + QUIET_WITHIN_S
        while time.monotonic() < min(since + REST_S, give_up):
            time.sleep(_POLL_S)
            if now != (now := self.held()):
                since = time.monotonic()
        return now

    def await_quiet(self, began: Mapping[str, Held]) -> dict[str, Held]:
        """Return what each process holds when that is no more than it *began* with, or when time is up."""
        give_up = time.monotonic() + QUIET_WITHIN_S
        while True:
            now = self.held()
            is_within = all(now[name].is_within(before) for name, before in began.items())
            is_quiet = is_within and not self.scrape()("reviews_in_flight")
            if is_quiet or time.monotonic() > give_up:
                return now
            time.sleep(_POLL_S)


@contextmanager
def running(processes: int = 1, hedge_after: str = "") -> Iterator[Running]:
    """Start the workers and a gateway of so many *processes*; stop them in the end.

    Args:
        processes: Of the gateway.
        hedge_after: When it asks twice, ``p95`` or a duration; empty: never.

    Raises:
        BenchError: one of them did not start.
    """
    with tempfile.TemporaryDirectory(prefix="loadtest-") as name, ExitStack() as stack:
        folder = Path(name)
        workers = [Worker(number, folder) for number in range(WORKERS)]
        for worker in workers:
            stack.callback(worker.stop)
            worker.start()
        config = folder / "soak.yaml"
        config.write_text(documents([worker.target for worker in workers], hedge_after))
        command = [sys.executable, "-m", "gateway", "serve", "--dev", "--config", str(config)]
        command += ["--state", str(folder / "state"), "--processes", str(processes)]
        command += ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        log = folder / "gateway.log"
        gateway = stack.enter_context(launched("gateway", command, log))
        url = gateway.says(r"serving on (https://\S+:\d+)")
        admin = gateway.says(r"admin on (http://\S+:\d+)")
        found = Running(gateway, log, url, admin, workers, processes)
        found.await_workers()
        yield found

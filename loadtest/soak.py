"""``python -m loadtest.soak``: a gateway under load for long; its memory stays bounded and its counts add up.

Without ``--faults``: four policies on one worker, and a million reviews. With ``--faults``: two workers, of
which one after the other has its connections cut, is killed, or is stopped and started again; and reviews of
which some time out, are denied, or are abandoned by their clients.

After each twentieth of the reviews the connections are replaced and memory is sampled. After the last review
all counts must add up (``soak_accounting``), and gateway and workers must not hold more descriptors and
threads than at the start. Exit status 0 if all checks pass, 1 otherwise. After ``--limit`` seconds no review
begins: the report says how many there were, and the run has failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from gateway.server.serving.devcert import make_development_certificate
from loadtest.report import machine, markdown_table, versions
from loadtest.result_files import todays
from loadtest.reviews import POD
from loadtest.servers import POLICIES, SERVING, BenchError, logged, start
from loadtest.soak_accounting import Check, Sample, Series, count_checks, memory_checks
from loadtest.soak_clients import FAULTLESS, FAULTY, Clients, documents
from loadtest.soak_worker import counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.soak_clients import Tally
    from tests.kit import Process

REVIEWS: Final = 1_000_000
FAULTY_REVIEWS: Final = 500_000
CLIENTS: Final = 64
FAULTY_CLIENTS: Final = 128
"""At 3,000 reviews a second three in four of them wait for a policy that never answers."""
MAX_IDLE_MIB: Final = 50.0
"""Before the first review."""
MAX_MIB: Final = 65.0
MAX_FAULTY_MIB: Final = 160.0
"""With faults: twice the connections, many of them new, and a call in flight on most."""
MAX_REFUSED_PERCENT: Final = 0.1
LIMIT_S: Final = 900.0
PARTS: Final = 20
FAULTS: Final = ("cut", "killed", "stopped")
SPACING_S: Final = 1.5
"""Between two faults: longer than any call waits, because a lost call is retried once."""
GRACE_S: Final = 3
"""Time that a stopping worker has for its calls: longer than any call waits."""
SETTLE_TIMEOUT_S: Final = 45.0
"""Longer than the gateway gives a connection to end."""
SETTLED_S: Final = 1.0
_POLL_S: Final = 0.1
_SCRAPE_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Resources:
    """Descriptors and threads of a process."""

    descriptors: int
    threads: int

    def is_within(self, other: Resources) -> bool:
        """Return whether neither is more than in *other*."""
        return self.descriptors <= other.descriptors and self.threads <= other.threads


def resources(pid: int) -> Resources:
    """Return the open descriptors and the threads of process *pid*. Source: proc(5), fd and task."""
    return Resources(*(len(os.listdir(f"/proc/{pid}/{name}")) for name in ("fd", "task")))  # noqa: PTH208


def memory_mib(pid: int, *, is_peak: bool = False) -> float:
    """Return the resident memory of process *pid*, or its peak; 0 if it ended. Source: proc(5), status."""
    name, text = "VmHWM" if is_peak else "VmRSS", ""
    # A process that a fault ends may be gone between the opening of its file and the reading.
    with suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s*(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


class Worker:
    """A worker whose address and counts stay the same when its process is replaced."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"worker {number}"
        self.target = f"unix:{folder / f'worker-{number}.sock'}"
        self.counts = folder / f"worker-{number}"
        self._stack = ExitStack()
        self._process: Process

    @property
    def pid(self) -> int:
        """The process that serves now."""
        return self._process.child.pid

    def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            BenchError: it does not.
        """
        command = (sys.executable, "-m", "loadtest.soak_worker", str(self.counts))
        self._process = start(self._stack, *command, "--listen", self.target, "--grace", str(GRACE_S))
        logged(self.name, self._process, POLICIES)

    def stop(self) -> None:
        """Stop it and wait until it has ended."""
        self._stack.close()

    def inject(self, fault: str) -> None:
        """Inject one of ``FAULTS``; afterwards it serves again."""
        if fault == "cut":
            os.kill(self.pid, signal.SIGUSR1)
            return
        if fault == "killed":
            os.kill(self.pid, signal.SIGKILL)
        self.stop()
        self.start()


class Setup:
    """The gateway and the workers of a run."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace) -> None:
        """Start all processes; they end with *stack*.

        Raises:
            BenchError: one of them did not start.
        """
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loadtest-")))
        self.is_faulty: bool = options.faults
        self.kinds = FAULTY if options.faults else FAULTLESS
        self.workers = [Worker(number, folder) for number in range(2 if options.faults else 1)]
        for worker in self.workers:
            stack.callback(worker.stop)
            worker.start()
        config = folder / "soak.yaml"
        targets = [worker.target for worker in self.workers]
        config.write_text(documents(self.kinds, targets, options.hedge))
        # As in a cluster: a gateway that makes its certificate loads a library for that.
        make_development_certificate(folder / "state")
        self.gateway = start(
            stack,
            *(sys.executable, "-m", "gateway", "serve", "--dev", "--config", str(config)),
            *("--state", str(folder / "state"), "--processes", str(options.processes)),
            *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
        )
        self.port = int(logged("the gateway", self.gateway, SERVING).rpartition(":")[2])
        self._admin = logged("the gateway", self.gateway, r"admin on (http://\S+:\d+)")
        self._processes: int = options.processes
        self.wait_for_workers()

    @property
    def gateways(self) -> dict[str, int]:
        """The ids of the processes that answer reviews, by name."""
        if self._processes == 1:
            return {"the gateway": self.gateway.child.pid}
        return {f"gateway {number}": pid for number, pid in enumerate(self.gateway.children())}

    def scrape(self) -> Series:
        """Return the current metrics."""
        with urllib.request.urlopen(f"{self._admin}/metrics", timeout=_SCRAPE_TIMEOUT_S) as answer:
            return Series(answer.read().decode())

    def resources(self) -> dict[str, Resources]:
        """Return the resources of each process by name."""
        pids = self.gateways | {worker.name: worker.pid for worker in self.workers}
        return {name: resources(pid) for name, pid in pids.items()}

    def calls(self) -> tuple[int, int]:
        """Return the calls that the workers received and answered."""
        received, answered = zip(*(counts(worker.counts) for worker in self.workers), strict=True)
        return sum(received), sum(answered)

    def sample(self, reviews: int) -> Sample:
        """Return the memory of the largest gateway process and of the largest worker.

        With faults it is the gateway's peak: many connections end, the allocator returns memory and takes it
        again, and that hides a small rise, or looks like one.
        """
        gateway_mib = max(memory_mib(pid, is_peak=self.is_faulty) for pid in self.gateways.values())
        return Sample(reviews, gateway_mib, max(memory_mib(worker.pid) for worker in self.workers))

    def wait_for_workers(self) -> None:
        """Wait until the gateway is connected to all workers.

        Raises:
            BenchError: it does not connect in ``SETTLE_TIMEOUT_S``.
        """
        expected = len(self.workers) * self._processes
        if not _wait(lambda: self.scrape()("worker_endpoints", state="ready") >= expected):
            raise BenchError(f"the gateway is not connected to its workers after {SETTLE_TIMEOUT_S:g} s")

    def settle(self) -> dict[str, Resources]:
        """Return the resources at the start, as soon as they have been the same for ``SETTLED_S``."""
        now, since = self.resources(), time.monotonic()

        def is_settled() -> bool:
            nonlocal now, since
            if now != (now := self.resources()):
                since = time.monotonic()
            return time.monotonic() - since >= SETTLED_S

        _wait(is_settled)
        return now

    def wait_until_quiet(self, began: Mapping[str, Resources]) -> dict[str, Resources]:
        """Return the resources at the end, as soon as they are within *began* or the time is over."""
        now = self.resources()

        def is_quiet() -> bool:
            nonlocal now
            now = self.resources()
            is_within = all(now[name].is_within(before) for name, before in began.items())
            return is_within and not self.scrape()("reviews_in_flight")

        _wait(is_quiet)
        return now


def _wait(condition: Callable[[], bool]) -> bool:
    """Wait until *condition* holds; return whether it does within ``SETTLE_TIMEOUT_S``."""
    give_up = time.monotonic() + SETTLE_TIMEOUT_S
    while not (holds := condition()) and time.monotonic() < give_up:
        time.sleep(_POLL_S)
    return holds


@dataclass(frozen=True, slots=True)
class Ran:
    """The results of a run."""

    tally: Tally
    samples: Sequence[Sample]
    checks: Sequence[Check]
    faults: Mapping[str, int]
    log: str
    """Of the gateway."""


async def run(options: argparse.Namespace) -> Ran:
    """Run the soak.

    Raises:
        BenchError: a process did not start, or the gateway lost its workers for good.
    """
    with ExitStack() as stack:
        setup = Setup(stack, options)
        began = setup.settle()
        clients = Clients(setup.port, setup.kinds, options.seed, options.count)
        faults: Counter[str] = Counter()
        samples = [setup.sample(0)]
        give_up = time.monotonic() + options.limit
        part = -(-options.count // PARTS)
        is_over = asyncio.Event()
        injecting = asyncio.create_task(_inject_faults(setup, faults, is_over))
        while clients.tally.ended < options.count and not injecting.done() and time.monotonic() < give_up:
            await clients.run(options.clients, part, give_up - time.monotonic())
            if clients.tally.ended == samples[-1].reviews:
                break
            samples.append(setup.sample(clients.tally.ended))
            print(_progress(samples[-1]), file=sys.stderr, flush=True)
        is_over.set()
        await injecting
        await asyncio.to_thread(setup.wait_for_workers)
        # In a thread, because the event loop still closes connections of the clients.
        ended = await asyncio.to_thread(setup.wait_until_quiet, began)
        tally = clients.tally
        checks = [
            Check("reviews that ended; planned", tally.ended, options.count),
            Check("answers that are not as planned", tally.wrong.total(), 0),
            Check(
                "reviews refused with 503, percent",
                *(tally.refused.total() * 100 / options.count, MAX_REFUSED_PERCENT),
                is_bound=True,
            ),
            *(
                memory_checks(samples, MAX_FAULTY_MIB)
                if options.faults
                else memory_checks(samples, MAX_MIB, MAX_IDLE_MIB)
            ),
            *count_checks(setup.scrape(), tally, setup.kinds, setup.calls()),
            *(
                Check(
                    f"{name} of {process}; at the start", getattr(ended[process], name), limit, is_bound=True
                )
                for process, before in began.items()
                for name, limit in (("descriptors", before.descriptors), ("threads", before.threads))
            ),
        ]
        return Ran(tally, samples, checks, faults, setup.gateway.log)


async def _inject_faults(setup: Setup, faults: Counter[str], is_over: asyncio.Event) -> None:
    """Inject faults into one worker after the other until *is_over*, and count them in *faults*."""
    for fault, worker in zip(cycle(FAULTS), cycle(setup.workers), strict=False):
        with suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), SPACING_S)
        if is_over.is_set():
            return
        if setup.is_faulty:
            await asyncio.to_thread(worker.inject, fault)
            faults[fault] += 1
            await asyncio.to_thread(setup.wait_for_workers)


def _progress(sample: Sample) -> str:
    memory = f"gateway {sample.gateway_mib:.1f} MiB, worker {sample.worker_mib:.1f} MiB"
    return f"{sample.reviews:9,} reviews: {memory}"


def report(ran: Ran, options: argparse.Namespace, took_s: float) -> str:
    """Return the report as Markdown."""
    tally = ran.tally
    closes, faults = (
        ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items())) or "none"
        for counts in (tally.close_modes, ran.faults)
    )
    notes = [
        f"{tally.ended:,} reviews of {POD.stat().st_size:,} bytes in {took_s:.0f} s, in a closed loop",
        f"{options.clients} clients, {tally.connections:,} connections, seed {options.seed}",
        f"gateway processes: {options.processes}; hedging: {options.hedge or 'never'}",
        f"clients that left: {closes}; faults of workers: {faults}",
        f"memory: {'peak of the' if options.faults else 'current'} resident memory, shared pages included",
        *(f"{number} times wrong: {text}" for text, number in tally.wrong.most_common(3)),
        *(machine(), versions(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
    ]
    columns = (tally.sent, tally.answered, tally.abandoned, tally.incomplete)
    kinds = [
        (kind.name, ", ".join(kind.policies), *(f"{column[kind.name]:,}" for column in columns))
        for kind in (FAULTY if options.faults else FAULTLESS)
    ]
    samples = [
        (f"{sample.reviews:,}", f"{sample.gateway_mib:.1f}", f"{sample.worker_mib:.1f}")
        for sample in ran.samples
    ]
    parts = [
        "# Soak",
        "\n".join(f"- {note}" for note in notes),
        "## Checks",
        checks_table(ran.checks),
        "## Reviews",
        markdown_table(
            ("kind", "policies", "sent completely", "answered as planned", "abandoned", "incomplete"),
            *(kinds, (0, 1)),
        ),
        "## Memory",
        markdown_table(("reviews", "gateway MiB", "worker MiB"), samples, left=()),
    ]
    return "\n\n".join(parts) + "\n"


def checks_table(checks: Sequence[Check]) -> str:
    """Return the table of *checks*."""
    return markdown_table(
        ("check", "found", "wanted", "verdict"), [check.row for check in checks], left=(0, 3)
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line, with their defaults."""
    parser = argparse.ArgumentParser("loadtest.soak", description="Watches a gateway over many reviews.")
    add = parser.add_argument
    add("--faults", action="store_true", help="with failing workers, clients and reviews")
    text = f"reviews, default {REVIEWS:,}, with faults {FAULTY_REVIEWS:,}"
    add("--count", type=int, metavar="N", help=text)
    add("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help=f"default {LIMIT_S:g}")
    add("--seed", type=int, default=0, metavar="N", help="with faults: decides which reviews fail; default 0")
    text = f"default {CLIENTS}, with faults {FAULTY_CLIENTS}"
    add("--clients", type=int, metavar="N", help=text)
    add("--processes", type=int, default=1, metavar="N", help="of the gateway, default 1")
    add("--hedge", default="", metavar="AFTER", help="hedge calls after 20ms or p95; default never")
    add("--output", type=Path, metavar="FILE", help="default: loadtest/results/DATE-soak[-faults][-quick].md")
    options = parser.parse_args(argv)
    usual = FAULTY_REVIEWS if options.faults else REVIEWS
    options.count = options.count or usual
    options.clients = options.clients or (FAULTY_CLIENTS if options.faults else CLIENTS)
    if options.output is None:
        kind = "soak-faults" if options.faults else "soak"
        options.output = todays(kind, *(["quick"] if options.count < usual else []))
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = parse(argv)
    began = time.monotonic()
    try:
        ran = uvloop.run(run(options))
    except (BenchError, OSError) as error:
        print(f"loadtest.soak: {error}", file=sys.stderr)
        return 1
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(report(ran, options, time.monotonic() - began))
    print(checks_table(ran.checks), f"written to {options.output}", sep="\n\n")
    if all(check.is_met for check in ran.checks):
        return 0
    log = options.output.with_suffix(".log")
    log.write_text(ran.log)
    print(f"the gateway's log is in {log}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

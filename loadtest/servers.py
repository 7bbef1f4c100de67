"""The processes that the benchmark starts, each on a free port, and stops again by their ids.

They hang on the leash of ``gateway.process.leash``: if the benchmark is killed, the kernel ends them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.serving.devcert import make_development_certificate
from loadtest import agnhost
from loadtest.configuration import GATEWAYS, WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
START_WITHIN_S: Final = 30.0
STOP_WITHIN_S: Final = 15.0
_POLL_S: Final = 0.02
_SERVING: Final = r"serving on (https://\S+:\d+)"
_WORKERS_OF: Final = {"baseline": WORKERS} | {name: gateway.workers for name, gateway in GATEWAYS.items()}
"""How many workers a front end needs; the others none."""


class BenchError(Exception):
    """The benchmark cannot go on; the text is for a person."""


@dataclass(frozen=True, slots=True)
class Started:
    """Something that serves."""

    pid: int
    address: str
    """``https://HOST:PORT`` of a front end, ``HOST:PORT`` of a worker."""
    pids: tuple[int, ...]
    """The processes that do the work: ``pid`` alone, or with several processes those that it supervises."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that runs while a group of cases is measured."""

    fronts: Mapping[str, Started]
    workers: Sequence[Started]
    missing: Mapping[str, str]
    """Front ends that this machine cannot start, and why."""


@contextmanager
def fleet(review: Path, fronts: Sequence[str], folder: Path) -> Iterator[Fleet]:
    """Start *fronts* and the workers that they need; stop them in the end.

    Args:
        review: The AdmissionReview that will be sent.
        fronts: ``floor``, ``floor-tickets``, ``baseline``, ``agnhost`` or names of ``GATEWAYS``.
        folder: An empty folder for certificates, configurations and logs.

    Raises:
        BenchError: one of them did not start.
    """
    program = agnhost.obtain() if "agnhost" in fronts else None
    missing = {} if program or "agnhost" not in fronts else {"agnhost": f"not built, see {agnhost.__name__}"}
    with ExitStack() as stack:
        count = max((_WORKERS_OF.get(front, 0) for front in fronts), default=0)
        joining = [_start_worker(stack, number, folder) for number in range(count)]
        workers = [worker.wait() for worker in joining]
        addresses = [worker.address for worker in workers]
        starting = {
            front: _start_front(stack, front, review, addresses, folder)
            for front in fronts
            if front != "agnhost"
        }
        started = {front: process.wait() for front, process in starting.items()}
        if program is not None:
            started["agnhost"] = _start_agnhost(stack, program, folder)
        yield Fleet(started, workers, missing)


@dataclass(frozen=True, slots=True)
class _Starting:
    name: str
    child: subprocess.Popen[bytes]
    log: Path
    ready: re.Pattern[str]
    """What it logs when it serves; the first group is the address."""
    processes: int = 1

    def wait(self) -> Started:
        give_up = time.monotonic() + START_WITHIN_S
        while time.monotonic() < give_up:
            text = self.log.read_text(errors="replace")
            found = self.ready.search(text)
            if found is not None:
                pid = self.child.pid
                return Started(pid, found[1], (pid,) if self.processes == 1 else children(pid))
            if self.child.poll() is not None:
                raise BenchError(f"{self.name} ended with status {self.child.returncode}:\n{text[-2000:]}")
            time.sleep(_POLL_S)
        raise BenchError(f"{self.name} does not serve after {START_WITHIN_S:g} s:\n{text[-2000:]}")


def children(pid: int) -> tuple[int, ...]:
    """Return the ids of the processes that the main thread of *pid* started and has not waited for.

    Source: proc(5), /proc/PID/task/TID/children.
    """
    listing = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return tuple(int(child) for child in listing.split())


def _start_worker(stack: ExitStack, number: int, folder: Path) -> _Starting:
    return _start(
        stack,
        f"worker-{number}",
        ["-m", "loadtest.worker", "--listen", "127.0.0.1:0", "--grace", "0"],
        r"policies on (\S+:\d+)",
        folder,
    )


def _start_front(
    stack: ExitStack, front: str, review: Path, workers: Sequence[str], folder: Path
) -> _Starting:
    state = ["--state", str(folder / "state")]
    if front in ("floor", "floor-tickets"):
        tickets = ["--tickets"] if front == "floor-tickets" else []
        return _start(stack, front, ["-m", "loadtest.floor", str(review), *state, *tickets], _SERVING, folder)
    if front == "baseline":
        return _start(stack, front, ["-m", "loadtest.baseline", *workers, *state], _SERVING, folder)
    gateway = GATEWAYS[front]
    config = folder / f"{front}.yaml"
    config.write_text(gateway.text(workers[: gateway.workers]))
    listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    arguments = ["-m", "gateway", "serve", "--dev", "--config", str(config), *state, *listen]
    if gateway.processes > 1:
        arguments += ["--processes", str(gateway.processes)]
    return _start(stack, f"gateway-{front}", arguments, _SERVING, folder, gateway.processes)


def _start_agnhost(stack: ExitStack, program: Path, folder: Path) -> Started:
    certificate = make_development_certificate(folder / "state")
    try:
        serving = stack.enter_context(agnhost.serving(program, *certificate, folder / "agnhost.log"))
    except agnhost.DoesNotServe as error:
        raise BenchError(str(error)) from None
    return Started(serving.pid, serving.address, (serving.pid,))


def _start(
    stack: ExitStack, name: str, arguments: list[str], ready: str, folder: Path, processes: int = 1
) -> _Starting:
    log = folder / f"{name}.log"
    leash = [sys.executable, "-m", "gateway.process.leash", str(os.getpid())]
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*leash, sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
        )
    stack.callback(_stop, child)
    return _Starting(name, child, log, re.compile(ready), processes)


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()

"""What the benchmark runs while it measures: front ends and workers, each on a free port."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.serving.devcert import make_development_certificate
from loadtest import agnhost
from loadtest.configuration import GATEWAYS, WORKERS
from loadtest.launch import Child, launched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SERVING: Final = r"serving on (https://\S+:\d+)"
_WORKERS_OF: Final = {"baseline": WORKERS} | {name: gateway.workers for name, gateway in GATEWAYS.items()}
"""How many workers a front end needs; the others none."""


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
        server = _start_server(stack, folder).wait().address if _need_server(fronts) else ""
        starting = {
            front: _start_front(stack, front, review, addresses, server, folder)
            for front in fronts
            if front != "agnhost"
        }
        started = {front: process.wait() for front, process in starting.items()}
        if program is not None:
            started["agnhost"] = _start_agnhost(stack, program, folder)
        yield Fleet(started, workers, missing)


@dataclass(frozen=True, slots=True)
class _Starting:
    child: Child
    ready: str
    """What it logs when it serves; the first group is the address."""
    processes: int = 1

    def wait(self) -> Started:
        address, pid = self.child.says(self.ready), self.child.pid
        return Started(pid, address, (pid,) if self.processes == 1 else children(pid))


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


def _need_server(fronts: Sequence[str]) -> bool:
    return any(GATEWAYS[front].asks_server for front in fronts if front in GATEWAYS)


def _start_server(stack: ExitStack, folder: Path) -> _Starting:
    state = ["--state", str(folder / "state")]
    return _start(stack, "webhook", ["-m", "loadtest.webhook", *state], _SERVING, folder)


def _start_front(
    stack: ExitStack, front: str, review: Path, workers: Sequence[str], server: str, folder: Path
) -> _Starting:
    state = ["--state", str(folder / "state")]
    if front in ("floor", "floor-tickets"):
        tickets = ["--tickets"] if front == "floor-tickets" else []
        return _start(stack, front, ["-m", "loadtest.floor", str(review), *state, *tickets], _SERVING, folder)
    if front == "baseline":
        return _start(stack, front, ["-m", "loadtest.baseline", *workers, *state], _SERVING, folder)
    gateway = GATEWAYS[front]
    config = folder / f"{front}.yaml"
    ca_file, _ = make_development_certificate(folder / "state")
    config.write_text(gateway.text(workers[: gateway.workers], server, ca_file))
    listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    arguments = ["-m", "gateway", "serve", "--dev", "--config", str(config), *state, *listen]
    if gateway.processes > 1:
        arguments += ["--processes", str(gateway.processes)]
    return _start(stack, f"gateway-{front}", arguments, _SERVING, folder, gateway.processes)


def _start_agnhost(stack: ExitStack, program: Path, folder: Path) -> Started:
    certificate = make_development_certificate(folder / "state")
    serving = stack.enter_context(agnhost.serving(program, *certificate, folder / "agnhost.log"))
    return Started(serving.pid, serving.address, (serving.pid,))


def _start(
    stack: ExitStack, name: str, arguments: list[str], ready: str, folder: Path, processes: int = 1
) -> _Starting:
    child = stack.enter_context(launched(name, [sys.executable, *arguments], folder / f"{name}.log"))
    return _Starting(child, ready, processes)

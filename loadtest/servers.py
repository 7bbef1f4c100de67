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
from typing import TYPE_CHECKING, Final, Literal

from loadtest.cases import WORKERS, Server, configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
START_WITHIN_S: Final = 30.0
STOP_WITHIN_S: Final = 15.0
_POLL_S: Final = 0.02
_TRANSPORTS: Final[dict[Server, Literal["Stream", "Unary"]]] = {"stream": "Stream", "unary": "Unary"}


class BenchError(Exception):
    """The benchmark cannot go on; the text is for a person."""


@dataclass(frozen=True, slots=True)
class Started:
    """A process that serves."""

    pid: int
    address: str
    """``https://HOST:PORT`` of a front end, ``HOST:PORT`` of a worker."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that runs during a benchmark."""

    fronts: Mapping[Server, Started]
    workers: Sequence[Started]


@contextmanager
def fleet(review: Path, servers: Sequence[Server], folder: Path) -> Iterator[Fleet]:
    """Start floor, gateways and workers, as far as *servers* need them; stop them in the end.

    Args:
        review: The AdmissionReview that will be sent.
        servers: The front ends to start.
        folder: An empty folder for certificates, configurations and logs.

    Raises:
        BenchError: one of them did not start.
    """
    transports = [server for server in servers if server in _TRANSPORTS]
    with ExitStack() as stack:
        count = WORKERS if transports else 0
        joining = [_start_worker(stack, number, folder) for number in range(count)]
        workers = [worker.wait() for worker in joining]
        starting = {server: _start_front(stack, server, review, workers, folder) for server in servers}
        yield Fleet({server: front.wait() for server, front in starting.items()}, workers)


@dataclass(frozen=True, slots=True)
class _Starting:
    name: str
    child: subprocess.Popen[bytes]
    log: Path
    ready: re.Pattern[str]
    """What it logs when it serves; the first group is the address."""

    def wait(self) -> Started:
        give_up = time.monotonic() + START_WITHIN_S
        while time.monotonic() < give_up:
            text = self.log.read_text(errors="replace")
            found = self.ready.search(text)
            if found is not None:
                return Started(self.child.pid, found[1])
            if self.child.poll() is not None:
                raise BenchError(f"{self.name} ended with status {self.child.returncode}:\n{text[-2000:]}")
            time.sleep(_POLL_S)
        raise BenchError(f"{self.name} does not serve after {START_WITHIN_S:g} s:\n{text[-2000:]}")


def _start_worker(stack: ExitStack, number: int, folder: Path) -> _Starting:
    return _start(
        stack,
        f"worker-{number}",
        ["-m", "loadtest.worker", "--listen", "127.0.0.1:0", "--grace", "0"],
        r"policies on (\S+:\d+)",
        folder,
    )


def _start_front(
    stack: ExitStack, server: Server, review: Path, workers: Sequence[Started], folder: Path
) -> _Starting:
    serving = r"serving on (https://\S+:\d+)"
    state = ["--state", str(folder / "state")]
    if server == "floor":
        return _start(stack, "floor", ["-m", "loadtest.floor", str(review), *state], serving, folder)
    config = folder / f"{server}.yaml"
    config.write_text(configuration(_TRANSPORTS[server], [worker.address for worker in workers]))
    listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    arguments = ["-m", "gateway", "serve", "--dev", "--config", str(config), *state, *listen]
    return _start(stack, f"gateway-{server}", arguments, serving, folder)


def _start(stack: ExitStack, name: str, arguments: list[str], ready: str, folder: Path) -> _Starting:
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
    return _Starting(name, child, log, re.compile(ready))


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()

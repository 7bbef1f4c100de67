"""Runs a command on a busy machine whose scheduler forgets processes: what makes a race of a test visible.

    python -m tests.disturbed make test

Beside the command run ``LOOPS`` loops that use all the CPU they get. Again and again one process of the
command, drawn at random, is stopped for ``STOPPED_S`` seconds. The exit status is that of the command.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPS: Final = 2
STOPPED_S: Final = 1.0
MOST_BETWEEN_S: Final = 2.0
"""The longest time from the end of one stop to the next."""


def descendants(pid: int) -> Iterator[int]:
    """Yield the ids of the processes that *pid* and its descendants started, of all their threads."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended
            for child in map(int, children.read_text().split()):
                yield child
                yield from descendants(child)


def stop_some(command: subprocess.Popen[bytes], draw: random.Random) -> int:
    """Stop processes of *command* in turn until it ends. Return how often."""
    times = 0
    while command.poll() is None:
        time.sleep(draw.uniform(0, MOST_BETWEEN_S))
        found = list(descendants(command.pid))
        if not found:
            continue
        one = draw.choice(found)
        with suppress(OSError):  # it has ended
            # What a test has stopped stays stopped until the test continues it.
            if _status(one)["State"].startswith("T"):
                continue
            os.kill(one, signal.SIGSTOP)
            times += 1
            time.sleep(STOPPED_S)
            if not int(_status(one)["ShdPnd"], 16) & _STOP:
                os.kill(one, signal.SIGCONT)
    return times


_STOP: Final = 1 << (signal.SIGSTOP - 1)
"""In the set of pending signals: it was stopped again, by a test."""


def _status(pid: int) -> dict[str, str]:
    """Return the fields of proc(5), ``status``."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser("tests.disturbed", description="Runs a command on a busy machine.")
    parser.add_argument("--seed", type=int, default=None, help="of the draws; by default another in each run")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args()
    if not options.command:
        parser.error("no COMMAND, such as: make test")
    began = time.monotonic()
    with ExitStack() as stack:
        for _ in range(LOOPS):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        command = subprocess.Popen(options.command)
        times = stop_some(command, random.Random(options.seed))
    print(
        f"exit status {command.returncode} after {time.monotonic() - began:.0f} s: a process was stopped"
        f" {times} times, beside {LOOPS} busy loops",
        flush=True,
    )
    return command.returncode


if __name__ == "__main__":
    sys.exit(main())

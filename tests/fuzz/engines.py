"""Engines that make inputs: atheris, guided by coverage, or random changes of seeds without atheris.

An engine runs a target on a given number of inputs. It ends at the first input that fails, and writes it to a
file. Both engines take an Order and return a Report.

Source: the options of libFuzzer (llvm.org/docs/LibFuzzer.html), which atheris passes on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from tests.fuzz.laws import Target

ROOT: Final = Path(__file__).parents[2]
TARGETS: Final = {
    "http": "http_protocol",
    "review": "review",
    "configuration": "configuration",
    "patch": "patches",
    "stream": "worker_stream",
    "server": "worker_server",
    "expression": "expressions",
    "policy": "policies",
    "other-engines": "other_engines",
    "budget": "budgets",
    "merge": "merges",
    "planted": "planted",
}
"""Modules of this folder by their names on the command line; the last one fails on purpose."""

MAX_SECONDS: Final = 30
"""Wall-clock time of one input, on a busy machine; a longer run is a hang."""
_MAX_MEMORY_MIB: Final = 2048
_ATHERIS: Final = "import sys; from tests.fuzz.engines import fuzz; fuzz(sys.argv[1], sys.argv[2:])"


class Hang(BaseException):
    """An input took too long. No Exception, which the gateway might catch."""


@dataclass(frozen=True)
class Order:
    """The parameters of a run."""

    target: str
    runs: int
    seed: int
    max_bytes: int
    corpus: Path
    """The folder of initial inputs. Inputs that reach new code are added."""
    found: Path
    """The folder for the input that fails."""
    max_seconds: int = 0
    """No input is made after this time; 0 for no bound."""


@dataclass(frozen=True)
class Report:
    """The result of a run."""

    executions: int
    seconds: float
    failing: Path | None = None
    log: str = ""


def has_atheris() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def target_of(name: str) -> Target:
    """Return the target *name*."""
    return cast("Target", import_module(f"tests.fuzz.{TARGETS[name]}"))


def by_atheris(order: Order) -> Report:
    """Run *order* in another process, which atheris may end."""
    order.corpus.mkdir(parents=True, exist_ok=True)
    order.found.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    before = set(order.found.iterdir())
    # In memory if possible: a target may write a file for each input.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        words = Path(folder) / "words"
        words.write_text("\n".join(map(_quoted, target_of(order.target).WORDS)))
        seeds = Path(folder) / "seeds"
        write_seeds(order.target, seeds)
        options = [*_options(order), f"-dict={words}", str(order.corpus), str(seeds)]
        done = subprocess.run(
            [sys.executable, "-c", _ATHERIS, order.target, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "TMPDIR": folder},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    log = done.stdout + done.stderr
    counted = re.search(r"number_of_executed_units: (\d+)", log)
    failing = sorted(set(order.found.iterdir()) - before)
    if done.returncode and not failing:
        raise RuntimeError(f"the engine ended with status {done.returncode}:\n{log[-4000:]}")
    return Report(
        int(counted[1]) if counted else 0,
        time.monotonic() - started,
        failing[0] if failing else None,
        log,
    )


def _options(order: Order) -> list[str]:
    return [
        f"-runs={order.runs}",
        f"-max_total_time={order.max_seconds}",
        f"-seed={order.seed}",
        f"-max_len={order.max_bytes}",
        f"-timeout={MAX_SECONDS}",
        f"-rss_limit_mb={_MAX_MEMORY_MIB}",
        f"-artifact_prefix={order.found}/",
        "-print_final_stats=1",
        "-verbosity=0",
    ]


def fuzz(target: str, options: Sequence[str]) -> None:
    """Run atheris in this process."""
    import atheris

    ours = ["gateway", "admission_gateway_worker"]
    with atheris.instrument_imports(include=ours, enable_loader_override=False):
        run = target_of(target).run
    atheris.Setup(["fuzz", *options], run)
    atheris.Fuzz()


def by_changes(order: Order) -> Report:
    """Run *order* in this process, with random changes of seeds and without coverage."""
    target = target_of(order.target)
    chance = random.Random(order.seed)
    corpus = [*target.seeds(), *(file.read_bytes() for file in files_in(order.corpus))]
    started = time.monotonic()
    for number in range(order.runs):
        data = corpus[number] if number < len(corpus) else _changed(chance, corpus, target.WORDS)
        log = failure(target.run, data[: order.max_bytes])
        if log:
            order.found.mkdir(parents=True, exist_ok=True)
            failing = order.found / f"crash-{hashlib.sha1(data).hexdigest()}"
            failing.write_bytes(data[: order.max_bytes])
            return Report(number + 1, time.monotonic() - started, failing, log)
    return Report(order.runs, time.monotonic() - started)


def _changed(chance: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    data = bytearray(chance.choice(corpus))
    for _ in range(1 << chance.randrange(5)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 | 1 if at < len(data):
                data[at] = chance.randrange(256)
            case 2:
                data[at : at + chance.randrange(8)] = chance.choice(words)
            case 3:
                del data[at : at + (1 << chance.randrange(8))]
            case 4:
                data[at:at] = chance.randbytes(1 << chance.randrange(5))
            case _:
                other = chance.choice(corpus)
                data[at:] = other[chance.randrange(len(other) + 1) :]
    return bytes(data)


def failure(run: Callable[[bytes], None], data: bytes) -> str:
    """Return the traceback of *run* on *data*, within ``MAX_SECONDS``; empty if all laws hold."""
    try:
        with _limited():
            run(data)
    except (Exception, Hang):
        return traceback.format_exc()
    return ""


@contextmanager
def _limited() -> Iterator[None]:
    def strike(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no end within {MAX_SECONDS} s")

    kept = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)


def write_seeds(target: str, folder: Path) -> None:
    """Write the initial inputs to files: the target's seeds and its regressions."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = (file.read_bytes() for file in files_in(regressions(target)))
    for number, seed in enumerate([*target_of(target).seeds(), *failed]):
        (folder / f"{number:04}").write_bytes(seed)


def regressions(target: str) -> Path:
    """Return the folder of the inputs that failed once."""
    return Path(__file__).parent / "regressions" / target


def files_in(folder: Path) -> list[Path]:
    """Return the files in *folder*, none if it does not exist."""
    return sorted(file for file in folder.glob("*") if file.is_file())


def _quoted(word: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'

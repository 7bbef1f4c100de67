"""What the gateway processes of one address tell each other about configurations, by files in one folder.

Each process decides by itself. A process that cannot reach the workers of a pool, or that starts again, has
less to decide by than the others: it follows them, so that all of them serve the same configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.model import Config

ANSWERED_WITHIN_S: Final = 2.0
"""How long a process waits for what the others decide. They ask their workers at the same time."""
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Decision:
    """What one process decided last."""

    digest: str = ""
    """The digest of the configuration in force. Empty before the first."""
    refused: str = ""
    """The digest of the configuration that its workers rejected since. Empty if they rejected none."""
    problems: tuple[Problem, ...] = ()
    """Why it was refused."""
    sockets: tuple[str, ...] = ()
    """The sockets of the local workers of the configuration in force."""


class Siblings:
    """The gateway processes of one address, of which this is one."""

    def __init__(self, folder: Path, number: int, targets: Callable[[WorkerPool], Sequence[str]]) -> None:
        """*number* is that of this process. *targets* returns the addresses of the workers of a pool."""
        self._folder = folder
        self._targets = targets
        self._file = folder / f"decision-{number}.json"
        self._own = Decision()

    def in_force(self, config: Config, digest: str) -> None:
        """Tell the others that *config* is in force here."""
        local = (pool for pool in config.pools.values() if pool.command)
        self._tell(
            Decision(digest, sockets=tuple(target for pool in local for target in self._targets(pool)))
        )

    def refused(self, digest: str, problems: Sequence[Problem]) -> None:
        """Tell the others that a configuration was refused here, because its workers reject it."""
        self._tell(Decision(self._own.digest, digest, tuple(problems), self._own.sockets))

    def have_another_than(self, digest: str) -> bool:
        """Return whether another process has a configuration in force, and none has that with *digest*."""
        others = {other.digest for other in self._others()} - {""}
        return bool(others) and digest not in others

    def _others(self) -> Iterator[Decision]:
        """Yield what the other processes decided last."""
        return (decision for file, decision in _decisions(self._folder) if file != self._file)

    async def follow(self, digest: str) -> tuple[Problem, ...]:
        """Return why another process refused the configuration *digest*; empty if none does.

        It waits until another one has decided, at most ``ANSWERED_WITHIN_S`` seconds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + ANSWERED_WITHIN_S
        while True:
            for other in self._others():
                if digest == other.refused:
                    return other.problems
                if digest == other.digest:
                    return ()
            if loop.time() >= end:
                return ()
            await asyncio.sleep(_POLL_S)

    def _tell(self, decision: Decision) -> None:
        self._own = decision
        content = {
            "pid": os.getpid(),
            "digest": decision.digest,
            "refused": decision.refused,
            "problems": [astuple(one) for one in decision.problems],
            "sockets": decision.sockets,
        }
        # Without the file the others decide by themselves.
        with contextlib.suppress(OSError):
            new = self._file.with_suffix(".new")
            new.write_bytes(orjson.dumps(content))
            new.replace(self._file)


def is_used(folder: Path, socket: Path) -> bool:
    """Return whether a process of *folder* has a configuration in force with a local worker at *socket*."""
    return any(f"unix:{socket}" in decision.sockets for _, decision in _decisions(folder))


def _decisions(folder: Path) -> Iterator[tuple[Path, Decision]]:
    """Yield the files and decisions of the processes that run."""
    for file in sorted(folder.glob("decision-*.json")):
        try:
            found = orjson.loads(file.read_bytes())
            os.kill(found["pid"], 0)
        except (OSError, ValueError):
            # It has ended, or its folder is being deleted.
            continue
        problems = tuple(Problem(*one) for one in found["problems"])
        yield file, Decision(found["digest"], found["refused"], problems, tuple(found["sockets"]))

"""Workers that the gateway starts itself: the pools with a ``command`` instead of a ``target``."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from gateway.process.children import Child
from gateway.snapshot import RETIRE_AFTER_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.config.model import WorkerPool

STOP_GRACE_S: Final = 10.0
_RETIRE_AFTER_S: Final = 2 * RETIRE_AFTER_S
"""A pool's own time to retire begins when its configuration is replaced, a worker's when that is begun with:
the new workers are waited for, and other processes that share this one look for changes on their own."""


def targets_of(pool: WorkerPool, state: Path) -> tuple[str, ...]:
    """Return where the workers of *pool* are reached; those started by a command, by a socket in *state*."""
    return (f"unix:{_socket(pool, state)}",) if pool.command else pool.targets


def _socket(pool: WorkerPool, state: Path) -> Path:
    # Named by the command too: after a change, the old worker and the new one run side by side for a while.
    # Short, since a socket's path holds 107 bytes at the most.
    return state / f"{hashlib.sha256(repr((pool.name, pool.command)).encode()).hexdigest()[:16]}.sock"


class LocalWorkers:
    """The commands of the configuration in force, running. Use it on a running event loop.

    A worker is in one of three places, by its socket: in force, retiring (still called by old reviews, and
    taken back if the configuration is), or stopping (its successor at that socket waits for its end).
    """

    def __init__(self, state: Path, retire_after_s: float = _RETIRE_AFTER_S) -> None:
        self._state = state
        self._retire_after_s = retire_after_s
        self._children: dict[Path, Child] = {}
        self._retiring: dict[Path, tuple[asyncio.TimerHandle, Child]] = {}
        self._stopping: dict[Path, tuple[asyncio.Task[None], Child]] = {}

    def update(self, pools: Mapping[str, WorkerPool]) -> None:
        """Start what *pools* newly names, and stop what they no longer name once nobody can call it."""
        wanted = {_socket(pool, self._state): pool for pool in pools.values() if pool.command}
        loop = asyncio.get_running_loop()
        for path in [path for path in self._children if path not in wanted]:
            timer = loop.call_later(self._retire_after_s, self._stop_retired, path)
            self._retiring[path] = timer, self._children.pop(path)
        for path, pool in wanted.items():
            if path not in self._children:
                command = [*pool.command, "--listen", f"unix:{path}"]
                after, _ = self._stopping.get(path, (None, None))
                self._children[path] = self._taken_back(path) or Child(
                    f"worker {pool.name}", command, after, logs_output=True
                )

    async def stop(self, grace_s: float) -> None:
        """Stop all of them; each gets *grace_s* seconds."""
        for path in list(self._retiring):
            child = self._taken_back(path)
            assert child is not None
            self._children[path] = child
        stopping = [task for task, _ in self._stopping.values()]
        await asyncio.gather(*(child.stop(grace_s) for child in self._children.values()), *stopping)
        self._children.clear()

    def kill(self) -> None:
        """End all of them at once, also those that are being stopped."""
        others = (*self._retiring.values(), *self._stopping.values())
        for child in (*self._children.values(), *(child for _, child in others)):
            child.kill()

    def _taken_back(self, path: Path) -> Child | None:
        timer, child = self._retiring.pop(path, (None, None))
        if timer is not None:
            timer.cancel()
        return child

    def _stop_retired(self, path: Path) -> None:
        _, child = self._retiring.pop(path)
        task = asyncio.create_task(child.stop(STOP_GRACE_S))
        self._stopping[path] = task, child
        task.add_done_callback(lambda _: self._stopping.pop(path))

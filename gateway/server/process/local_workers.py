"""Local workers: those of pools with a ``command``, which the gateway starts."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from gateway.engine.siblings import is_used
from gateway.engine.snapshot import RETIRE_AFTER_S
from gateway.server.process.children import Child

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from gateway.config.kinds.worker_pool import WorkerPool

STOP_GRACE_S: Final = 10.0
_RETIRE_AFTER_S: Final = 2 * RETIRE_AFTER_S
"""Twice that of a pool, because other gateway processes that use the worker may reload later."""


def targets_of(pool: WorkerPool, runtime: Path) -> tuple[str, ...]:
    """Return the targets of *pool*; for a pool with a command that is a socket in *runtime*."""
    return (f"unix:{_socket(pool, runtime)}",) if pool.command else pool.targets


def _socket(pool: WorkerPool, runtime: Path) -> Path:
    # The name depends on the command: after a change, the old and the new worker run side by side for a
    # while. It is short, since the path of a socket has at most 107 bytes.
    return runtime / f"{hashlib.sha256(repr((pool.name, pool.command)).encode()).hexdigest()[:16]}.sock"


class LocalWorkers:
    """The running commands of the configuration in force and the staged one. Use it on an event loop.

    By its socket, a worker is in one of three states: running, retiring (old reviews still call it, and it
    runs again with its configuration), or stopping (the next worker at its socket waits for its end).
    """

    def __init__(self, runtime: Path, retire_after_s: float = _RETIRE_AFTER_S) -> None:
        self._runtime = runtime
        self._retire_after_s = retire_after_s
        self._children: dict[Path, Child] = {}
        self._in_force: Collection[Path] = ()
        self._staged: Collection[Path] = ()
        self._retiring: dict[Path, tuple[asyncio.TimerHandle, Child]] = {}
        self._stopping: dict[Path, tuple[asyncio.Task[None], Child]] = {}

    def stage(self, pools: Mapping[str, WorkerPool]) -> None:
        """Start the commands of *pools* that do not run."""
        wanted = {_socket(pool, self._runtime): pool for pool in pools.values() if pool.command}
        self._staged = wanted.keys()
        for path, pool in wanted.items():
            if path not in self._children:
                command = [*pool.command, "--listen", f"unix:{path}"]
                after, _ = self._stopping.get(path, (None, None))
                self._children[path] = self._revived(path) or Child(
                    f"worker {pool.name}",
                    command,
                    after,
                    logs_output=True,
                    effect=f"failurePolicy decides for the webhooks of pool {pool.name}",
                )

    def activate(self) -> None:
        """Stop the commands that are not staged, when no review can call them."""
        self._in_force = self._staged
        self._retire_others()

    def abandon(self) -> None:
        """Stop the commands that are not in force, when no other process can call them."""
        self._staged = self._in_force
        self._retire_others()

    def _retire_others(self) -> None:
        loop = asyncio.get_running_loop()
        for path in self._children.keys() - set(self._in_force):
            timer = loop.call_later(self._retire_after_s, self._stop_retired, path)
            self._retiring[path] = timer, self._children.pop(path)

    async def stop(self, grace_s: float) -> None:
        """Stop all workers; each has *grace_s* seconds."""
        for path in list(self._retiring):
            child = self._revived(path)
            assert child is not None
            self._children[path] = child
        stopping = [task for task, _ in self._stopping.values()]
        await asyncio.gather(*(child.stop(grace_s) for child in self._children.values()), *stopping)
        self._children.clear()

    def kill(self) -> None:
        """Kill all workers, including those that are stopping."""
        others = (*self._retiring.values(), *self._stopping.values())
        for child in (*self._children.values(), *(child for _, child in others)):
            child.kill()

    def _revived(self, path: Path) -> Child | None:
        timer, child = self._retiring.pop(path, (None, None))
        if timer is not None:
            timer.cancel()
        return child

    def _stop_retired(self, path: Path) -> None:
        _, child = self._retiring.pop(path)
        if is_used(self._runtime, path):
            # A gateway process refuses the new configuration, and keeps the one with this worker.
            timer = asyncio.get_running_loop().call_later(self._retire_after_s, self._stop_retired, path)
            self._retiring[path] = timer, child
            return
        task = asyncio.create_task(child.stop(STOP_GRACE_S))
        self._stopping[path] = task, child
        task.add_done_callback(lambda _: self._stopping.pop(path))

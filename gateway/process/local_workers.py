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


def targets_of(pool: WorkerPool, state: Path) -> tuple[str, ...]:
    """Return where the workers of *pool* are reached; those started by a command, by a socket in *state*."""
    return (f"unix:{_socket(pool, state)}",) if pool.command else pool.targets


def _socket(pool: WorkerPool, state: Path) -> Path:
    # Named by the command too: after a change, the old worker and the new one run side by side for a while.
    # Short, since a socket's path holds 107 bytes at the most.
    return state / f"{hashlib.sha256(repr((pool.name, pool.command)).encode()).hexdigest()[:16]}.sock"


class LocalWorkers:
    """The commands of the configuration in force, running. Use it on a running event loop."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._children: dict[Path, Child] = {}
        self._retiring: dict[asyncio.Task[None], Child] = {}

    def update(self, pools: Mapping[str, WorkerPool]) -> None:
        """Start what *pools* newly names, and stop what they no longer name once nobody can call it."""
        wanted = {_socket(pool, self._state): pool for pool in pools.values() if pool.command}
        for path in [path for path in self._children if path not in wanted]:
            child = self._children.pop(path)
            task = asyncio.create_task(_retire(child))
            self._retiring[task] = child
            task.add_done_callback(self._retiring.pop)
        for path, pool in wanted.items():
            if path not in self._children:
                self._children[path] = Child(
                    f"worker {pool.name}", [*pool.command, "--listen", f"unix:{path}"]
                )

    async def stop(self, grace_s: float) -> None:
        """Stop all of them; each gets *grace_s* seconds."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        children = [*self._children.values(), *retiring.values()]
        self._children.clear()
        await asyncio.gather(*(child.stop(grace_s) for child in children))


async def _retire(child: Child) -> None:
    await asyncio.sleep(RETIRE_AFTER_S)
    await child.stop(STOP_GRACE_S)

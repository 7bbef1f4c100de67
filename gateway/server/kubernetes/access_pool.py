"""Clients of one API server for many watches: each client has a limited number of connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from gateway.server.kubernetes.access import ClusterAccess

if TYPE_CHECKING:
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings

WATCHES_PER_CLIENT: Final = 50
"""A client has at most 100 connections, and each watch keeps one."""

K = TypeVar("K")


class AccessPool(Generic[K]):
    """Clients with the keys of the watches that use them. Make it on a running event loop."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._accesses: list[tuple[ClusterAccess, set[K]]] = []
        self._closing: set[asyncio.Task[None]] = set()

    def acquire(self, key: K) -> ClusterAccess:
        """Return a client for the watch *key*."""
        for access, keys in self._accesses:
            if len(keys) < WATCHES_PER_CLIENT:
                keys.add(key)
                return access
        access = ClusterAccess(self._settings)
        self._accesses.append((access, {key}))
        return access

    def release(self, key: K) -> None:
        """Close the client of the watch *key* if no other watch uses it."""
        for access, keys in tuple(self._accesses):
            keys.discard(key)
            if not keys:
                self._accesses.remove((access, keys))
                task = asyncio.create_task(access.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Wait until the clients that were released are closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)

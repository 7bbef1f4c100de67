"""The namespaces of a cluster: followed by a watch, and looked up one by one where that has not seen one yet.

A namespace and its first objects are often created by the same command, a moment apart. The API server does
the same look-up since 1.35, when a selector needs a namespace that its informer does not have. Concurrent
look-ups of one namespace share one request; its result is not kept.

Source: kubernetes/apiserver plugin/webhook/predicates/namespace/matcher.go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ClusterError
from gateway.config.kinds.names import dns_1123_label
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.authorizer import ClusterAuthorizer
from gateway.server.kubernetes.watch import Kind, Pace, Store, UnreadableError, Watch, stored_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings

    Result = Namespace | Failed | None
    """None if there is no such namespace."""

log = logging.getLogger(__name__)

PATH: Final = "/api/v1/namespaces"
LOOK_UP_TIMEOUT_S: Final = 2.0
_NOT_FOUND: Final = 404
_TYPE: Final = {"apiVersion": "v1", "kind": "Namespace"}
"""Items of a list have neither."""


class ClusterNamespaces:
    """A cluster's namespaces, followed from :meth:`start` to :meth:`close`. Make it on a running loop."""

    def __init__(
        self,
        settings: KubernetesSettings,
        pace: Pace | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """*changed* is called after each list and event."""
        self.settings = settings
        self._access = ClusterAccess(settings)
        self._store = Store(namespace_of, changed)
        kind = Kind(PATH, "namespaces", "NamespaceList")
        self._watch = Watch(self._access, kind, self._store, pace or Pace())
        self._look_ups = NamespaceLookups(self.get)
        self._authorizer = ClusterAuthorizer(self._access)
        self._task: asyncio.Task[None] | None = None
        self.by_name: Mapping[str, Namespace] = self._store.by_name
        """The current namespaces; the mapping changes."""
        self.look_up = self._look_ups.look_up
        """Gets a namespace that is not in ``by_name``."""
        self.authorize = self._authorizer.authorize
        """Gets a decision of the API server's authorizer."""

    @property
    def not_synced(self) -> str | None:
        """Why the namespaces have not been read yet; None once they have."""
        if self._watch.synced.is_set():
            return None
        return f"namespaces not synced: {self._watch.last_error}"

    @property
    def is_connected(self) -> bool:
        """Whether the watch is connected."""
        return self._watch.is_connected

    async def start(self) -> None:
        """Start to follow the namespaces, without waiting for the API server.

        Raises:
            ClusterError: the kubeconfig or the service account cannot be used.
        """
        async with self._access.api():
            self._task = asyncio.create_task(self._watch.run())

    async def wait_until_synced(self, timeout_s: float) -> bool:
        """Return whether all namespaces have been read within *timeout_s* seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._watch.synced.wait()
        except TimeoutError:
            return False
        return True

    async def get(self, name: str) -> Namespace | None:
        """Return the namespace *name* from the API server; None if it does not exist.

        An invalid name is not sent: as a part of a path, "." would get all namespaces.

        Raises:
            ClusterError: the API server cannot be reached, or refuses.
        """
        if dns_1123_label(name) is not None:
            return None
        async with self._access.api() as api:
            try:
                return namespace_of(await api.get(f"{PATH}/{name}"))
            except UnreadableError as error:
                raise ClusterError(f"{api.url}: sent {error}") from None
            except ClusterError as error:
                if error.status != _NOT_FOUND:
                    raise
                return None

    async def close(self) -> None:
        """Stop the watch, and wait for look-ups in progress, which takes a few seconds at most."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(self._look_ups.close(), self._authorizer.close())
        await self._access.close()


def namespace_of(document: object) -> Namespace:
    """Return the Namespace in *document*, as the API server sent it.

    Workers get it without ``managedFields``, which are most of its bytes.

    Raises:
        UnreadableError: it is not a Namespace.
    """
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(document, dict) or not isinstance(metadata, dict) or not isinstance(name, str):
        raise UnreadableError("a Namespace without a name")
    labels = metadata.get("labels")
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    content = stored_json({**_TYPE, **document, "metadata": kept})
    return Namespace(name, labels if isinstance(labels, dict) else {}, content)


class NamespaceLookups:
    """Look-ups of single namespaces. Make it on a running event loop."""

    def __init__(self, get: Callable[[str], Awaitable[Namespace | None]]) -> None:
        """*get* returns a namespace, None where it does not exist, or raises ClusterError."""
        self._get = get
        self._waiting: dict[str, dict[_Waiter, None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def look_up(self, name: str, timeout_s: float, found: Callable[[Result], None]) -> Callable[[], None]:
        """Look up the namespace *name* for *found*, and return a function that withdraws the look-up.

        *found* is called once, later. It gets Failed if there was no answer within *timeout_s* seconds, or
        within ``LOOK_UP_TIMEOUT_S`` of the start of the request that this look-up shares.
        """
        waiters = self._waiting.get(name)
        if waiters is None:
            waiters = self._waiting[name] = {}
            task = asyncio.get_running_loop().create_task(self._find(name, waiters))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiter = _Waiter(name, timeout_s, found)
        waiters[waiter] = None
        return waiter.withdraw

    async def close(self) -> None:
        """Wait for the requests in progress."""
        await asyncio.gather(*self._tasks)

    async def _find(self, name: str, waiters: dict[_Waiter, None]) -> None:
        result: Result
        try:
            async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
                result = await self._get(name)
        except TimeoutError:
            result = _timed_out(name)
        except ClusterError as error:
            result = _failed(name, str(error))
        except Exception:
            log.exception("look-up of a namespace failed: internal error")
            result = _failed(name, "internal error: the gateway's log has the details")
        finally:
            # Later look-ups start a new request.
            del self._waiting[name]
        for waiter in waiters:
            waiter.finish(result)


class _Waiter:
    """One review that waits."""

    def __init__(self, name: str, timeout_s: float, found: Callable[[Result], None]) -> None:
        self._found: Callable[[Result], None] | None = found
        self._timer = asyncio.get_running_loop().call_later(
            max(0.0, timeout_s), lambda: self.finish(_timed_out(name))
        )

    def finish(self, result: Result) -> None:
        found, self._found = self._found, None
        self._timer.cancel()
        if found is not None:
            found(result)

    def withdraw(self) -> None:
        self._found = None
        self._timer.cancel()


def _timed_out(name: str) -> Failed:
    # Without the timeout, which differs between reviews.
    return _failed(name, "the API server has not answered in time")


def _failed(name: str, reason: str) -> Failed:
    return Failed(FailureReason.NAMESPACE, f'namespace "{name}" cannot be looked up: {reason}')

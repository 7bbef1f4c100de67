"""Access to the API server that a kubeconfig or the pod's service account names, also for many watches.

Source: k8s.io/client-go tools/clientcmd.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import httpx2

from admission_gateway_worker.kubernetes_client import SERVICE_ACCOUNT, server_of_pod
from gateway.base.certificates import roots_among
from gateway.base.errors import ClusterError
from gateway.base.files import UnusableFileError, read_file
from gateway.base.text import without_url_secrets
from gateway.config.kinds.kubeconfig import Kubeconfig, KubeconfigCluster, KubeconfigUser, read_kubeconfig
from gateway.engine.credentials.exec_plugin import CredentialsError
from gateway.server.kubernetes.api_client import ApiClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings

RENEW_AFTER_S: Final = 180.0
"""Age at which a client is replaced, so that changed certificates, roots and kubeconfigs take effect."""
RENEW_FAILED_AFTER_S: Final = 1.0
"""The same after a failed request. Not 0: a client costs tens of milliseconds of CPU, and while the API
server is down every look-up fails."""
WATCHES_PER_CLIENT: Final = 50
"""A client has at most 100 connections, and each watch keeps one."""

K = TypeVar("K")


def connect(settings: KubernetesSettings, service_account: Path = SERVICE_ACCOUNT) -> ApiClient:
    """Return a client for the API server of *settings*; it has sent nothing yet.

    Reads files: do not call it on the event loop.

    Raises:
        ClusterError: the kubeconfig or the service account cannot be used.
    """
    try:
        if settings.kubeconfig is None:
            return ApiClient(_of_pod(service_account))
        return ApiClient(read_kubeconfig(settings.kubeconfig, settings.context))
    except UnusableFileError as error:
        file = settings.kubeconfig
        raise ClusterError(f"the service account {error}" if file is None else error.about(file)) from error
    except (CredentialsError, httpx2.InvalidURL, OSError, ValueError, ImportError) as error:
        # ImportError: a proxy of a kind that httpx2 supports only with another package, such as socks5.
        reason = f"cannot be used: {without_url_secrets(str(error))}"
        raise ClusterError(f"{settings.kubeconfig or 'the service account'} {reason}") from error


def _of_pod(folder: Path) -> Kubeconfig:
    try:
        server = server_of_pod()
    except LookupError as error:
        reason = f"{error.args[0]} is not set, so this is not a pod; set a kubeconfig"
        raise UnusableFileError(f"is missing: {reason}") from error
    token = folder / "token"
    if not token.is_file():
        raise UnusableFileError(f"is missing: no {token}; is automountServiceAccountToken false for the pod?")
    try:
        ca_pem = roots_among(read_file(folder / "ca.crt"))[0]
    except UnusableFileError as error:
        raise UnusableFileError(f"cannot be used: {folder / 'ca.crt'} {error}") from error
    return Kubeconfig(KubeconfigCluster(server, ca_pem), KubeconfigUser(token_file=token))


class _SharedClient:
    """A client with the number of its users."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api
        self.users = 0
        self.has_failed = False
        self._made = time.monotonic()

    @property
    def is_old(self) -> bool:
        lasts_s = RENEW_FAILED_AFTER_S if self.has_failed else RENEW_AFTER_S
        return time.monotonic() - self._made > lasts_s


class ClusterAccess:
    """Lends clients of one API server.

    A new client is made every few minutes, and soon after a failure, so that changed tokens, certificates,
    roots and kubeconfigs take effect.
    """

    def __init__(self, settings: KubernetesSettings, service_account: Path = SERVICE_ACCOUNT) -> None:
        self._settings = settings
        self._service_account = service_account
        self._current: _SharedClient | None = None
        self._making = asyncio.Lock()
        self._is_closed = False

    @asynccontextmanager
    async def api(self) -> AsyncIterator[ApiClient]:
        """Lend a client; it is closed when it has been replaced and has no more users.

        Raises:
            ClusterError: the kubeconfig or the service account cannot be used.
        """
        shared = await self._fresh()
        shared.users += 1
        try:
            yield shared.api
        except ClusterError:
            shared.has_failed = True
            raise
        finally:
            shared.users -= 1
            if self._is_closed:
                self._current = None
            if shared is not self._current and not shared.users:
                await shared.api.close()

    async def close(self) -> None:
        """Close the client once it has no users; from now on every client is closed after use."""
        self._is_closed = True
        await self._drop()

    async def _fresh(self) -> _SharedClient:
        async with self._making:
            shared = self._current
            if shared is None or shared.is_old:
                api = await asyncio.to_thread(connect, self._settings, self._service_account)
                await self._drop()
                shared = self._current = _SharedClient(api)
            return shared

    async def _drop(self) -> None:
        shared, self._current = self._current, None
        if shared is not None and not shared.users:
            await shared.api.close()


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

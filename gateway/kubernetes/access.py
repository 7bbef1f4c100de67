"""Where the API server is, and how the gateway proves to it who it is.

Reading kubeconfigs and service accounts, credentials that expire, plugins that make them: lightkube does
that. Of the clients for Kubernetes in Python it is by far the lightest that is asyncio's own: importing it
takes 0.12 s of CPU and 12 MiB, where kr8s takes 0.22 s and 22 MiB, the official one 0.40 s and 36 MiB, and
kubernetes-asyncio 0.46 s and 53 MiB. What of it does not fit is its watch, which can neither ask for
bookmarks nor notice that a connection is dead, and hides that it begins again: requests are made here, with
its client (``api.py``).

Source: k8s.io/client-go tools/clientcmd (relative paths), pkg/apis/clientauthentication/v1 (exec).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx2
import msgspec
import orjson
from lightkube.config.client_adapter import AsyncClient, ConnectionParams, ExecAuth
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError as LightkubeError

from gateway.config.credentials import certificates, public_key
from gateway.config.files import UnusableFileError, read_file
from gateway.config.kubeconfig import read_kubeconfig
from gateway.errors import ClusterError
from gateway.kubernetes.api_client import ApiClient
from gateway.kubernetes.plugin import PluginAuth
from gateway.text import without_url_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from lightkube.config.kubeconfig import SingleConfig

    from gateway.config.model import Kubernetes

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RENEW_AFTER_S: Final = 180.0
"""Files with tokens, certificates and roots are read again after this: kubelets renew tokens every hour."""
RENEW_FAILED_AFTER_S: Final = 1.0
"""And after this once a request has failed. Not at once: each client costs tens of milliseconds of CPU, and
with an API server that is gone every look-up fails."""
REQUEST_TIMEOUT_S: Final = 10.0

_EXEC_GROUP: Final = "client.authentication.k8s.io"


def connect(settings: Kubernetes, service_account: Path = SERVICE_ACCOUNT) -> ApiClient:
    """Return the API server that *settings* stand for; nothing is sent yet.

    Reads files, so it is for another thread than the event loop's.

    Raises:
        ClusterError: the kubeconfig or the service account cannot be used.
    """
    try:
        written: Mapping[str, object] = {}
        if settings.kubeconfig is None:
            config = _of_pod(service_account)
        else:
            config, written = _of_kubeconfig(settings.kubeconfig, settings.context)
        proxy, name = written.get("proxy-url"), written.get("tls-server-name")
        client = AsyncClient(
            config,
            ConnectionParams(
                timeout=httpx2.Timeout(REQUEST_TIMEOUT_S), proxy=proxy if isinstance(proxy, str) else None
            ),
        )
        if isinstance(client.auth, ExecAuth) and config.user is not None and config.user.exec is not None:
            client.auth = PluginAuth(config.user.exec)
    except (
        *(UnusableFileError, LightkubeError, msgspec.MsgspecError, httpx2.InvalidURL),
        # ImportError: a proxy of a kind that httpx2 knows only with a further package, such as socks5.
        *(OSError, ValueError, TypeError, KeyError, ImportError),
    ) as error:
        reason: object = error
        if isinstance(error, OSError) and error.strerror:
            reason = f"cannot be used: {': '.join(filter(None, (error.filename, error.strerror)))}"
        elif not isinstance(error, UnusableFileError):
            reason = f"cannot be used: {without_url_secrets(str(error))}"
        raise ClusterError(f"{settings.kubeconfig or 'the service account'} {reason}") from error
    return ApiClient(client, {"sni_hostname": name} if isinstance(name, str) else {}, config.namespace)


def _of_pod(service_account: Path) -> SingleConfig:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not os.environ.get(name):
            raise UnusableFileError(f"is not there: {name} is not set, so this is no pod; name a kubeconfig")
    token = service_account / "token"
    if not token.is_file():
        raise UnusableFileError(f"is not there: no {token}; has the pod automountServiceAccountToken: false?")
    return _single(KubeConfig.from_service_account(service_account))


def _of_kubeconfig(path: Path, context: str | None) -> tuple[SingleConfig, Mapping[str, object]]:
    chosen = read_kubeconfig(path, context)
    for entry, name, check in (
        (chosen.cluster, "certificate-authority", certificates),
        (chosen.user, "client-certificate", certificates),
        (chosen.user, "client-key", public_key),
    ):
        _check_pem(entry, name, check, path.parent)
    user = dict(chosen.user)
    for name in ("as", "as-uid", "as-groups", "as-user-extra"):
        if user.get(name):
            # Left out it would let the gateway do what the one who wrote it did not want it to.
            raise UnusableFileError(
                f"cannot be used: the user has {name}, and impersonation is not supported"
            )
    token_file, plugin = user.get("tokenFile"), user.get("exec")
    if isinstance(token_file, str):
        user["tokenFile"] = str(path.parent / token_file)
    if isinstance(plugin, dict):
        user["exec"] = _plugin(plugin, path.parent)
    document = {
        "current-context": "it",
        "contexts": [
            {"name": "it", "context": {"cluster": "it", "user": "it", "namespace": chosen.namespace}}
        ],
        "clusters": [{"name": "it", "cluster": chosen.cluster}],
        "users": [{"name": "it", "user": user}],
    }
    return _single(KubeConfig.from_dict(document, path)), chosen.cluster


def _check_pem(
    entry: Mapping[str, object], name: str, check: Callable[[bytes], object], folder: Path
) -> None:
    """Look at what the members *name* and *name*``-data`` of a kubeconfig's *entry* hold.

    OpenSSL, which gets it from lightkube in a file, would not say which it was.
    """
    text, file = entry.get(f"{name}-data"), entry.get(name)
    try:
        if isinstance(text, str) and text:
            check(base64.b64decode(text, validate=True))
        elif isinstance(file, str) and file:
            check(read_file(folder / file))
    except binascii.Error:
        raise UnusableFileError(f"cannot be used: {name}-data is not base64") from None
    except UnusableFileError as error:
        where = f"{name}-data" if text else f"{name} {folder / str(file)}"
        raise UnusableFileError(f"cannot be used: {where} {error}") from None


def _plugin(plugin: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Return a user's ``exec`` as lightkube knows it: without v1, which is v1beta1 under another name."""
    version, command, variables = plugin.get("apiVersion"), plugin.get("command"), plugin.get("env") or []
    if isinstance(command, str) and "/" in command:
        command = str(folder / command)
    told = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    told_variable = {"name": "KUBERNETES_EXEC_INFO", "value": orjson.dumps(told).decode()}
    return {
        **plugin,
        "apiVersion": f"{_EXEC_GROUP}/v1beta1" if version == f"{_EXEC_GROUP}/v1" else version,
        "command": command,
        "env": [*variables, told_variable] if isinstance(variables, list) else variables,
    }


def _single(config: KubeConfig) -> SingleConfig:
    single = config.get()
    assert single is not None
    return single


class _Held:
    """A client with how many use it."""

    def __init__(self, api: ApiClient, made: float) -> None:
        self.api = api
        self.made = made
        self.users = 0
        self.has_failed = False

    @property
    def is_old(self) -> bool:
        lasts_s = RENEW_FAILED_AFTER_S if self.has_failed else RENEW_AFTER_S
        return time.monotonic() - self.made > lasts_s


class ClusterAccess:
    """The API server over a client that is made anew every few minutes, and soon after failures.

    So whatever was renewed meanwhile counts: tokens, certificates, roots, the kubeconfig itself.
    """

    def __init__(self, settings: Kubernetes, service_account: Path = SERVICE_ACCOUNT) -> None:
        self._settings = settings
        self._service_account = service_account
        self._held: _Held | None = None
        self._making = asyncio.Lock()
        self._is_closed = False

    @asynccontextmanager
    async def api(self) -> AsyncIterator[ApiClient]:
        """Lend the API server; a client is closed once nobody uses it any more.

        Raises:
            ClusterError: the kubeconfig or the service account cannot be used.
        """
        held = await self._fresh()
        held.users += 1
        try:
            yield held.api
        except ClusterError:
            held.has_failed = True
            raise
        finally:
            held.users -= 1
            if self._is_closed:
                self._held = None
            if held is not self._held and not held.users:
                await held.api.close()

    async def close(self) -> None:
        """Close the client, or leave that to the last who uses it, perhaps only from now on."""
        self._is_closed = True
        await self._drop()

    async def _fresh(self) -> _Held:
        async with self._making:
            held = self._held
            if held is None or held.is_old:
                api = await asyncio.to_thread(connect, self._settings, self._service_account)
                await self._drop()
                held = self._held = _Held(api, time.monotonic())
            return held

    async def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None and not held.users:
            await held.api.close()

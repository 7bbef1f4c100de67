"""Read access of policies to the API server: lists, single objects, creations and checks of users' rights.

It uses the kubeconfig that ``KUBECONFIG`` names, otherwise the service account of the pod. It needs the extra
``policies`` of the distribution (httpx2, PyYAML), which is imported at the first use. A policy calls
``connect()`` at each review; the deadline of the review cancels what it awaits.

Source: k8s.io/client-go tools/clientcmd/api/v1 types.go.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

from admission_gateway_worker.client_tls import insecure_tls_context, tls_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    import httpx2


Json = dict[str, Any]
T = TypeVar("T")

MAX_AGE_S: Final = 1.0
"""A read is answered with a result of the last second, so that a burst of reviews costs one request."""
_DISCOVERY_MAX_AGE_S: Final = 30.0
_KEPT_S: Final = 60.0
_MAX_READS: Final = 1024
"""Results that are kept; a further read drops the oldest, and those that are older than ``_KEPT_S``."""
_PAGE: Final = 500
_READ_TOKEN_EVERY_S: Final = 10.0


class ClusterError(Exception):
    """The API server cannot be reached or refuses a request. The text is one line."""

    def __init__(self, message: str, status: int = 0) -> None:
        """*status* is the HTTP status of the answer; 0 if there is none."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Access:
    """How the API server is reached."""

    server: str
    """URL."""
    tls: ssl.SSLContext
    token: str = ""
    token_file: Path | None = None
    server_name: str = ""
    """Name in the server's certificate. By default that of the URL."""


@dataclass(frozen=True)
class Decision:
    """The answer to a SubjectAccessReview."""

    is_allowed: bool
    reason: str
    error: str


class Cluster:
    """The API server of one *access*, for the running event loop."""

    def __init__(self, access: Access) -> None:
        from admission_gateway_worker.kubernetes_client import Client

        self._access = access
        self._client = Client(
            access.server, access.tls, self._authorized, self._failure, server_name=access.server_name
        )
        self._token = access.token
        self._token_read_at = -_READ_TOKEN_EVERY_S
        self._reads: dict[str, tuple[float, asyncio.Task[Any]]] = {}

    async def objects(
        self, api_version: str, plural: str, namespace: str = "", *, max_age_s: float = MAX_AGE_S
    ) -> list[Json]:
        """Return the objects of a kind, such as ``"apps/v1", "deployments"``, of one or of all namespaces.

        Calls share the objects: do not change them. They are *max_age_s* seconds old at most.

        Raises:
            ClusterError: no answer, or a refusal.
        """
        path = _path(api_version, plural, namespace)
        return await self._read(f"{path}?", lambda: self._list(path), max_age_s)

    async def get(
        self, api_version: str, plural: str, name: str, namespace: str = "", *, max_age_s: float = MAX_AGE_S
    ) -> Json | None:
        """Return one object, None if there is none; otherwise as ``objects``."""
        path = f"{_path(api_version, plural, namespace)}/{quote(name, safe='')}"
        return await self._read(path, lambda: self._client.find(path), max_age_s)

    async def resources(self, api_version: str) -> list[Json]:
        """Return the APIResources of a group and version; none if the API server does not serve it.

        Raises:
            ClusterError: no answer, or a refusal.
        """
        root = _root(api_version)
        found = await self._read(root, lambda: self._client.find(root), _DISCOVERY_MAX_AGE_S)
        return (found or {}).get("resources") or []

    async def create(
        self, api_version: str, plural: str, document: Mapping[str, Any], namespace: str = ""
    ) -> Json:
        """Create an object and return it as stored.

        Raises:
            ClusterError: no answer, or a refusal, such as status 409 for an object that exists.
        """
        return await self._client.write("POST", _path(api_version, plural, namespace), document)

    async def access_review(self, user_info: Mapping[str, Any], **attributes: str) -> Decision:
        """Return whether the user of a review has a right, by a SubjectAccessReview.

        *attributes* are ``resourceAttributes``: verb, group, version, resource, subresource, namespace, name.

        Raises:
            ClusterError: no answer, or a refusal of the SubjectAccessReview itself.
        """
        spec = {
            "user": user_info.get("username", ""),
            "groups": user_info.get("groups") or [],
            "uid": user_info.get("uid", ""),
            "extra": user_info.get("extra") or {},
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        made = await self.create("authorization.k8s.io/v1", "subjectaccessreviews", review)
        status = made.get("status") or {}
        return Decision(
            status.get("allowed") is True, status.get("reason", ""), status.get("evaluationError", "")
        )

    async def close(self) -> None:
        """Close the connections."""
        for _, task in self._reads.values():
            task.cancel()
        await self._client.close()

    async def _read(self, key: str, read: Callable[[], Coroutine[Any, Any, T]], max_age_s: float) -> T:
        """Return a result of *read*; calls at the same time share one request.

        The request continues if one of its callers is cancelled. A result that may have no age is not kept.
        """
        if not max_age_s:
            return await read()
        now = time.monotonic()
        kept = self._reads.get(key)
        if kept is not None and not _has_failed(kept[1]) and now - kept[0] <= max_age_s:
            found: T = await asyncio.shield(kept[1])
            return found
        task = asyncio.create_task(read())
        self._reads.pop(key, None)
        self._reads[key] = now, task
        self._drop_old_reads(now)
        return await asyncio.shield(task)

    def _drop_old_reads(self, now: float) -> None:
        """Drop the reads, which are in the order of their time, that are too old or too many."""
        for key, (made_at, _) in tuple(self._reads.items()):
            if len(self._reads) <= _MAX_READS and now - made_at <= _KEPT_S:
                return
            del self._reads[key]

    async def _list(self, path: str) -> list[Json]:
        pages = self._client.pages(path, {"limit": str(_PAGE)})
        return [item async for page in pages for item in page.get("items") or ()]

    def _authorized(self, request: httpx2.Request) -> httpx2.Request:
        file = self._access.token_file
        if file is not None and time.monotonic() - self._token_read_at >= _READ_TOKEN_EVERY_S:
            self._token = _text(file).strip()
            self._token_read_at = time.monotonic()
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def _failure(self, method: str, path: str, reason: str, status: int, _: Json | None) -> ClusterError:
        found = status or "no answer"
        return ClusterError(f"{method} {self._client.url}{path}: {found}: {reason}", status)


_clusters: WeakKeyDictionary[asyncio.AbstractEventLoop, Cluster] = WeakKeyDictionary()


def connect() -> Cluster:
    """Return the cluster of the running event loop, made at the first call.

    Raises:
        ClusterError: there is no usable kubeconfig and no service account, or the extra is not installed.
    """
    loop = asyncio.get_running_loop()
    if loop not in _clusters:
        _clusters[loop] = Cluster(read_access())
    return _clusters[loop]


async def found_or_now(read: Callable[[float], Awaitable[T]]) -> T:
    """Return what *read* finds, which takes a ``max_age_s``.

    What is not found is looked up again in the present: before a denial, as it may be new.
    """
    return await read(MAX_AGE_S) or await read(0.0)


def read_access() -> Access:
    """Return the access that ``KUBECONFIG`` or the pod's service account gives; sends nothing.

    Raises:
        ClusterError: there is none, it is not usable, or the extra is not installed.
    """
    try:
        kubeconfig = os.environ.get("KUBECONFIG", "")
        return _of_kubeconfig(Path(kubeconfig)) if kubeconfig else _of_pod()
    except ImportError as error:
        raise ClusterError(
            f"{error.name} is not installed: pip install admission-gateway-worker[policies]"
        ) from error


def _of_pod() -> Access:
    from admission_gateway_worker.kubernetes_client import SERVICE_ACCOUNT, server_of_pod

    try:
        server = server_of_pod()
    except LookupError as error:
        raise ClusterError(
            f"KUBECONFIG is not set, and this is not a pod: {error.args[0]} is not set"
        ) from error
    token = SERVICE_ACCOUNT / "token"
    if not token.is_file():
        raise ClusterError(f"there is no {token}: is automountServiceAccountToken false for the pod?")
    return Access(server, _tls(_text(SERVICE_ACCOUNT / "ca.crt")), token_file=token)


def _of_kubeconfig(file: Path) -> Access:
    """Read the current context of a kubeconfig: tokens and client certificates, no exec plug-ins."""
    import yaml

    try:
        document = yaml.safe_load(_text(file)) or {}
        context = _named(document, "contexts", document.get("current-context", ""))["context"]
        cluster = _named(document, "clusters", context["cluster"])["cluster"]
        user = _named(document, "users", context["user"])["user"] or {} if context.get("user") else {}
        for field in ("exec", "auth-provider", "username", "as"):
            if field in user:
                raise ClusterError(
                    f"{file}: the user has {field}, which is not supported; use a token or a certificate"
                )
        if "proxy-url" in cluster:
            raise ClusterError(f"{file}: the cluster has proxy-url, which is not supported")
        token_file = user.get("tokenFile")
        tls = _tls(
            _pem(file, cluster, "certificate-authority"),
            _pem(file, user, "client-certificate"),
            _pem(file, user, "client-key"),
            is_insecure=cluster.get("insecure-skip-tls-verify") is True,
        )
        return Access(
            cluster["server"],
            tls,
            user.get("token", ""),
            file.parent / token_file if token_file else None,
            cluster.get("tls-server-name", ""),
        )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise ClusterError(f"{file} is not a kubeconfig with a current context: {problem}") from error


def _named(document: Json, field: str, name: str) -> Json:
    for entry in document.get(field) or ():
        if entry["name"] == name:
            found: Json = entry
            return found
    raise ValueError(f"{field} has no entry {name!r}")


def _pem(kubeconfig: Path, entry: Json, field: str) -> str:
    if data := entry.get(f"{field}-data"):
        return base64.b64decode(data).decode()
    return _text(kubeconfig.parent / entry[field]) if entry.get(field) else ""


def _tls(ca: str, certificate: str = "", key: str = "", *, is_insecure: bool = False) -> ssl.SSLContext:
    pair = certificate.encode(), key.encode()
    try:
        return insecure_tls_context(*pair) if is_insecure else tls_context(ca.encode(), *pair)
    except (ssl.SSLError, ValueError) as error:
        raise ClusterError(f"OpenSSL rejects the certificates for the API server: {error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError) as error:
        raise ClusterError(f"{file} cannot be read: {error}") from error


def _path(api_version: str, plural: str, namespace: str) -> str:
    root = _root(api_version)
    return f"{root}/namespaces/{quote(namespace, safe='')}/{plural}" if namespace else f"{root}/{plural}"


def _root(api_version: str) -> str:
    group, slash, version = api_version.partition("/")
    return f"/apis/{quote(group)}/{quote(version, safe='')}" if slash else f"/api/{quote(group)}"


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)

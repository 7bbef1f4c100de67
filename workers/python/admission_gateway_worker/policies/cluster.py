"""Read access of policies to the API server: lists, single objects, creations and checks of users' rights.

It uses the kubeconfig that ``KUBECONFIG`` names, otherwise the service account of the pod. It needs the extra
``policies`` of the distribution (httpx2, PyYAML), which is imported at the first use. A policy calls
``connect()`` at each review; the deadline of the review cancels what it awaits.

Source: k8s.io/client-go rest/config.go (InClusterConfig); tools/clientcmd/api/v1 types.go.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

import orjson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    import httpx2

Json = dict[str, Any]
T = TypeVar("T")

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_TIMEOUT_S: Final = 10.0
MAX_AGE_S: Final = 1.0
"""A read is answered with a result of the last second, so that a burst of reviews costs one request."""
_DISCOVERY_MAX_AGE_S: Final = 30.0
_KEPT_S: Final = 60.0
_MAX_READS: Final = 1024
"""Results that are kept; a further read drops the oldest, and those that are older than ``_KEPT_S``."""
_PAGE: Final = 500
_READ_TOKEN_EVERY_S: Final = 10.0
_NOT_FOUND: Final = 404


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
    """Name in the server's certificate; empty: that of the URL."""


@dataclass(frozen=True)
class Decision:
    """The answer to a SubjectAccessReview."""

    is_allowed: bool
    reason: str
    error: str


class Cluster:
    """The API server of one *access*, for the running event loop."""

    def __init__(self, access: Access) -> None:
        import httpx2

        self._access = access
        self._client = httpx2.AsyncClient(
            base_url=access.server, verify=access.tls, timeout=REQUEST_TIMEOUT_S, trust_env=False
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
        return await self._read(path, lambda: self._find(path), max_age_s)

    async def resources(self, api_version: str) -> list[Json]:
        """Return the APIResources of a group and version; none if the API server does not serve it.

        Raises:
            ClusterError: no answer, or a refusal.
        """
        root = _root(api_version)
        found = await self._read(root, lambda: self._find(root), _DISCOVERY_MAX_AGE_S)
        return (found or {}).get("resources") or []

    async def create(
        self, api_version: str, plural: str, document: Mapping[str, Any], namespace: str = ""
    ) -> Json:
        """Create an object and return it as stored.

        Raises:
            ClusterError: no answer, or a refusal, such as status 409 for an object that exists.
        """
        return await self._send("POST", _path(api_version, plural, namespace), document)

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
        await self._client.aclose()

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
        found: list[Json] = []
        params = {"limit": str(_PAGE)}
        while True:
            page = await self._send("GET", path, params=params)
            found += page.get("items") or ()
            if not (follow := (page.get("metadata") or {}).get("continue")):
                return found
            params["continue"] = follow

    async def _find(self, path: str) -> Json | None:
        try:
            return await self._send("GET", path)
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    async def _send(
        self, method: str, path: str, document: object = None, params: Mapping[str, str] | None = None
    ) -> Json:
        import httpx2

        if not {".", ".."}.isdisjoint(path.split("/")):
            # A client resolves them: names in an object could lead to any other path.
            raise ClusterError(f"{method} {self._access.server}{path}: no object has this name", _NOT_FOUND)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token := self._fresh_token():
            headers["Authorization"] = f"Bearer {token}"
        name = self._access.server_name
        try:
            answer = await self._client.request(
                method,
                path,
                params=params,
                headers=headers,
                content=None if document is None else orjson.dumps(document),
                extensions={"sni_hostname": name} if name else {},
            )
        except (httpx2.HTTPError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ClusterError(f"{method} {self._access.server}{path}: no answer: {reason}") from error
        found = _json(answer)
        if answer.is_success:
            return found
        message = found.get("message") or answer.reason_phrase
        raise ClusterError(
            f"{method} {self._access.server}{path}: {answer.status_code}: {message}", answer.status_code
        )

    def _fresh_token(self) -> str:
        file = self._access.token_file
        if file is not None and time.monotonic() - self._token_read_at >= _READ_TOKEN_EVERY_S:
            self._token = _text(file).strip()
            self._token_read_at = time.monotonic()
        return self._token


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
        import httpx2  # noqa: F401

        kubeconfig = os.environ.get("KUBECONFIG", "")
        return _of_kubeconfig(Path(kubeconfig)) if kubeconfig else _of_pod()
    except ImportError as error:
        raise ClusterError(
            f"{error.name} is not installed: pip install admission-gateway-worker[policies]"
        ) from error


def _of_pod() -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ClusterError("KUBECONFIG is not set, and this is not a pod: KUBERNETES_SERVICE_HOST is not set")
    token = SERVICE_ACCOUNT / "token"
    if not token.is_file():
        raise ClusterError(f"there is no {token}: is automountServiceAccountToken false for the pod?")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
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
    try:
        context = ssl.create_default_context(cadata=ca or None)
        # As in Go, any certificate among the roots is trusted, also an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate:
            with tempfile.TemporaryDirectory(prefix="admission-gateway-") as folder:
                pair = Path(folder, "pair.pem")  # OpenSSL reads it from a file only
                pair.write_text(f"{key}\n{certificate}")
                context.load_cert_chain(pair, password="")
        return context
    except ssl.SSLError as error:
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


def _json(answer: httpx2.Response) -> Json:
    try:
        found = orjson.loads(answer.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

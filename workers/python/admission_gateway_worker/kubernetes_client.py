"""A client for the Kubernetes API: objects and lists as JSON. The gateway and the policies that read use it.

It is httpx2 with bounds in time. The libraries for Kubernetes in Python were measured: they take 0.1 to 0.5 s
of CPU and 12 to 53 MiB to import, and none has a watch that requests bookmarks and detects a dead connection.

It needs the extra ``policies`` of the distribution.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, Status; k8s.io/client-go rest/config.go
(InClusterConfig).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import httpx2
import orjson

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping

Json = dict[str, Any]

REQUEST_TIMEOUT_S: Final = 10.0
"""The time for each step of a request: connecting, writing, reading."""
EXCHANGE_TIMEOUT_S: Final = 30.0
"""The time for a whole request with its answer, including what makes its credentials."""
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NOT_FOUND: Final = 404


class Client:
    """A client for one API server. Its user makes the errors that its methods raise."""

    FAILURES: ClassVar[tuple[type[Exception], ...]] = (
        *(httpx2.HTTPError, httpx2.InvalidURL),
        *(OSError, ValueError),
    )
    """The exceptions of a request that become errors of the user."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext,
        auth: httpx2.Auth | Callable[[httpx2.Request], httpx2.Request] | None,
        failure: Callable[[str, str, str, int, Json | None], Exception],
        *,
        server_name: str = "",
        proxy_url: str = "",
        uses_environment: bool = False,
    ) -> None:
        """*auth* adds credentials to a request; with None they are those in the URL *server*, if any.

        *failure* returns the error to raise, for method, path, reason, and status and details of a refusal.
        The details are None if there was no answer (the status is 0), or one that is not JSON.

        *server_name* is the name in the server's certificate, by default that of the URL. Proxies are those
        of the environment if *uses_environment* and there is no *proxy_url*.

        Raises:
            httpx2.InvalidURL, ValueError: the server or the proxy is not a URL.
            ImportError: the proxy is of a kind that needs another package.
        """
        self._failure = failure
        self._client = httpx2.AsyncClient(
            base_url=server,
            auth=auth,
            verify=tls,
            proxy=proxy_url or None,
            timeout=REQUEST_TIMEOUT_S,
            trust_env=uses_environment,
        )
        # httpx2 adds to it, so each request gets a copy.
        self._extensions = {"sni_hostname": server_name} if server_name else {}
        # For messages: without a password that a kubeconfig may have put into it.
        self.url = str(self._client.base_url.copy_with(userinfo=b"")).rstrip("/")

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Return the object at *path*, or fail: there is none, it is refused, or there is no answer."""
        return (await self._exchange("GET", path, params=params or {}))[1]

    async def find(self, path: str) -> Json | None:
        """Return the object at *path*, None if there is none; otherwise as :meth:`get`."""
        if _leads_elsewhere(path):
            return None
        response = await self._send("GET", path, allows_refusal=True)
        if response.status_code == NOT_FOUND:
            return None
        if not response.is_success:
            raise self._refusal("GET", path, response.status_code, response.content)
        return self._object(response, "GET", path)

    async def pages(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Json]:
        """Yield the parts of the list at *path*; *params* has their ``limit``. Fails as :meth:`get`."""
        following: dict[str, str] = {}
        while True:
            page = await self.get(path, {**params, **following})
            yield page
            metadata = page.get("metadata")
            if not isinstance(metadata, dict) or not metadata.get("continue"):
                return
            following = {"continue": str(metadata["continue"])}

    async def write(self, method: str, path: str, document: Mapping[str, object]) -> Json:
        """Return the answer to *document*, sent with POST, PUT or DELETE; fails as :meth:`get`."""
        headers = {"Content-Type": "application/json"}
        return (await self._exchange(method, path, content=orjson.dumps(document), headers=headers))[1]

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _exchange(self, method: str, path: str, **members: Any) -> tuple[int, Json]:  # noqa: ANN401
        response = await self._send(method, path, **members)
        return response.status_code, self._object(response, method, path)

    def _object(self, response: httpx2.Response, method: str, path: str) -> Json:
        try:
            answer = orjson.loads(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            reason = f"the answer for {path} is not an object"
            raise self._failure(method, path, reason, response.status_code, None)
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        stream: bool = False,
        allows_refusal: bool = False,
        **members: Any,  # noqa: ANN401
    ) -> httpx2.Response:
        """Return a successful response, or any with *allows_refusal*.

        Its content has been read unless it is a *stream*.
        """
        if _leads_elsewhere(path):
            raise self._failure(method, path, "no object has this name", NOT_FOUND, {})
        try:
            async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                extensions = dict(self._extensions)
                request = self._client.build_request(method, path, extensions=extensions, **members)
                response = await self._client.send(request, stream=stream)
                if response.is_success or allows_refusal:
                    return response
                try:
                    content = await response.aread()
                finally:
                    await response.aclose()
        except self.FAILURES as error:
            raise self._failure(method, path, reason_of(error), 0, None) from error
        raise self._refusal(method, path, response.status_code, content)

    def _refusal(self, method: str, path: str, code: int, content: bytes) -> Exception:
        try:
            status = orjson.loads(content)
        except ValueError:
            status = {"message": content[:200].decode(errors="replace").strip()}
        return self._failure(method, path, *parts_of_status(status, code))


def _leads_elsewhere(path: str) -> bool:
    """Return whether the client would resolve parts of *path*: names in an object could lead to any other."""
    return not {".", ".."}.isdisjoint(path.split("/"))


def parts_of_status(status: object, code: int) -> tuple[str, int, Json]:
    """Return message, code and details of a ``Status`` object; its code is *code* if it has none."""
    members: Json = status if isinstance(status, dict) else {}
    found, details = members.get("code"), members.get("details")
    message = members.get("message") or members.get("reason") or "no explanation"
    number = found if isinstance(found, int) else code
    return message, number, details if isinstance(details, dict) else {}


def reason_of(error: BaseException) -> str:
    """Return why a request failed, in one line; for httpx2's exceptions it is often in their causes.

    The text may have a URL with a password.
    """
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return "no answer in time"
    if isinstance(error, httpx2.LocalProtocolError):
        # Its text quotes the invalid header field, which may be the one with the token.
        return "the request cannot be sent: a header field, such as the token, has an invalid character"
    deepest: BaseException | None = error
    while deepest is not None:
        if isinstance(deepest, ConnectionRefusedError) and deepest.errno:
            # The text of asyncio is "Connect call failed" and a tuple.
            return os.strerror(deepest.errno)
        if isinstance(deepest, OSError) and deepest.strerror:
            return deepest.strerror
        deepest = deepest.__cause__ or deepest.__context__
    return " ".join(str(error).split()) or type(error).__name__


def server_of_pod() -> str:
    """Return the URL of the API server of the pod that this runs in.

    Raises:
        LookupError: this is not a pod; the text is the name of the variable that is not set.
    """
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not os.environ.get(name):
            raise LookupError(name)
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

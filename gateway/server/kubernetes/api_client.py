"""A client for the Kubernetes API: objects, lists and watches as JSON. Its errors are one-line ClusterErrors.

It is httpx2 with the gateway's own credentials. The libraries for Kubernetes in Python were measured: they
take 0.1 to 0.5 s of CPU and 12 to 53 MiB to import, and none has a watch that requests bookmarks and
detects a dead connection.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, Status.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import httpcore2
import httpx2
import orjson

from gateway.base.errors import ClusterError
from gateway.base.text import url_without_secrets, without_url_secrets
from gateway.config.kinds.kubeconfig import KubeconfigUser
from gateway.engine.credentials.exec_plugin import CredentialsError
from gateway.engine.credentials.user_credentials import UserCredentials

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from gateway.config.kinds.kubeconfig import Kubeconfig

Json = dict[str, Any]

REQUEST_TIMEOUT_S: Final = 10.0
"""For each step of a request: connecting, writing, reading."""
EXCHANGE_TIMEOUT_S: Final = 30.0
"""For a whole request with its answer, including an exec plug-in that makes credentials."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Of a watch: ten times the largest object that etcd takes."""

_SWITCHING_PROTOCOLS, _UNAUTHORIZED, _NOT_FOUND = 101, 401, 404
_FAILURES: Final = (httpx2.HTTPError, httpx2.InvalidURL, CredentialsError, OSError, ValueError)


class _UserAuth(httpx2.Auth):
    """Adds the headers of *credentials*, and repeats a request once with new ones if they are rejected."""

    def __init__(self, credentials: UserCredentials) -> None:
        self._credentials = credentials

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        headers = await self._add_headers(request)
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            self._credentials.reject(headers)
            if await self._add_headers(request) != headers:
                yield request

    async def _add_headers(self, request: httpx2.Request) -> list[tuple[str, str]]:
        headers, context = await self._credentials.get()
        names = {name.lower() for name, _ in headers}
        if context is not self._credentials.context and "authorization" not in names:
            raise CredentialsError("exec: the program prints a certificate and no token, as API servers need")
        others = [field for field in request.headers.raw if field[0].decode().lower() not in names]
        added = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        request.headers = httpx2.Headers([*others, *added])
        return headers


class ByteStream(Protocol):
    """A connection that has another protocol now."""

    async def read(self, max_bytes: int) -> bytes:
        """Return what has come; empty at the end."""

    async def write(self, buffer: bytes) -> None:
        """Write all of *buffer*."""


class ApiClient:
    """A client for the API server of a kubeconfig's context."""

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        """Raises:
        CredentialsError, httpx2.InvalidURL, ValueError, ImportError: the kubeconfig cannot be used.
        """
        cluster, user = kubeconfig.cluster, kubeconfig.user
        self._credentials = UserCredentials(
            user, url_without_secrets(cluster.server), cluster.ca_pem, is_insecure=cluster.is_insecure
        )
        self._client = httpx2.AsyncClient(
            base_url=cluster.server,
            # Without a user httpx2 sends the user and password in the URL, if any.
            auth=None if user == KubeconfigUser() else _UserAuth(self._credentials),
            verify=self._credentials.context,
            proxy=cluster.proxy_url or None,
            timeout=REQUEST_TIMEOUT_S,
        )
        # httpx2 adds to it, so each request gets a copy.
        self._extensions = {"sni_hostname": cluster.server_name} if cluster.server_name else {}
        # For messages: without a password that a kubeconfig may have put into it.
        self.url = url_without_secrets(self._client.base_url.copy_with(userinfo=b"")).rstrip("/")

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Return the object at *path*.

        Raises:
            ClusterError: there is none, or no answer.
        """
        return (await self._exchange("GET", path, params=params or {}))[1]

    async def find(self, path: str) -> Json | None:
        """Return the object at *path*; None if there is none.

        Raises:
            ClusterError: the API server refuses it, or gives no answer.
        """
        try:
            return await self.get(path)
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    async def patch(
        self, path: str, params: Mapping[str, str], body: bytes, media_type: str
    ) -> tuple[int, Json]:
        """Return status and object after a PATCH of *path*.

        Raises:
            ClusterError: it was refused, or there was no answer.
        """
        headers = {"Content-Type": media_type}
        return await self._exchange("PATCH", path, params=params, content=body, headers=headers)

    async def write(self, method: str, path: str, document: Mapping[str, object]) -> Json:
        """Return the answer to *document*, sent to *path* with POST, PUT or DELETE.

        Raises:
            ClusterError: it was refused, with its status, or there was no answer.
        """
        headers = {"Content-Type": "application/json"}
        return (await self._exchange(method, path, content=orjson.dumps(document), headers=headers))[1]

    @asynccontextmanager
    async def lines(
        self, path: str, params: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the answer of *path* as a stream of lines; an incomplete last line is dropped.

        Raises:
            ClusterError: here, or while the lines are read: the API server refused, the connection broke, or
                nothing was received for *silence_s* seconds.
        """
        timeout = httpx2.Timeout(self._client.timeout.connect, read=silence_s)
        response = await self._send("GET", path, params=params, timeout=timeout, stream=True)
        try:
            yield self._split(response)
        finally:
            await response.aclose()

    async def proxied(self, path: str, params: Mapping[str, str], max_bytes: int) -> tuple[int, bytes]:
        """Return status and body of the answer for *path*, which may be one of a server behind a proxy.

        Raises:
            ClusterError: the API server itself refused, there was no answer, or one of more than *max_bytes*.
        """
        response = await self._send("GET", path, params=params, stream=True, allows_refusal=True)
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > max_bytes:
                    raise ClusterError(f"{self.url}: an answer of more than {max_bytes} bytes")
        except httpx2.HTTPError as error:
            raise ClusterError(f"{self.url}: {_reason(error)}") from error
        finally:
            await response.aclose()
        if not response.is_success and b'"Status"' in body:
            raise _refusal(response.status_code, bytes(body))
        return response.status_code, bytes(body)

    @asynccontextmanager
    async def upgraded(
        self, path: str, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator[ByteStream]:
        """Have the connection of a GET of *path* switched to another protocol, as *headers* ask for.

        Raises:
            ClusterError: here, or by what the block does with the stream: the API server refused, or the
                connection broke.
        """
        response = await self._send(
            "GET", path, params=params, headers=headers, stream=True, allows_refusal=True
        )
        try:
            if response.status_code != _SWITCHING_PROTOCOLS:
                raise _refusal(response.status_code, await response.aread())
            yield response.extensions["network_stream"]
        except (httpx2.HTTPError, httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            raise ClusterError(f"{self.url}: {_reason(error)}") from error
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close all connections, and kill an exec plug-in that is running."""
        await self._credentials.close()
        await self._client.aclose()

    async def _exchange(self, method: str, path: str, **members: Any) -> tuple[int, Json]:  # noqa: ANN401
        response = await self._send(method, path, **members)
        try:
            answer = orjson.loads(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ClusterError(f"{self.url}: the answer for {path} is not an object")
        return response.status_code, answer

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
        try:
            async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                extensions = dict(self._extensions)
                request = self._client.build_request(method, path, extensions=extensions, **members)
                response = await self._client.send(request, stream=stream)
                if response.is_success or allows_refusal:
                    return response
                try:
                    raise _refusal(response.status_code, await response.aread())
                finally:
                    await response.aclose()
        except _FAILURES as error:
            raise ClusterError(f"{self.url}: {_reason(error)}") from error

    async def _split(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        # Not httpx2's aiter_lines, which also splits at Unicode line separators.
        rest = b""
        try:
            async for chunk in response.aiter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
                if len(rest) > MAX_LINE_BYTES:
                    raise ClusterError(f"{self.url}: a line has more than {MAX_LINE_BYTES} bytes")
        except httpx2.HTTPError as error:
            raise ClusterError(f"{self.url}: {_reason(error)}") from error


class ApiStatusError(ClusterError):
    """An error answer of the API server; ``details`` are those of its Status."""

    def __init__(self, message: str, status: int, details: Json) -> None:
        super().__init__(message, status)
        self.details = details


def status_error(status: object, code: int) -> ApiStatusError:
    """Return the error in a ``Status`` object; *code* is used if it has none."""
    members: Json = status if isinstance(status, dict) else {}
    found, details = members.get("code"), members.get("details")
    number = found if isinstance(found, int) else code
    message = members.get("message") or members.get("reason") or "no explanation"
    return ApiStatusError(
        f"the API server answers {number}: {message}", number, details if isinstance(details, dict) else {}
    )


def _refusal(code: int, content: bytes) -> ApiStatusError:
    try:
        return status_error(orjson.loads(content), code)
    except ValueError:
        return status_error({"message": content[:200].decode(errors="replace").strip()}, code)


def _reason(error: BaseException) -> str:
    """Return the reason in one line; for httpx2's exceptions it is often in their causes."""
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return "no answer in time"
    if isinstance(error, httpx2.LocalProtocolError):
        # Its text quotes the invalid header field, which may be the one with the token.
        return "the request cannot be sent: a header field, such as the token, has an invalid character"
    deepest: BaseException | None = error
    while deepest is not None:
        if isinstance(deepest, OSError) and deepest.strerror:
            return deepest.strerror
        deepest = deepest.__cause__ or deepest.__context__
    return without_url_secrets(" ".join(str(error).split())) or type(error).__name__

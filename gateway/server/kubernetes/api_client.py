"""The gateway's client for the Kubernetes API: watches, and connections to pods through the API server.

Its errors are one-line ClusterErrors.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

import httpcore2
import httpx2
import orjson

from admission_gateway_worker.kubernetes_client import Client, Json, parts_of_status, reason_of
from gateway.base.errors import ClusterError
from gateway.base.json_depth import without_depth
from gateway.base.text import url_without_secrets, without_url_secrets
from gateway.config.kinds.kubeconfig import KubeconfigUser
from gateway.engine.credentials.exec_plugin import CredentialsError
from gateway.engine.credentials.user_credentials import UserCredentials

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from gateway.config.kinds.kubeconfig import Kubeconfig

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The size of a line of a watch: ten times the largest object that etcd takes."""

_SWITCHING_PROTOCOLS, _UNAUTHORIZED = 101, 401


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


class ApiClient(Client):
    """A client for the API server of a kubeconfig's context. What fails raises a ClusterError."""

    FAILURES = (*Client.FAILURES, CredentialsError)

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        """Raises:
        CredentialsError, httpx2.InvalidURL, ValueError, ImportError: the kubeconfig cannot be used.
        """
        cluster, user = kubeconfig.cluster, kubeconfig.user
        self._credentials = UserCredentials(
            user, url_without_secrets(cluster.server), cluster.ca_pem, is_insecure=cluster.is_insecure
        )
        super().__init__(
            cluster.server,
            self._credentials.context,
            # Without a user httpx2 sends the user and password in the URL, if any.
            None if user == KubeconfigUser() else _UserAuth(self._credentials),
            self._error,
            server_name=cluster.server_name,
            proxy_url=cluster.proxy_url,
            uses_environment=True,
        )
        self.url = url_without_secrets(self.url)

    def _error(
        self, _method: str, _path: str, reason: str, status: int, details: Json | None
    ) -> ClusterError:
        if details is None:
            return self._broken(reason)
        return ApiStatusError(reason, status, details)

    def _broken(self, reason: str) -> ClusterError:
        return ClusterError(f"{self.url}: {without_url_secrets(reason)}")

    def _object(self, response: httpx2.Response, method: str, path: str) -> Json:
        try:
            return super()._object(response, method, path)
        except ClusterError:
            # One object of a list may nest deeper than is read.
            try:
                answer = orjson.loads(without_depth(response.content))
            except ValueError:
                answer = None
            if not isinstance(answer, dict):
                raise
            return answer

    async def get_as(self, path: str, media_type: str) -> Json:
        """Return the object at *path* in the form *media_type*.

        Raises:
            ClusterError: it was refused, or there was no answer.
        """
        return (await self._exchange("GET", path, headers={"Accept": media_type}))[1]

    async def patch(
        self, path: str, params: Mapping[str, str], body: bytes, media_type: str
    ) -> tuple[int, Json]:
        """Return status and object after a PATCH of *path*.

        Raises:
            ClusterError: it was refused, or there was no answer.
        """
        headers = {"Content-Type": media_type}
        return await self._exchange("PATCH", path, params=params, content=body, headers=headers)

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
        response, body = await self._bounded(path, params, max_bytes)
        if not response.is_success and b'"Status"' in body:
            raise self._refusal("GET", path, response.status_code, body)
        return response.status_code, body

    async def page(self, path: str, params: Mapping[str, str], max_bytes: int) -> Json:
        """Return one page of the list at *path*.

        Raises:
            TooLargeError: it has more than *max_bytes*.
            ClusterError: it was refused, or there was no answer. An ``ApiStatusError`` has how to go on.
        """
        response, body = await self._bounded(path, params, max_bytes)
        if not response.is_success:
            refusal = self._refusal("GET", path, response.status_code, body)
            if isinstance(refusal, ApiStatusError):
                refusal.following = _continue_of(body)
                seconds = response.headers.get("retry-after", "")
                refusal.retry_after_s = float(seconds[:6]) if seconds.isdecimal() else 0.0
            raise refusal
        try:
            answer = orjson.loads(body)
        except ValueError:
            try:
                # One object of a list may nest deeper than is read.
                answer = orjson.loads(without_depth(body))
            except ValueError:
                answer = None
        if not isinstance(answer, dict):
            raise self._broken(f"the answer for {path} is not an object")
        return answer

    async def _bounded(
        self, path: str, params: Mapping[str, str], max_bytes: int
    ) -> tuple[httpx2.Response, bytes]:
        """Return the answer for *path*, whatever its status, and its body of at most *max_bytes*."""
        response = await self._send("GET", path, params=params, stream=True, allows_refusal=True)
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > max_bytes:
                    raise TooLargeError(f"{self.url}: an answer of more than {max_bytes} bytes")
        except httpx2.HTTPError as error:
            raise self._broken(reason_of(error)) from error
        finally:
            await response.aclose()
        return response, bytes(body)

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
                raise self._refusal("GET", path, response.status_code, await response.aread())
            yield response.extensions["network_stream"]
        except (httpx2.HTTPError, httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            raise self._broken(reason_of(error)) from error
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close all connections, and kill an exec plug-in that is running."""
        await self._credentials.close()
        await super().close()

    async def _split(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        # Not httpx2's aiter_lines, which also splits at Unicode line separators.
        rest = b""
        try:
            async for chunk in response.aiter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
                if len(rest) > MAX_LINE_BYTES:
                    raise self._broken(f"a line has more than {MAX_LINE_BYTES} bytes")
        except httpx2.HTTPError as error:
            raise self._broken(reason_of(error)) from error


class TooLargeError(ClusterError):
    """An answer has more bytes than are read."""


class ApiStatusError(ClusterError):
    """An error answer of the API server; ``details`` are those of its Status."""

    def __init__(self, message: str, status: int, details: Json) -> None:
        super().__init__(f"the API server answers {status}: {message}", status)
        self.details = details
        self.following = ""
        """Of a list whose version is gone (410): the ``continue`` for its rest in a later version."""
        self.retry_after_s = 0.0
        """Seconds until a repeated request may succeed. 0 if the answer does not say."""


def _continue_of(body: bytes) -> str:
    """Return the ``continue`` of a Status."""
    try:
        status = orjson.loads(body)
    except ValueError:
        return ""
    metadata = status.get("metadata") if isinstance(status, dict) else None
    return str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""


def status_error(status: object, code: int) -> ApiStatusError:
    """Return the error in a ``Status`` object; *code* is used if it has none."""
    return ApiStatusError(*parts_of_status(status, code))

"""Requests to the API server. What goes wrong with one is a ClusterError of one line.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, Status.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx2
import orjson
from lightkube.core.exceptions import ConfigError as LightkubeError

from gateway.errors import ClusterError
from gateway.text import url_without_secrets, without_url_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

Json = dict[str, Any]

EXCHANGE_WITHIN_S: Final = 30.0
"""From the first step to the end of the answer; a plugin that makes credentials may be among the steps."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Of a watch: ten times the largest object that etcd takes."""

# With what lightkube raises, in the middle of a request, about a token file or a plugin.
_FAILURES: Final = (httpx2.HTTPError, httpx2.InvalidURL, LightkubeError, OSError, ValueError, KeyError)


class ApiClient:
    """One API server, over one client, with extensions that httpx2 is to see in each request."""

    def __init__(
        self, client: httpx2.AsyncClient, extensions: Mapping[str, object], namespace: str = "default"
    ) -> None:
        self._client = client
        self._extensions = dict(extensions)
        self.namespace = namespace
        """The gateway's own: its service account's, or the kubeconfig's context's."""
        # For messages: without a credential that a kubeconfig may have put into it.
        self.url = url_without_secrets(client.base_url.copy_with(userinfo=b"")).rstrip("/")

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Return the object at *path*.

        Raises:
            ClusterError: there is none, with its status, or no answer.
        """
        return (await self._exchange("GET", path, params=params or {}))[1]

    async def patch(
        self, path: str, params: Mapping[str, str], body: bytes, media_type: str
    ) -> tuple[int, Json]:
        """Return status and object after a PATCH of *path*.

        Raises:
            ClusterError: it was refused, or there was no answer.
        """
        headers = {"Content-Type": media_type}
        return await self._exchange("PATCH", path, params=params, content=body, headers=headers)

    async def post(self, path: str, body: bytes) -> Json:
        """Return what the API server makes of *body*, the JSON of an object, at *path*.

        Raises:
            ClusterError: it was refused, or there was no answer.
        """
        headers = {"Content-Type": "application/json"}
        return (await self._exchange("POST", path, content=body, headers=headers))[1]

    async def write(self, method: str, path: str, document: Mapping[str, object]) -> Json:
        """Return the object after a POST or PUT of *document* to *path*.

        Raises:
            ClusterError: it was refused, with its status, or there was no answer.
        """
        headers = {"Content-Type": "application/json"}
        return (await self._exchange(method, path, content=orjson.dumps(document), headers=headers))[1]

    @asynccontextmanager
    async def lines(
        self, path: str, params: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the lines that *path* answers, which may come over minutes. The last one, if cut off, is none.

        Raises:
            ClusterError: here, or while the lines are read: it is refused, the connection broke, or there was
                nothing to read for *silence_s* seconds.
        """
        timeout = httpx2.Timeout(self._client.timeout.connect, read=silence_s)
        response = await self._send("GET", path, params=params, timeout=timeout, stream=True)
        try:
            yield self._split(response)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _exchange(self, method: str, path: str, **members: Any) -> tuple[int, Json]:  # noqa: ANN401
        response = await self._send(method, path, **members)
        try:
            answer = orjson.loads(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ClusterError(f"{self.url} answers {path} with something that is no object")
        return response.status_code, answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        stream: bool = False,
        **members: Any,  # noqa: ANN401
    ) -> httpx2.Response:
        """Return a response that is no refusal; its content is there unless it is a *stream*."""
        try:
            async with asyncio.timeout(EXCHANGE_WITHIN_S):
                # Copied, since httpx2 adds to it.
                extensions = dict(self._extensions)
                request = self._client.build_request(method, path, extensions=extensions, **members)
                response = await self._client.send(request, stream=stream)
                if response.is_success:
                    return response
                try:
                    raise _refusal(response.status_code, await response.aread())
                finally:
                    await response.aclose()
        except _FAILURES as error:
            raise ClusterError(f"{self.url}: {_reason(error)}") from error

    async def _split(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        # Not httpx2's own lines: they end at every character that Unicode calls a line's end.
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
    """An answer of the API server with a status that says no; ``details`` are those of its Status."""

    def __init__(self, message: str, status: int, details: Json) -> None:
        super().__init__(message, status)
        self.details = details


def status_error(status: object, code: int) -> ApiStatusError:
    """Return what a ``Status`` object says, as an error; *code* counts where it has none."""
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
    """Return why a request failed in one line; the exceptions of httpx2 often leave it to their causes."""
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return "no answer in time"
    if isinstance(error, httpx2.LocalProtocolError):
        # It quotes the header field that it objects to, which is the one with the token.
        return "the request cannot be sent: has the token a character that no header field may have?"
    deepest: BaseException | None = error
    while deepest is not None:
        if isinstance(deepest, OSError) and deepest.strerror:
            return deepest.strerror
        deepest = deepest.__cause__ or deepest.__context__
    return without_url_secrets(" ".join(str(error).split())) or type(error).__name__

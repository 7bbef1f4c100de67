"""HTTP to a port on a pod's loopback, through the API server: what ``kubectl port-forward`` reaches.

The API server passes the connection on to the kubelet, and that to the container runtime, which connects
inside the pod. It is a WebSocket with a binary message for each piece of data: a byte for the channel (0:
data, 1: errors), then the data. The first message of each channel is the port.

Source: RFC 6455 sections 4.1 and 5; k8s.io/cri-streaming pkg/streaming/portforward/websocket.go.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import secrets
import struct
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable
from gateway.base.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.server.kubernetes.api_client import ApiClient, ByteStream

TIMEOUT_S: Final = 10.0
_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERRORS = 0, 1
_PORT_BYTES: Final = 2
_READ_BYTES: Final = 64 * 1024
_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x2, 0x8, 0x9, 0xA
_FIN, _MASKED = 0x80, 0x80
_LENGTH_16, _LENGTH_64 = 126, 127


async def fetch(
    api: ApiClient,
    pod: str,
    port: int,
    target: str,
    max_bytes: int,
    authorization: str = "",
    *,
    body: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> tuple[int, bytes]:
    """Return status and body of the answer to a GET of *target* at *port* of the pod with the path *pod*.

    With a *body*, YAML or JSON, it is a POST. *authorization* is the value of that header for the port. If it
    is empty, none is sent. *timeout_s* is for all of it, in seconds.

    Raises:
        ClusterError: the API server refused, there was no answer in time, or one of more than *max_bytes*.
    """
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "Sec-WebSocket-Protocol": _PROTOCOL,
    }
    method = "POST" if body else "GET"
    lines = [f"{method} {target} HTTP/1.1", f"Host: localhost:{port}", "Connection: close"]
    lines += [f"Authorization: {authorization}"] if authorization else []
    lines += [f"Content-Length: {len(body)}", "Content-Type: application/yaml"] if body else []
    request = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
    try:
        async with (
            asyncio.timeout(timeout_s),
            api.upgraded(f"{pod}/portforward", {"ports": str(port)}, headers) as stream,
        ):
            for start in range(0, len(request), _READ_BYTES):
                part = request[start : start + _READ_BYTES]
                await stream.write(frame(_BINARY, bytes([_DATA]) + part))
            answer = await _answer(stream, max_bytes)
    except TimeoutError:
        raise ClusterError(f"port {port}: no answer in time") from None
    return _parsed(answer, port)


async def _answer(stream: ByteStream, max_bytes: int) -> bytes:
    """Return all data that comes until the other side closes."""
    data, errors = bytearray(), bytearray()
    async for opcode, payload in messages(stream, max_bytes):
        if opcode == _PING:
            await stream.write(frame(_PONG, payload))
        elif opcode == _CLOSE:
            break
        elif opcode == _BINARY and payload:
            (errors if payload[0] == _ERRORS else data).extend(payload[1:])
        if len(data) + len(errors) > max_bytes:
            raise ClusterError(f"an answer of more than {max_bytes} bytes")
    if len(errors) > _PORT_BYTES:
        raise ClusterError(printable(errors[_PORT_BYTES:].decode(errors="replace"), 200))
    return bytes(data[_PORT_BYTES:])


def _parsed(answer: bytes, port: int) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(_Received(answer))  # type: ignore[arg-type] # it is only read
    try:
        response.begin()
        return response.status, response.read()
    except (http.client.HTTPException, ValueError, OSError):
        raise ClusterError(f"port {port}: the answer is not complete, or not HTTP") from None


class _Received(io.BytesIO):
    """What was received, as ``http.client`` reads a socket."""

    def makefile(self, _: str) -> _Received:
        return self


def frame(opcode: int, payload: bytes) -> bytes:
    """Return the frame of a client with the whole message *payload*."""
    length = len(payload)
    if length < _LENGTH_16:
        head = struct.pack("!BB", _FIN | opcode, _MASKED | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", _FIN | opcode, _MASKED | _LENGTH_16, length)
    else:
        head = struct.pack("!BBQ", _FIN | opcode, _MASKED | _LENGTH_64, length)
    mask = secrets.token_bytes(4)
    whole = (mask * (length // 4 + 1))[:length]
    masked = (int.from_bytes(payload) ^ int.from_bytes(whole)).to_bytes(length)
    return head + mask + masked


async def messages(stream: ByteStream, max_bytes: int) -> AsyncIterator[tuple[int, bytes]]:
    """Yield opcode and payload of each message of a server, until the end of the stream.

    Raises:
        ClusterError: a message has more than *max_bytes* bytes, or is masked, which no server may do.
    """
    buffer, message, kind = bytearray(), bytearray(), _BINARY

    async def take(count: int) -> bytes | None:
        while len(buffer) < count:
            received = await stream.read(_READ_BYTES)
            if not received:
                return None
            buffer.extend(received)
        taken = bytes(buffer[:count])
        del buffer[:count]
        return taken

    while (head := await take(2)) is not None:
        opcode, length = head[0] & 0x0F, head[1]
        if length in (_LENGTH_16, _LENGTH_64):
            more = await take(2 if length == _LENGTH_16 else 8)
            if more is None:
                return
            length = int.from_bytes(more)
        elif length & _MASKED:
            raise ClusterError("the API server masks its WebSocket frames, which no server may do")
        if length + len(message) > max_bytes:
            raise ClusterError(f"a message of more than {max_bytes} bytes")
        payload = await take(length)
        if payload is None:
            return
        if opcode >= _CLOSE:
            yield opcode, payload
            continue
        kind = opcode if opcode != _CONTINUATION else kind
        message += payload
        if head[0] & _FIN:
            yield kind, bytes(message)
            message.clear()

"""The part of a kubelet's API that forwards ports: to API servers by SPDY/3.1, and by WebSocket.

``kubectl port-forward`` needs the first, ``admission-gateway status --cluster`` the second.

Source: k8s.io/cri-streaming pkg/streaming/portforward (httpstream.go, websocket.go); SPDY Protocol Draft 3.1;
RFC 6455.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler
    from io import BufferedIOBase

    Connect = Callable[[int], socket.socket]
    """Connects to a port of the Pod's loopback."""

READ_BYTES: Final = 16 * 1024
_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges "
    "age allow authorization cache-control connection content-base content-encoding content-language "
    "content-length content-location content-md5 content-range content-type date etag expect expires from "
    "host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location "
    "max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status 200_OK version "
    "HTTP/1.1 url public set-cookie keep-alive origin"
)
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 "
    "Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 "
    "Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar "
    "Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,"
    "image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(struct.pack("!I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split())
    + _REST.encode()
)
"""Of the compression of headers: SPDY Protocol Draft 3.1, section 2.6.10.1."""
_SYN_STREAM, _SYN_REPLY, _PING, _FIN = 1, 2, 6, 1


def forward(handler: BaseHTTPRequestHandler, ports: list[int], connect: Connect) -> None:
    """Serve the forwarded *ports*, those of the query, until the client of *handler* ends the connection."""
    handler.close_connection = True
    protocol = handler.headers.get("Upgrade", "")
    handler.send_response(101)
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Upgrade", protocol)
    if protocol.lower() == "websocket":
        key = handler.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key).digest()).decode()
        handler.send_header("Sec-WebSocket-Accept", accept)
        handler.send_header("Sec-WebSocket-Protocol", handler.headers["Sec-WebSocket-Protocol"])
    else:
        handler.send_header("X-Stream-Protocol-Version", "portforward.k8s.io")
    handler.end_headers()
    handler.wfile.flush()
    with contextlib.suppress(OSError, struct.error):
        if protocol.lower() == "websocket":
            _serve_websocket(handler.rfile, handler.wfile, ports[0], connect)
        else:
            _Spdy(handler.rfile, handler.wfile, connect).run()


def _serve_websocket(reader: BufferedIOBase, writer: BufferedIOBase, port: int, connect: Connect) -> None:
    def send(opcode: int, payload: bytes) -> None:
        length = len(payload)
        head = bytes([length]) if length < 126 else struct.pack("!BH", 126, length)
        writer.write(bytes([0x80 | opcode]) + head + payload)
        writer.flush()

    for channel in (0, 1):
        send(2, bytes([channel]) + struct.pack("<H", port))
    try:
        pod = connect(port)
    except OSError as error:
        send(2, b"\x01" + f"error forwarding port {port}: {error}".encode())
        send(8, b"")
        return

    def receive() -> None:
        with contextlib.suppress(OSError):
            while data := pod.recv(READ_BYTES):
                send(2, b"\x00" + data)
            send(8, b"")

    threading.Thread(target=receive, daemon=True).start()
    with pod:
        while head := reader.read(2):
            length = head[1] & 0x7F
            if length >= 126:
                length = int.from_bytes(reader.read(2 if length == 126 else 8))
            mask = reader.read(4)
            payload = bytes(byte ^ mask[index & 3] for index, byte in enumerate(reader.read(length)))
            if head[0] & 0x0F == 8:
                return
            pod.sendall(payload[1:])


class _Spdy:
    """One connection: a pair of streams, of data and of errors, for each connection to the Pod."""

    def __init__(self, reader: BufferedIOBase, writer: BufferedIOBase, connect: Connect) -> None:
        self._reader, self._writer, self._connect = reader, writer, connect
        self._lock = threading.Lock()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(9, zlib.DEFLATED, 15, 8, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
        self._pods: dict[int, socket.socket] = {}
        self._error_streams: dict[str, int] = {}

    def run(self) -> None:
        """Serve until the end of the connection."""
        while head := self._reader.read(8):
            first, rest = struct.unpack("!II", head)
            flags, payload = rest >> 24, self._reader.read(rest & 0xFFFFFF)
            if not first & 0x80000000:
                self._take(first, flags, payload)
            elif first & 0xFFFF == _SYN_STREAM:
                self._open(struct.unpack("!I", payload[:4])[0], payload[10:])
            elif first & 0xFFFF == _PING:
                self._send(0x80030000 | _PING, 0, payload)

    def _send(self, first: int, flags: int, payload: bytes) -> None:
        with self._lock:
            self._writer.write(struct.pack("!II", first, flags << 24 | len(payload)) + payload)
            self._writer.flush()

    def _open(self, stream: int, compressed: bytes) -> None:
        text = self._inflate.decompress(compressed)
        texts, offset = [], 4
        for _ in range(2 * struct.unpack("!I", text[:4])[0]):
            (length,) = struct.unpack("!I", text[offset : offset + 4])
            texts.append(text[offset + 4 : offset + 4 + length].decode())
            offset += 4 + length
        headers = dict(zip(texts[::2], texts[1::2], strict=True))
        with self._lock:
            none = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._send(0x80030000 | _SYN_REPLY, 0, struct.pack("!I", stream) + none)
        request = headers.get("requestid", "")
        if headers["streamtype"] == "error":
            self._error_streams[request] = stream
            return
        error_stream = self._error_streams.pop(request)
        try:
            self._pods[stream] = self._connect(int(headers["port"]))
        except OSError as error:
            self._send(error_stream, _FIN, str(error).encode())
            self._send(stream, _FIN, b"")
            return
        threading.Thread(target=self._receive, args=(stream, error_stream), daemon=True).start()

    def _take(self, stream: int, flags: int, payload: bytes) -> None:
        pod = self._pods.get(stream)
        if pod is not None:
            with contextlib.suppress(OSError):
                pod.sendall(payload)
                if flags & _FIN:
                    pod.shutdown(1)

    def _receive(self, stream: int, error_stream: int) -> None:
        with contextlib.suppress(OSError), self._pods[stream] as pod:
            while data := pod.recv(READ_BYTES):
                self._send(stream, 0, data)
            self._send(stream, _FIN, b"")
            self._send(error_stream, _FIN, b"")

"""The part of a kubelet's API that forwards ports and runs commands, with SPDY/3.1 or a WebSocket below it.

API servers use the first for ``kubectl port-forward`` and ``kubectl exec``, ``admission-gateway status
--cluster`` the second.

Source: k8s.io/cri-streaming pkg/streaming/portforward and remotecommand; RFC 6455.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.kubelet.spdy import FIN, Spdy

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler
    from io import BufferedIOBase

    Connect = Callable[[int], socket.socket]
    """Connects to a port of the Pod's loopback."""
    Start = Callable[[], subprocess.CompletedProcess[bytes]]
    """Runs a command in a container."""

READ_BYTES: Final = 16 * 1024


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
            _Forwarding(handler.rfile, handler.wfile, connect).run()


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

    receiver = threading.Thread(target=receive, daemon=True)
    receiver.start()
    with pod:
        try:
            while head := reader.read(2):
                length = head[1] & 0x7F
                if length >= 126:
                    length = int.from_bytes(reader.read(2 if length == 126 else 8))
                mask = reader.read(4)
                payload = bytes(byte ^ mask[index & 3] for index, byte in enumerate(reader.read(length)))
                if head[0] & 0x0F == 8:
                    return
                pod.sendall(payload[1:])
        finally:
            # The handler closes *writer* when this returns. A mere close would not end what waits in recv().
            _shut_down(pod)
            receiver.join()


def _shut_down(pod: socket.socket) -> None:
    with contextlib.suppress(OSError):
        pod.shutdown(socket.SHUT_RDWR)


class _Forwarding(Spdy):
    """A pair of streams, of data and of errors, for each connection to the Pod."""

    def __init__(self, reader: BufferedIOBase, writer: BufferedIOBase, connect: Connect) -> None:
        super().__init__(reader, writer)
        self._connect = connect
        self._pods: dict[int, socket.socket] = {}
        self._error_streams: dict[str, int] = {}

    def opened(self, stream: int, headers: dict[str, str]) -> None:
        if headers["streamtype"] == "error":
            self._error_streams[headers["requestid"]] = stream
            return
        error_stream = self._error_streams.pop(headers["requestid"])
        try:
            self._pods[stream] = self._connect(int(headers["port"]))
        except OSError as error:
            self.send(error_stream, str(error).encode(), is_last=True)
            self.send(stream, b"", is_last=True)
            return
        self.start(self._receive, stream, error_stream)

    def received(self, stream: int, flags: int, payload: bytes) -> None:
        pod = self._pods.get(stream)
        if pod is not None:
            with contextlib.suppress(OSError):
                pod.sendall(payload)
                if flags & FIN:
                    pod.shutdown(1)

    def ended(self) -> None:
        for pod in self._pods.values():
            _shut_down(pod)

    def _receive(self, stream: int, error_stream: int) -> None:
        with contextlib.suppress(OSError), self._pods[stream] as pod:
            while data := pod.recv(READ_BYTES):
                self.send(stream, data)
            self.send(stream, b"", is_last=True)
            self.send(error_stream, b"", is_last=True)


class _Execution(Spdy):
    """A stream for the output, one for its errors, and one for the result."""

    def __init__(
        self, reader: BufferedIOBase, writer: BufferedIOBase, wanted: set[str], command: Start
    ) -> None:
        super().__init__(reader, writer)
        self._wanted, self._command = wanted, command
        self._streams: dict[str, int] = {}

    def opened(self, stream: int, headers: dict[str, str]) -> None:
        self._streams[headers["streamtype"]] = stream
        if self._wanted <= self._streams.keys():
            self.start(self._run)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            self._answer(self._command())

    def _answer(self, done: subprocess.CompletedProcess[bytes]) -> None:
        for name, output in (("stdout", done.stdout), ("stderr", done.stderr)):
            if name in self._streams:
                for begin in range(0, len(output), READ_BYTES):
                    self.send(self._streams[name], output[begin : begin + READ_BYTES])
                self.send(self._streams[name], b"", is_last=True)
        result: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if done.returncode:
            causes = [{"reason": "ExitCode", "message": str(done.returncode)}]
            result |= {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with exit code {done.returncode}",
                "details": {"causes": causes},
            }
        self.send(self._streams["error"], json.dumps(result).encode(), is_last=True)


def execute(handler: BaseHTTPRequestHandler, query: dict[str, list[str]], start: Start) -> None:
    """Run what *start* starts, for the client of *handler*, which wants the streams of *query*."""
    handler.close_connection = True
    handler.send_response(101)
    for name, value in (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")):
        handler.send_header(name, value)
    handler.send_header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
    handler.end_headers()
    handler.wfile.flush()
    names = {"output": "stdout", "error": "stderr", "input": "stdin"}
    wanted = {"error", *(stream for name, stream in names.items() if query.get(name) in (["1"], ["true"]))}
    with contextlib.suppress(OSError, struct.error):
        _Execution(handler.rfile, handler.wfile, wanted, start).run()

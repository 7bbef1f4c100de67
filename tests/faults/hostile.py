"""A client that violates protocols: it sends any bytes, with TLS or without."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING, Self

from tests.kit import PATIENCE_S, REVIEWS

if TYPE_CHECKING:
    from types import TracebackType

    from tests.load import Server

REVIEW = (REVIEWS / "pod-create-validate.json").read_bytes()


def head(path: str, *fields: bytes) -> bytes:
    """Return the head of a POST of JSON; *fields* declare its length."""
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: gateway", b"Content-Type: application/json"]
    return b"".join(line + b"\r\n" for line in (*lines, *fields)) + b"\r\n"


def post(path: str, body: bytes = REVIEW) -> bytes:
    """Return a complete valid request."""
    return head(path, b"Content-Length: %d" % len(body)) + body


class HostileClient:
    """One connection. With ``tls`` false the bytes are those on the wire.

    One thread may send while another one receives: a lock guards the TLS state, which both change.
    """

    def __init__(self, server: Server, *, tls: bool = True) -> None:
        self._socket: socket.socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._tls_state = threading.Lock()
        self._threads: list[threading.Thread] = []
        if tls:
            self._tls = server.client_context.wrap_bio(
                self._incoming, self._outgoing, server_hostname="127.0.0.1"
            )
            self._shake_hands(self._tls)

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                self._receive_encrypted()
            else:
                self._socket.sendall(self._outgoing.read())
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def send(self, *pieces: bytes) -> None:
        """Send *pieces* until the server closes the connection."""
        with contextlib.suppress(OSError):
            for piece in pieces:
                self._socket.sendall(self._encrypted(piece))

    def _encrypted(self, piece: bytes) -> bytes:
        if self._tls is None:
            return piece
        with self._tls_state:
            written = 0
            while written < len(piece):
                written += self._tls.write(memoryview(piece)[written:])
            return self._outgoing.read()

    def send_meanwhile(self, payload: bytes) -> None:
        """Send *payload* on a thread that ends with the connection."""
        thread = threading.Thread(target=self.send, args=(payload,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def rest(self) -> bytes:
        """Return all bytes up to the end of the connection."""
        received = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while piece := self._receive():
                received += piece
        return received

    def answer(self) -> tuple[int, bytes]:
        """Return status and body of the next answer."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        first, _, body = received.partition(b"\r\n\r\n")
        status = int(first.split(b" ", 2)[1])
        length = int(first.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._more()
        assert len(body) == length, "more than one answer"
        return status, body

    def _more(self) -> bytes:
        piece = self._receive()
        assert piece, "the connection ended before an answer"
        return piece

    def _receive(self) -> bytes:
        """Return the next bytes, none at the end of the connection."""
        if self._tls is None:
            return self._socket.recv(65_536)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError), self._tls_state:
                return self._tls.read(65_536)
            self._receive_encrypted()

    def _receive_encrypted(self) -> None:
        piece = self._socket.recv(65_536)
        with self._tls_state:
            if piece:
                self._incoming.write(piece)
            else:
                self._incoming.write_eof()

    def reset(self) -> None:
        """Abort the connection with RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return a ClientHello."""
    outgoing = ssl.MemoryBIO()
    half = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        half.do_handshake()
    return outgoing.read()

"""A small HTTPS server for the load generator: blocking sockets, a thread for each connection."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

REVIEW = orjson.dumps({"kind": "AdmissionReview", "request": {"uid": "u-1"}})
RIGHT = orjson.dumps({"response": {"uid": "u-1", "allowed": True}})


class ReviewServer:
    """Answers review number *n*, from 0, with ``answer(n)``; closes the connection where that is None.

    One review at a time: while ``answer`` sleeps, nobody else is answered.
    """

    def __init__(
        self,
        certificate: tuple[Path, Path],
        answer: Callable[[int], bytes | None] = lambda _: RIGHT,
        tickets: int = 2,
    ) -> None:
        self.connections = 0
        self.resumed = 0
        self.reviews = 0
        self._answer = answer
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*certificate)
        self._tls.num_tickets = tickets
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._is_over = threading.Event()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listening.getsockname()[1]}/validate"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                thread = threading.Thread(target=self._serve, args=(plain,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, plain: socket.socket) -> None:
        with suppress(OSError), plain, self._tls.wrap_socket(plain, server_side=True) as connection:
            with self._lock:
                self.connections += 1
                self.resumed += bool(connection.session_reused)
            with connection.makefile("rb") as reader:
                while self._read(reader):
                    with self._lock:
                        body = None if self._is_over.is_set() else self._answer(self.reviews)
                        self.reviews += 1
                    if body is None:
                        return
                    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                    connection.sendall(head + body)

    @staticmethod
    def _read(reader: BinaryIO) -> bool:
        length = 0
        while (line := reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return bool(line) and len(reader.read(length)) == length

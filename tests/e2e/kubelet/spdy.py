"""The server's side of SPDY/3.1, as far as API servers use it to reach a kubelet.

Source: SPDY Protocol Draft 3.1; github.com/moby/spdystream.
"""

from __future__ import annotations

import struct
import threading
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedIOBase

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
FIN: Final = 1
_SYN_STREAM, _SYN_REPLY, _PING = 1, 2, 6


class Spdy:
    """One connection. A subclass says what streams do."""

    def __init__(self, reader: BufferedIOBase, writer: BufferedIOBase) -> None:
        self._reader, self._writer = reader, writer
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(9, zlib.DEFLATED, 15, 8, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)

    def run(self) -> None:
        """Serve until the end of the connection, and of the threads that write to it."""
        try:
            while head := self._reader.read(8):
                first, rest = struct.unpack("!II", head)
                flags, payload = rest >> 24, self._reader.read(rest & 0xFFFFFF)
                if not first & 0x80000000:
                    self.received(first, flags, payload)
                elif first & 0xFFFF == _SYN_STREAM:
                    self._open(struct.unpack("!I", payload[:4])[0], payload[10:])
                elif first & 0xFFFF == _PING:
                    self._write(0x80030000 | _PING, 0, payload)
        finally:
            self.ended()
            for thread in self._threads:
                thread.join()

    def start(self, run: Callable[..., None], *arguments: object) -> None:
        """Run *run* in a thread, which may write until ``run`` returns."""
        self._threads.append(threading.Thread(target=run, args=arguments, daemon=True))
        self._threads[-1].start()

    def opened(self, stream: int, headers: dict[str, str]) -> None:
        """The client has opened *stream*."""

    def received(self, stream: int, flags: int, payload: bytes) -> None:
        """The client has sent *payload* on *stream*."""

    def ended(self) -> None:
        """The client has ended the connection: end what the threads wait for."""

    def send(self, stream: int, payload: bytes, *, is_last: bool = False) -> None:
        """Send *payload* on *stream*."""
        self._write(stream, FIN if is_last else 0, payload)

    def _write(self, first: int, flags: int, payload: bytes) -> None:
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
        none = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._write(0x80030000 | _SYN_REPLY, 0, struct.pack("!I", stream) + none)
        self.opened(stream, dict(zip(texts[::2], texts[1::2], strict=True)))

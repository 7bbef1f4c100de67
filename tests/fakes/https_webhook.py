"""A scripted webhook server: ``python -m tests.fakes.https_webhook``.

The path of a request contains a script: the answer, and the faults. It uses the standard library alone, so
that it shares no code with the client under test.

Arguments are names of listeners with the PEM file of each, ``NAME=FILE``, or ``NAME=FILE=CA`` to request
client certificates. The ports are printed as JSON by name.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import ssl
import sys
from collections import Counter
from typing import Any

PREFIX = "/s/"


def path_of(script: dict[str, Any]) -> str:
    return PREFIX + base64.urlsafe_b64encode(json.dumps(script).encode()).decode()


class Seen:
    """The requests of all listeners."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0
        self.requests: list[dict[str, Any]] = []
        self.by_path: Counter[str] = Counter()


class Webhook:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._seen.connections += 1
        self._seen.open += 1
        number = self._seen.connections
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                while await self._exchange(reader, writer, number):
                    pass
        finally:
            self._seen.open -= 1
            writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.strip().split("\r\n")
        method, target, _ = request_line.split(" ")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers.get("Content-Length", 0)))
        if method == "GET":
            report = json.dumps(vars(self._seen), default=dict).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(report), report))
            return True
        certificate = writer.get_extra_info("peercert")
        self._seen.requests.append(
            {
                "target": target,
                "lines": lines,
                "headers": headers,
                "body": body.decode(),
                "connection": connection,
                "certificate": str(certificate.get("subject")) if certificate else "",
            }
        )
        path = target.partition("?")[0]
        script = json.loads(base64.urlsafe_b64decode(path.removeprefix(PREFIX)))
        if "sequence" in script:
            scripts = script["sequence"]
            script = scripts[min(self._seen.by_path[path], len(scripts) - 1)]
        self._seen.by_path[path] += 1
        return await self._answer(script, json.loads(body), writer)

    async def _answer(
        self, script: dict[str, Any], review: dict[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        await asyncio.sleep(script.get("delay_s", 0))
        if script.get("hang_up"):
            writer.transport.abort()
            return False
        if "raw" in script:
            writer.write(script["raw"].encode("latin-1") + b"x" * script.get("pad", 0))
            await writer.drain()
            return bool(script.get("stay"))
        body = self._body(script, review)
        headers = {"Content-Type": "application/json", **script.get("headers", {})}
        if script.get("gzip"):
            packed = gzip.compress(body)[: script.get("cut")]
            body = gzip.compress(b"") * script.get("empty_first", 0) + packed * script.get("again", 1)
            headers["Content-Encoding"] = "gzip"
        if script.get("chunked"):
            headers["Transfer-Encoding"] = "chunked"
            size = script["chunked"]
            pieces = [body[place : place + size] for place in range(0, len(body), size)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        elif not script.get("until_closed"):
            headers["Content-Length"] = str(script.get("length", len(body)))
        version = "HTTP/1.0" if script.get("http10") else "HTTP/1.1"
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
        head = f"{version} {script.get('status', 200)} Said\r\n{lines}\r\n".encode("latin-1")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * script.get("interim", 0))
        pace_s = script.get("pace_s")
        for piece in [head, body] if pace_s is None else [bytes([byte]) for byte in head + body]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pace_s or 0)
        for _ in range(4096 if script.get("endless") else 0):
            if writer.is_closing():
                break
            writer.write(script["endless"].encode() * 16_384)
            await writer.drain()
        if script.get("extra"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        if script.get("close"):
            return False
        return not script.get("until_closed")

    def _body(self, script: dict[str, Any], review: dict[str, Any]) -> bytes:
        if "zeros" in script:
            return bytes(script["zeros"])
        if "repeat" in script:
            before, piece, after = script["repeat"]
            return f"{before}{piece * script['count']}{after}".encode()
        if "body" in script:
            text: str = script["body"]
            return text.encode()
        answer = {"uid": review["request"]["uid"], "allowed": True, **script.get("answer", {})}
        whole = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}
        whole |= script.get("review", {})
        return json.dumps({key: value for key, value in whole.items() if value != "LEFT OUT"}).encode()


async def main(arguments: list[str]) -> None:
    webhook, ports, servers = Webhook(Seen()), {}, []
    for argument in arguments:
        name, file, *ca = argument.split("=")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if ca:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(ca[0])
        server = await asyncio.start_server(webhook.serve, "127.0.0.1", 0, ssl=context, limit=2**24)
        servers.append(server)
        ports[name] = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

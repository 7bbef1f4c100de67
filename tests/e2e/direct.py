"""The same policies as webhooks of their own: what the gateway is compared with.

    python -m tests.e2e.direct --listen 127.0.0.1:PORT --tls-cert F --tls-key F --scripts FILE

FILE holds a JSON list of scripts of ``tests/worker``; the one at index N is served at ``/N``, over
HTTP/1.1 as any webhook is. A script with ``raw_status`` denies with that Status. Prints its port when it
serves.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import ssl
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.worker.script import respond

DETAILS = ("causes", "name", "group", "kind", "uid", "retryAfterSeconds")
"""Members of a worker's Status that are below ``details`` in Kubernetes."""


class Webhooks(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    scripts: list[dict[str, Any]]


class Answering(BaseHTTPRequestHandler):
    """Answers over HTTP/1.1 and TLS."""

    protocol_version = "HTTP/1.1"
    # Head and body are written apart: the body would wait until the caller has acknowledged the head.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        # In the connection's own thread, so that a slow handshake does not delay other connections.
        self.request.do_handshake()
        super().setup()

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


class Handler(Answering):
    server: Webhooks

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        script = self.server.scripts[int(self.path.partition("?")[0].strip("/"))]
        if script.get("exit"):
            os._exit(1)
        time.sleep(3600 if script.get("hang") else script.get("delay_ms", 0) / 1000)
        self.answer(*http_answer(script, body))


def http_answer(script: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """Return the HTTP status and the body with which a policy of this *script* answers the review *body*."""
    status = 500 if "status" in script else 200
    return status, b"\xff\xff" if script.get("garbage") else json.dumps(review(script, body)).encode()


def review(script: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return the AdmissionReview with which a policy of this *script* answers."""
    review = json.loads(body)
    # As it came: the review ends with the request, and its head does not mention one.
    found = respond(script, body[body.index(b'"request":') + 10 : body.rindex(b"}")], b"")
    response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": found.allowed}
    if not found.allowed:
        status = MessageToDict(found.status)
        details = {name: status.pop(name) for name in DETAILS if name in status}
        response["status"] = {**status, **({"details": details} if details else {})}
    if "raw_status" in script:
        response.update(allowed=False, status=script["raw_status"])
    if found.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(found.patch).decode()
    if found.warnings:
        response["warnings"] = list(found.warnings)
    if found.audit_annotations:
        response["auditAnnotations"] = dict(found.audit_annotations)
    answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
    return {} if script.get("empty") else answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--tls-cert", required=True)
    parser.add_argument("--tls-key", required=True)
    parser.add_argument("--scripts", type=Path, required=True)
    parsed = parser.parse_args()
    host, _, port = parsed.listen.rpartition(":")
    server = Webhooks((host, int(port)), Handler)
    server.scripts = json.loads(parsed.scripts.read_text())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(parsed.tls_cert, parsed.tls_key)
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_address[1], flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main()

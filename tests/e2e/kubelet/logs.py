"""The part of a kubelet's API that ``kubectl logs``, ``port-forward`` and ``exec`` need from nodes.

Source: k8s.io/kubernetes pkg/kubelet/server/server.go (``/containerLogs``, ``/portForward``, ``/exec``)
"""

from __future__ import annotations

import ssl
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs, urlsplit

from tests.e2e.kubelet.network import LOGS_PORT, NODE_IP
from tests.e2e.kubelet.streams import execute, forward

if TYPE_CHECKING:
    import socket
    import subprocess
    from pathlib import Path


class Pods(Protocol):
    """The Pods that run."""

    def connect(self, namespace: str, name: str, port: int) -> socket.socket:
        """Connect to *port* of the loopback of the Pod *name*. Raises OSError."""

    def run(
        self, namespace: str, name: str, container: str, command: list[str]
    ) -> subprocess.CompletedProcess[bytes]:
        """Run *command* in a container of the Pod *name*, and return its end."""


def server(folder: Path, certificate: Path, key: Path, pods: Pods) -> ThreadingHTTPServer:
    """Return a server, not yet started, of *pods*, and of the logs below *folder*, without their options."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            match parts.path.split("/"):
                case ["", "portForward", namespace, pod, *_]:
                    ports = [
                        int(port)
                        for text in parse_qs(parts.query).get("port", ())
                        for port in text.split(",")
                    ]
                    forward(self, ports, partial(pods.connect, namespace, pod))
                    return
                case ["", "exec", namespace, pod, *_, container]:
                    query = parse_qs(parts.query)
                    execute(self, query, partial(pods.run, namespace, pod, container, query["command"]))
                    return
                case ["", "containerLogs", namespace, pod, container]:
                    logs = sorted(folder.glob(f"{namespace}_{pod}_*/{container}.log"))
                case _:
                    logs = []
            body = b"".join(log.read_bytes() for log in logs)
            self.send_response(200 if logs else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    made = ThreadingHTTPServer((NODE_IP, LOGS_PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    return made

"""The part of a kubelet's API that ``kubectl logs`` and ``kubectl port-forward`` need from nodes.

Source: k8s.io/kubernetes pkg/kubelet/server/server.go (``/containerLogs``, ``/portForward``)
"""

from __future__ import annotations

import ssl
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from tests.e2e.kubelet.network import LOGS_PORT, NODE_IP
from tests.e2e.kubelet.port_forward import forward

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path


def server(
    folder: Path, certificate: Path, key: Path, connect: Callable[[str, str, int], socket.socket]
) -> ThreadingHTTPServer:
    """Return a server, not yet started, of the logs below *folder*. It ignores what a query asks for.

    *connect* connects to a port of the loopback of a Pod, by its namespace and name.
    """

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
                    forward(self, ports, partial(connect, namespace, pod))
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

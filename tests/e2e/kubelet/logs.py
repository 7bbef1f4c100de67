"""The part of a kubelet's API that ``kubectl logs`` needs: API servers read logs of containers from nodes.

Source: k8s.io/kubernetes pkg/kubelet/server/server.go (``/containerLogs``)
"""

from __future__ import annotations

import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.e2e.kubelet.network import LOGS_PORT, NODE_IP

if TYPE_CHECKING:
    from pathlib import Path


def server(folder: Path, certificate: Path, key: Path) -> ThreadingHTTPServer:
    """Return a server, not yet started, of the logs below *folder*. It ignores what a query asks for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match urlsplit(self.path).path.split("/"):
                case ["", "containerLogs", namespace, pod, container]:
                    logs = sorted(folder.glob(f"{namespace}_{pod}_*/{container}.log"))
                case _:
                    logs = []
            body = b"".join(log.read_bytes() for log in logs)
            self.send_response(200 if logs else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    made = ThreadingHTTPServer((NODE_IP, LOGS_PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    return made

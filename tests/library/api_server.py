"""A small API server on a real socket, with the objects and rights that a test gives it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import yaml

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

Json = dict[str, Any]

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKEN = "of-the-worker"


class ApiServer(ThreadingHTTPServer):
    """Answers GET of ``lists`` (in pages) and of their objects by name, and SubjectAccessReviews."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}"
        self.lists: dict[str, list[Json]] = {}
        """Objects by the path of their list."""
        self.others: dict[str, Json] = {}
        """Documents by path, such as those of discovery."""
        self.raw: dict[str, str] = {}
        """Other content by path, such as what is not JSON."""
        self.rights: Callable[[Json], Json] = lambda _: {"allowed": False}
        """Returns the status of a SubjectAccessReview with this spec."""
        self.page = 500
        self.token = TOKEN
        self.requests: list[tuple[str, str]] = []
        """Method and path with query of each request."""
        self.reviewed: list[Json] = []

    def kubeconfig(self, file: Path, ca_file: Path | None = None, **user: str) -> Path:
        """Write a kubeconfig *file* for this server."""
        cluster = {"server": self.url, **({"certificate-authority": str(ca_file)} if ca_file else {})}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "one", "user": "worker"}}],
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "worker", "user": user or {"token": TOKEN}}],
        }
        file.write_text(yaml.safe_dump(document))
        return file


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    server = ApiServer(tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((method, self.path))
        expected = f"Bearer {self.server.token}" if self.server.token else None
        if self.headers.get("Authorization") != expected:
            self._send(401, {"kind": "Status", "message": "Unauthorized"})
            return
        url = urlsplit(self.path)
        if url.path in self.server.raw:
            self._send(200, self.server.raw[url.path])
            return
        if method == "GET":
            self._send(*self._get(url.path, parse_qs(url.query)))
            return
        document = json.loads(body)
        if url.path == REVIEWS:
            self.server.reviewed.append(document["spec"])
            document["status"] = self.server.rights(document["spec"])
        elif any(each == document for each in self.server.lists.get(url.path, ())):
            self._send(409, {"kind": "Status", "message": "already exists"})
            return
        else:
            self.server.lists.setdefault(url.path, []).append(document)
        self._send(201, document)

    def _get(self, path: str, query: dict[str, list[str]]) -> tuple[int, Json]:
        if path in self.server.others:
            return 200, self.server.others[path]
        if path in self.server.lists:
            begin = int(query.get("continue", ["0"])[0])
            end = begin + min(self.server.page, int(query["limit"][0]))
            items = self.server.lists[path]
            metadata = {"continue": str(end)} if end < len(items) else {}
            return 200, {"kind": "List", "metadata": metadata, "items": items[begin:end]}
        listed, _, name = path.rpartition("/")
        for item in self.server.lists.get(listed, ()):
            if item["metadata"]["name"] == name:
                return 200, item
        return 404, {"kind": "Status", "message": f"{name} not found"}

    def _send(self, status: int, document: Json | str) -> None:
        content = (document if isinstance(document, str) else json.dumps(document)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

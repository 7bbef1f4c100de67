"""A small API server on real sockets, for the requests of the gateway, with faults on demand.

It has lists in pages, watches with bookmarks, expired versions, apply, and conflicts of writes with an old
version. It validates nothing. Each connection has a thread.
"""

from __future__ import annotations

import json
import select
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from gateway.config.yaml.documents import plural_of

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    Json = dict[str, Any]

PATIENCE_S = 60.0
NAMESPACES = "/api/v1/namespaces"
GATEWAY = "/apis/admission-gateway.io/v1alpha1"
CUSTOM = (
    "workerpools",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "policyexceptions",
    "clusterpolicyexceptions",
)
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ApiServer(ThreadingHTTPServer):
    """The server, with its objects and its faults. A context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tls = tls
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}"
        self.changed = threading.Condition()
        self.version = 100
        self.oldest = 100
        """Watches from an older version get 410."""
        self.objects: dict[str, Json] = {}
        """By path."""
        self.events: list[tuple[int, str, bytes]] = []
        """Of each, the version after it, the path of its list, and its line."""
        self.forbidden: set[str] = set()
        """Paths of objects that nobody may get."""
        self.lacks_custom_resources = False
        """Whether the CustomResourceDefinitions are missing."""
        self.resources: dict[str, list[Json]] = {}
        """By the path of a group and version, its resources, which can be followed in all namespaces."""
        self.told: list[Json] = []
        """The Events that were created."""
        self.faults: dict[str, deque[Callable[[_Handler], None]]] = {
            kind: deque()
            for kind in (
                *("list", "watch", "get", "patch", "review", "post", "put"),
                *("list one", "watch one", "discovery", "list params", "watch params", "version"),
                *(f"{verb} {plural}" for verb in ("list", "watch") for plural in CUSTOM),
            )
        }
        """By kind of request, the faults instead of the next answers, one for each."""
        self.rights: Callable[[Json], Json] = lambda _: {"allowed": False}
        """Returns the status of a SubjectAccessReview with this spec."""
        self.reviewed: list[Json] = []
        """The specs of all SubjectAccessReviews."""
        self.token: str | None = None
        """The required bearer token; None if there is no authentication."""
        self.page = 500
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Kind and parameters of each request."""
        self.authorizations: list[str | None] = []
        self.impersonations: list[list[tuple[str, str]]] = []
        """Of each request that has some, the headers."""
        self.watches = 0
        """How many are open."""
        self._epoch = 0
        self._ending = b""
        self._is_abrupt = False
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join(PATIENCE_S)
        self.end_watches(abruptly=True)
        with self.changed:
            for connection in self._sockets:
                connection.close()
        self.server_close()

    # -- objects ----------------------------------------------------------------------------------

    def put(self, name: str, **labels: str) -> None:
        """Create the namespace *name*, or change its labels."""
        with self.changed:
            path = f"{NAMESPACES}/{name}"
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.version += 1
            self.objects[path] = {
                "metadata": {
                    "name": name,
                    "resourceVersion": str(self.version),
                    "labels": {"kubernetes.io/metadata.name": name, **labels},
                    "annotations": {"note": "one\x85line\u2028only"},
                    "managedFields": [{"manager": "test"}],
                },
                "spec": {"finalizers": ["kubernetes"]},
            }
            self._tell(kind, self.objects[path])

    def apply(self, document: Json) -> None:
        """Create or update the custom resource *document*; its status stays."""
        plural = plural_of(document["kind"])
        path = f"{GATEWAY}/{plural}/{document['metadata']['name']}"
        with self.changed:
            before = self.objects.get(path)
            self.version += 1
            metadata: Json = before["metadata"] if before else {"uid": f"uid-{self.version}", "generation": 0}
            kept = {"status": before["status"]} if before and "status" in before else {}
            changed = {
                "resourceVersion": str(self.version),
                "generation": metadata["generation"] + 1,
                "uid": metadata["uid"],
            }
            self.objects[path] = {
                **document,
                "apiVersion": "admission-gateway.io/v1alpha1",
                "metadata": {**document["metadata"], **changed},
                **kept,
            }
            self._tell("MODIFIED" if before else "ADDED", self.objects[path], f"{GATEWAY}/{plural}")

    def remove(self, kind: str, name: str) -> None:
        """Delete a custom resource."""
        plural = plural_of(kind)
        with self.changed:
            gone = self.objects.pop(f"{GATEWAY}/{plural}/{name}")
            self.version += 1
            gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
            self._tell("DELETED", gone, f"{GATEWAY}/{plural}")

    def hold(self, path: str, **content: object) -> None:
        """Create or replace the object at *path*, of any kind that is followed one object at a time."""
        with self.changed:
            self.version += 1
            metadata = {"name": path.rpartition("/")[2], "resourceVersion": str(self.version)}
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.objects[path] = {"metadata": metadata, **content}
            self._tell(kind, self.objects[path], path.rpartition("/")[0])

    def keep(self, path: str, *, is_shown: bool = True, **content: object) -> None:
        """Create or replace the object at *path*, of a kind in ``resources``.

        Watches get it only if *is_shown*.
        """
        with self.changed:
            self.version += 1
            *before, _, name = path.split("/")
            metadata: Json = {"name": name, "resourceVersion": str(self.version)}
            if before[-2] == "namespaces":
                metadata["namespace"] = before[-1]
            given = content.pop("metadata", {})
            assert isinstance(given, dict)
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.objects[path] = {"metadata": {**metadata, **given}, **content}
            if is_shown:
                self._tell(kind, self.objects[path], _collection(path))

    def drop(self, path: str) -> None:
        """Delete an object of :meth:`hold` or :meth:`keep`."""
        with self.changed:
            self.version += 1
            gone = self.objects.pop(path)
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._tell("DELETED", gone, path.rpartition("/")[0])
            if _collection(path) != path.rpartition("/")[0]:
                self._tell("DELETED", gone, _collection(path))

    def ready(self, kind: str, name: str) -> Json:
        """Return the condition Ready of a custom resource; empty if it has none."""
        with self.changed:
            found = self.objects.get(f"{GATEWAY}/{plural_of(kind)}/{name}", {})
            conditions: list[Json] = found.get("status", {}).get("conditions", [])
            return conditions[0] if conditions else {}

    def delete(self, name: str) -> None:
        """Delete the namespace *name*, if it exists."""
        with self.changed:
            gone = self.objects.pop(f"{NAMESPACES}/{name}", None)
            if gone is not None:
                self.version += 1
                gone["metadata"]["resourceVersion"] = str(self.version)
                self._tell("DELETED", gone)

    def bookmark(self) -> None:
        """Send bookmarks, after a new version of an object of another kind."""
        with self.changed:
            self.version += 1
            self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def compact(self) -> None:
        """Expire all versions before the current one."""
        with self.changed:
            self.version += 1
            self.oldest = self.version

    def labels(self) -> dict[str, dict[str, str]]:
        """Return the labels of all namespaces by name."""
        with self.changed:
            return {name: found["metadata"]["labels"] for name, found in self._listed(NAMESPACES)}

    def _listed(self, path: str) -> list[tuple[str, Json]]:
        head, everywhere = f"{path}/", path.rpartition("/")[0] in self.resources
        return [
            (name.rpartition("/")[2] if everywhere else name[len(head) :], found)
            for name, found in self.objects.items()
            if (_collection(name) == path if everywhere else name.startswith(head))
        ]

    def _tell(self, kind: str, what: Json, listed: str = NAMESPACES) -> None:
        # As Go's encoder writes it, which leaves U+0085 as it is and escapes U+2028.
        text = json.dumps({"type": kind, "object": what}, ensure_ascii=False).replace("\u2028", "\\u2028")
        self.events.append((self.version, listed, text.encode() + b"\n"))
        self.changed.notify_all()

    # -- faults -----------------------------------------------------------------------------------

    def end_watches(self, *, abruptly: bool, last_words: bytes = b"") -> None:
        """End all open watches: after a timeout, or *abruptly*."""
        with self.changed:
            self._epoch += 1
            self._ending = last_words
            self._is_abrupt = abruptly
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* is true; it is checked at each event."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S)

    def asked(self, kind: str) -> int:
        """Return the number of requests of *kind*."""
        return sum(asked == kind for asked, _ in self.requests)

    def kubeconfig(self, folder: Path, cluster: Json | None = None, **user: object) -> Path:
        """Return a kubeconfig for this server."""
        file = folder / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": self.url, **(cluster or {})}}],
            "users": [{"name": "test", "user": user}],
        }
        file.write_text(yaml.safe_dump(document))
        return file

    # -- connections ------------------------------------------------------------------------------

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(PATIENCE_S)
        try:
            connection = request if self.tls is None else self.tls.wrap_socket(request, server_side=True)
        except OSError:
            return
        with self.changed:
            self._sockets.add(connection)
        try:
            super().finish_request(connection, client_address)
        finally:
            with self.changed:
                self._sockets.discard(connection)
            connection.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection."""


def _collection(path: str) -> str:
    """Return the path of the list of all namespaces in which the object at *path* is."""
    *before, plural, _ = path.split("/")
    return "/".join([*(before[:-2] if before[-2] == "namespaces" else before), plural])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        # Before all else: the end of all watches is also that of one that is being opened.
        self._epoch = self.server._epoch
        split = urlsplit(self.path)
        parameters = dict(parse_qsl(split.query))
        verb, plural = "watch" if "watch" in parameters else "list", split.path.rpartition("/")[2]
        if split.path == NAMESPACES:
            kind = verb
        elif "fieldSelector" in parameters:
            kind = f"{verb} one"
        elif split.path == f"{GATEWAY}/{plural}" and plural in CUSTOM:
            kind = f"{verb} {plural}"
        elif split.path in self.server.resources:
            verb, kind = "discover", "discovery"
        elif any(
            split.path == f"{path}/{one['name']}"
            for path, found in self.server.resources.items()
            for one in found
        ):
            kind = f"{verb} params"
        else:
            verb, kind = "get", "version" if split.path == "/version" else "get"
        if self._admit(kind, parameters):
            if " " in kind and self.server.lacks_custom_resources:
                self.refuse(404, "the server could not find the requested resource")
            else:
                getattr(self, f"_{verb}")(split.path, parameters)

    def do_PATCH(self) -> None:
        split = urlsplit(self.path)
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        parameters = {**dict(parse_qsl(split.query)), "type": self.headers["Content-Type"]}
        if not self._admit("patch", parameters):
            return
        server = self.server
        if split.path.endswith("/status"):
            self._set_status(split.path.removesuffix("/status"), document)
            return
        with server.changed:
            before = server.objects.get(split.path)
            is_same = before is not None and before["webhooks"] == document.get("webhooks")
            if not is_same:
                server.version += 1
                document["metadata"]["resourceVersion"] = str(server.version)
                server.objects[split.path] = document
        self.answer(201 if before is None else 200, server.objects[split.path])

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if path == ACCESS_REVIEWS and self._admit("review", {}):
            with self.server.changed:
                self.server.reviewed.append(document["spec"])
            status = self.server.rights(document["spec"])
            self.answer(201, {**document, "status": status})
        elif path != ACCESS_REVIEWS:
            self._write("post", path, document)

    def do_PUT(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._write("put", urlsplit(self.path).path, document)

    def do_DELETE(self) -> None:
        options = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, wanted = urlsplit(self.path).path, options["preconditions"]["resourceVersion"]
        with self.server.changed:
            found = self.server.objects.get(path)
            is_latest = found is not None and found["metadata"]["resourceVersion"] == wanted
            if is_latest:
                del self.server.objects[path]
        if is_latest:
            self.answer(200, {"kind": "Status", "status": "Success"})
        else:
            self.refuse(409, "the object has been modified")

    def _write(self, kind: str, path: str, document: Json) -> None:
        server, name = self.server, document["metadata"]["name"]
        if not self._admit(kind, {"path": path}):
            return
        with server.changed:
            at = path if kind == "put" else f"{path}/{name}"
            before = server.objects.get(at)
            version = document["metadata"].get("resourceVersion")
            is_latest = (None if before is None else before["metadata"]["resourceVersion"]) == version
            if is_latest:
                server.version += 1
                document["metadata"]["resourceVersion"] = str(server.version)
                server.objects[at] = document
                if path == EVENTS:
                    server.told.append(document)
                server.changed.notify_all()
        if is_latest:
            self.answer(201 if kind == "post" else 200, document)
        else:
            self.refuse(409, "the object has been modified")

    def _set_status(self, path: str, document: Json) -> None:
        server = self.server
        with server.changed:
            found = server.objects.get(path)
            is_it = found is not None and found["metadata"]["uid"] == document["metadata"]["uid"]
            if found is not None and is_it:
                server.version += 1
                metadata = {**found["metadata"], "resourceVersion": str(server.version)}
                found = server.objects[path] = {**found, "metadata": metadata, "status": document["status"]}
                server._tell("MODIFIED", found, path.rpartition("/")[0])
        if found is None:
            self.refuse(404, "not found")
        elif not is_it:
            self.refuse(409, "uid mismatch")
        else:
            self.answer(200, found)

    def _admit(self, kind: str, parameters: dict[str, str]) -> bool:
        server = self.server
        authorization = self.headers["Authorization"]
        with server.changed:
            server.requests.append((kind, parameters))
            server.authorizations.append(authorization)
            impersonation = [
                (name.lower(), value.encode("latin-1").decode())
                for name, value in self.headers.items()
                if name.lower().startswith("impersonate-")
            ]
            if impersonation:
                server.impersonations.append(impersonation)
            fault = server.faults[kind].popleft() if server.faults[kind] else None
            server.changed.notify_all()
        if server.token is not None and authorization != f"Bearer {server.token}":
            self.refuse(401, "Unauthorized")
        elif fault is not None:
            fault(self)
        else:
            return True
        return False

    def _get(self, path: str, _: dict[str, str]) -> None:
        with self.server.changed:
            found = self.server.objects.get(path)
        if path in self.server.forbidden:
            self.refuse(403, f'"{path}" is forbidden')
        elif found is None:
            self.refuse(404, f'"{path}" not found')
        else:
            self.answer(200, found)

    def _discover(self, path: str, _: dict[str, str]) -> None:
        self.answer(200, {"kind": "APIResourceList", "resources": self.server.resources[path]})

    def _list(self, path: str, parameters: dict[str, str]) -> None:
        server = self.server
        first = int(parameters.get("continue", 0))
        with server.changed:
            wanted = parameters.get("fieldSelector", "").removeprefix("metadata.name=")
            items = [found for name, found in server._listed(path) if wanted in ("", name)]
            metadata = {"resourceVersion": str(server.version)}
            if first + server.page < len(items):
                metadata["continue"] = str(first + server.page)
            answer = {"kind": "AList", "items": items[first : first + server.page]}
            body = json.dumps({**answer, "metadata": metadata})
        self.send(200, body.encode())

    def _watch(self, path: str, parameters: dict[str, str]) -> None:
        server = self.server
        version, ends = (
            int(parameters["resourceVersion"]),
            time.monotonic() + int(parameters["timeoutSeconds"]),
        )
        self.begin_stream()
        with server.changed:
            if version < server.oldest:
                status = {"kind": "Status", "code": 410, "message": "too old resource version"}
                self.chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                self.chunk(b"")
                return
            server.watches += 1
            server.changed.notify_all()
        try:
            while True:
                with server.changed:
                    lines = [line for at, of, line in server.events if at > version and of == path]
                    version = max(version, *(at for at, _, _ in server.events)) if server.events else version
                    is_over = self._epoch != server._epoch
                    if not lines and not is_over:
                        if time.monotonic() >= ends:
                            break
                        server.changed.wait(0.05)
                        if select.select([self.connection], [], [], 0)[0]:
                            # Nothing more is to come from a client, but its end.
                            self.close_connection = True
                            return
                        continue
                if is_over and server._is_abrupt:
                    if server._ending:
                        self.chunk(server._ending)
                    self.close_connection = True
                    return
                for line in lines:
                    # In two pieces, as a network may.
                    self.chunk(line[:7])
                    self.chunk(line[7:])
                if is_over:
                    break
            self.chunk(b"")
        finally:
            with server.changed:
                server.watches -= 1
                server.changed.notify_all()

    # -- used by faults ---------------------------------------------------------------------------

    def answer(self, status: int, what: Json) -> None:
        self.send(status, json.dumps(what).encode())

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, message: str, **details: Any) -> None:
        self.answer(status, {"kind": "Status", "code": status, "message": message, "details": details})

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def chunk(self, piece: bytes) -> None:
        """Write a chunk; the empty one ends the answer."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))


def refuse(status: int, message: str = "refused", **details: Any) -> Callable[[_Handler], None]:
    """A fault: a Status with an error."""
    return lambda handler: handler.refuse(status, message, **details)


def hang_up(handler: _Handler) -> None:
    """A fault: the connection is closed without an answer."""
    handler.close_connection = True


def hang(handler: _Handler) -> None:
    """A fault: no answer until the client closes the connection."""
    handler.close_connection = True
    handler.connection.recv(1)


def silence(handler: _Handler) -> None:
    """A fault: a watch without events."""
    handler.begin_stream()
    hang(handler)


def stream(*pieces: bytes, ends: bool = True) -> Callable[[_Handler], None]:
    """A fault: a watch that sends these pieces, and then ends or stays open."""

    def fault(handler: _Handler) -> None:
        handler.begin_stream()
        for piece in pieces:
            handler.chunk(piece)
        if ends:
            handler.chunk(b"")
        else:
            handler.close_connection = True

    return fault

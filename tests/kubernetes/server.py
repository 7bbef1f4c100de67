"""A small API server on real sockets, for the requests of the gateway, with faults on demand.

It has lists in pages, watches with bookmarks, expired versions, apply, and conflicts of writes with an old
version. It validates nothing. It runs on an event loop: that of the test (``async with``), so that nothing
happens while the test looks, or one in a thread of its own (``with``).
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, urlsplit

import jsonpatch
import yaml

from gateway.config.yaml.documents import plural_of
from tests.kit import PATIENCE_S
from tests.stream_server import stream_server
from tests.waiting import in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path

    Json = dict[str, Any]
    Fault = Callable[["Handler"], Awaitable[object] | None]

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


class ApiServer:
    """The server, with its objects and its faults. A context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.server_port: int = self._socket.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}"
        self.changed = threading.Condition()
        self.version = 100
        self.oldest = 100
        """Watches from an older version get 410."""
        self.objects: dict[str, Json] = {}
        """By path."""
        self.texts: dict[str, Iterable[bytes]] = {}
        """Answers that are no objects, by path."""
        self.events: list[tuple[int, str, bytes]] = []
        """Of each, the version after it, the path of its list, and its line."""
        self.forbidden: set[str] = set()
        """Paths of objects that nobody may get."""
        self.lacks_custom_resources = False
        """Whether the CustomResourceDefinitions are missing."""
        self.resources: dict[str, list[Json]] = {}
        """By the path of a group and version, its resources, which can be followed in all namespaces."""
        self.followed: set[str] = set()
        """Paths of further lists that can be followed: those of a kind in one namespace."""
        self.told: list[Json] = []
        """The Events that were created."""
        self.faults: dict[str, deque[Fault]] = {
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
        self.has_watch_lists = False
        """Whether a watch can begin with all objects."""
        self.limits_pages = False
        """Whether a page has no more objects than its ``limit``."""
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching: set[asyncio.Event] = set()
        """Set at each change."""
        self._serving = stream_server(self._serve, host=None, port=None, sock=self._socket, ssl=self.tls)
        self._in_thread = in_thread(self)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._serving.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._serving.__aexit__(*error)
        self._loop = None

    def __enter__(self) -> Self:
        self._in_thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._in_thread.__exit__(None, None, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio sets it only on sockets that were made with the number of the protocol.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client that is gone is no error.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self.handler(reader, writer).run()

    def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Handler:
        """Return what answers the requests of a connection."""
        return Handler(self, reader, writer)

    def notify(self) -> None:
        """Wake what waits for a change; the caller holds ``changed``."""
        self.changed.notify_all()
        if self._loop is not None:
            for event in self._watching:
                self._loop.call_soon_threadsafe(event.set)

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
            if (
                _collection(name) == path
                if everywhere
                else name.startswith(head) and "/" not in name[len(head) :]
            )
        ]

    def _all_events(self, path: str) -> Iterator[Json]:
        """Yield the events with which a watch of *path* begins that is also a list."""
        yield from ({"type": "ADDED", "object": found} for _, found in self._listed(path))
        annotations = {"k8s.io/initial-events-end": "true"}
        metadata = {"resourceVersion": str(self.version), "annotations": annotations}
        yield {"type": "BOOKMARK", "object": {"metadata": metadata}}

    def _tell(self, kind: str, what: Json, listed: str = NAMESPACES) -> None:
        # As Go's encoder writes it, which leaves U+0085 as it is and escapes U+2028.
        text = json.dumps({"type": kind, "object": what}, ensure_ascii=False).replace("\u2028", "\\u2028")
        self.events.append((self.version, listed, text.encode() + b"\n"))
        self.notify()

    # -- faults -----------------------------------------------------------------------------------

    def end_watches(self, *, abruptly: bool, last_words: bytes = b"") -> None:
        """End all open watches: after a timeout, or *abruptly*."""
        with self.changed:
            self._epoch += 1
            self._ending = last_words
            self._is_abrupt = abruptly
            self.notify()

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


def _collection(path: str) -> str:
    """Return the path of the list of all namespaces in which the object at *path* is."""
    *before, plural, _ = path.split("/")
    return "/".join([*(before[:-2] if before[-2:-1] == ["namespaces"] else before), plural])


class Handler:
    """A connection, and the answer to its present request."""

    def __init__(self, server: ApiServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self._writer = writer
        self.path = ""
        self.fields: list[tuple[str, str]] = []
        """The header fields, with names in lower case."""
        self.headers: dict[str, str] = {}
        self.body = b""
        self.close_connection = False

    async def run(self) -> None:
        """Answer requests until one of both sides ends the connection."""
        while not self.close_connection:
            head = await self.reader.readuntil(b"\r\n\r\n")
            request, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
            method, self.path, _ = request.split(" ")
            parts = (line.partition(":") for line in lines)
            self.fields = [(name.lower(), value.strip()) for name, _, value in parts]
            self.headers = dict(self.fields)
            self.body = await self.reader.readexactly(int(self.headers.get("content-length", 0)))
            await getattr(self, f"_do_{method.lower()}")()
            await self._writer.drain()

    async def _do_get(self) -> None:
        # Before all else: the end of all watches is also that of one that is being opened.
        self._epoch = self.server._epoch
        split = urlsplit(self.path)
        parameters = dict(parse_qsl(split.query))
        verb, plural = "watch" if "watch" in parameters else "list", split.path.rpartition("/")[2]
        if split.path == NAMESPACES:
            kind = verb
        elif "fieldSelector" in parameters:
            kind = f"{verb} one"
        elif split.path in self.server.followed or (split.path == f"{GATEWAY}/{plural}" and plural in CUSTOM):
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
        if await self._admit(kind, parameters):
            if " " in kind and self.server.lacks_custom_resources:
                self.refuse(404, "the server could not find the requested resource")
            else:
                answering = getattr(self, f"_{verb}")(split.path, parameters)
                if isawaitable(answering):
                    await answering

    async def _do_patch(self) -> None:
        split = urlsplit(self.path)
        document = json.loads(self.body)
        parameters = {**dict(parse_qsl(split.query)), "type": self.headers["content-type"]}
        if not await self._admit("patch", parameters):
            return
        server = self.server
        if split.path.endswith("/status"):
            self._set_status(split.path.removesuffix("/status"), document)
            return
        with server.changed:
            before = server.objects.get(split.path)
            if parameters["type"] == "application/json-patch+json":
                document = jsonpatch.apply_patch(before, document)
            is_same = before is not None and before["webhooks"] == document.get("webhooks")
            if not is_same:
                server.version += 1
                document["metadata"]["resourceVersion"] = str(server.version)
                server.objects[split.path] = document
        self.answer(201 if before is None else 200, server.objects[split.path])

    async def _do_post(self) -> None:
        path = urlsplit(self.path).path
        document = json.loads(self.body)
        if path == ACCESS_REVIEWS and await self._admit("review", {}):
            with self.server.changed:
                self.server.reviewed.append(document["spec"])
            status = self.server.rights(document["spec"])
            self.answer(201, {**document, "status": status})
        elif path != ACCESS_REVIEWS:
            await self._write("post", path, document)

    async def _do_put(self) -> None:
        document = json.loads(self.body)
        await self._write("put", urlsplit(self.path).path, document)

    async def _do_delete(self) -> None:
        options = json.loads(self.body)
        path, wanted = urlsplit(self.path).path, options["preconditions"]["resourceVersion"]
        with self.server.changed:
            found = self.server.objects.get(path)
            is_latest = found is not None and found["metadata"]["resourceVersion"] == wanted
            if is_latest and path.rpartition("/")[0] in self.server.followed:
                self.server.drop(path)
            elif is_latest:
                del self.server.objects[path]
        if is_latest:
            self.answer(200, {"kind": "Status", "status": "Success"})
        else:
            self.refuse(409, "the object has been modified")

    async def _write(self, kind: str, path: str, document: Json) -> None:
        server, name = self.server, document["metadata"]["name"]
        if not await self._admit(kind, {"path": path}):
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
                listed = at.rpartition("/")[0]
                if listed in server.followed:
                    server._tell("MODIFIED" if before else "ADDED", document, listed)
                server.notify()
        if is_latest:
            self.answer(201 if kind == "post" else 200, document)
        else:
            self.refuse(409, "already exists" if kind == "post" else "the object has been modified")

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

    async def _admit(self, kind: str, parameters: dict[str, str]) -> bool:
        server = self.server
        authorization = self.headers.get("authorization")
        with server.changed:
            server.requests.append((kind, parameters))
            server.authorizations.append(authorization)
            impersonation = [
                (name, value.encode("latin-1").decode())
                for name, value in self.fields
                if name.startswith("impersonate-")
            ]
            if impersonation:
                server.impersonations.append(impersonation)
            faults = server.faults.get(kind)
            fault = faults.popleft() if faults else None
            server.notify()
        if server.token is not None and authorization != f"Bearer {server.token}":
            self.refuse(401, "Unauthorized")
        elif fault is not None:
            answering = fault(self)
            if answering is not None:
                await answering
        else:
            return True
        return False

    def _get(self, path: str, _: dict[str, str]) -> None:
        with self.server.changed:
            found = self.server.objects.get(path)
        if path in self.server.forbidden:
            self.refuse(403, f'"{path}" is forbidden')
        elif path in self.server.texts:
            self.begin_stream()
            for part in self.server.texts[path]:
                self.chunk(part)
            self.chunk(b"")
        elif found is None:
            self.refuse(404, f'"{path}" not found')
        else:
            self.answer(200, found)

    def _discover(self, path: str, _: dict[str, str]) -> None:
        self.answer(200, {"kind": "APIResourceList", "resources": self.server.resources[path]})

    def _list(self, path: str, parameters: dict[str, str]) -> None:
        server = self.server
        with server.changed:
            wanted = parameters.get("fieldSelector", "").removeprefix("metadata.name=")
            items = [found for name, found in server._listed(path) if wanted in ("", name)]
            self.answer_page(items, parameters)

    def answer_page(self, items: list[Json], parameters: dict[str, str]) -> None:
        """Answer with the page of a list that *parameters* ask for."""
        first, page = int(parameters.get("continue", 0)), self.server.page
        if self.server.limits_pages:
            page = min(page, int(parameters["limit"]))
        metadata = {"resourceVersion": str(self.server.version)}
        if first + page < len(items):
            metadata["continue"] = str(first + page)
        self.answer(200, {"kind": "AList", "items": items[first : first + page], "metadata": metadata})

    async def _watch(self, path: str, parameters: dict[str, str]) -> None:
        server, loop, changed = self.server, asyncio.get_running_loop(), asyncio.Event()
        is_list = "sendInitialEvents" in parameters
        if is_list and not server.has_watch_lists:
            self.refuse(422, "sendInitialEvents is forbidden for watch unless WatchList is enabled")
            return
        version = server.version if is_list else int(parameters["resourceVersion"])
        ends = loop.time() + int(parameters["timeoutSeconds"])
        self.begin_stream()
        with server.changed:
            if version < server.oldest:
                status = {"kind": "Status", "code": 410, "message": "too old resource version"}
                self.chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                self.chunk(b"")
                return
            if is_list:
                for event in server._all_events(path):
                    self.chunk(json.dumps(event).encode() + b"\n")
            server._watching.add(changed)
            server.watches += 1
            server.notify()
        # Nothing more is to come from a client, but its end.
        gone = asyncio.ensure_future(self.reader.read(1))
        seen = bisect_right(server.events, version, key=lambda event: event[0])
        try:
            while True:
                changed.clear()
                with server.changed:
                    lines = [line for _, of, line in server.events[seen:] if of == path]
                    seen = len(server.events)
                    is_over = self._epoch != server._epoch
                if is_over and server._is_abrupt:
                    if server._ending:
                        self.chunk(server._ending)
                    self.close_connection = True
                    return
                for line in lines:
                    # In two pieces, as a network may.
                    self.chunk(line[:7])
                    self.chunk(line[7:])
                if is_over or loop.time() >= ends:
                    break
                waking = asyncio.ensure_future(changed.wait())
                await asyncio.wait(
                    (gone, waking), timeout=ends - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                waking.cancel()
                if gone.done():
                    self.close_connection = True
                    return
            self.chunk(b"")
        finally:
            gone.cancel()
            # The reader may have one user at a time.
            await asyncio.wait((gone,))
            with server.changed:
                server._watching.discard(changed)
                server.watches -= 1
                server.notify()

    # -- used by faults ---------------------------------------------------------------------------

    def answer(self, status: int, what: Json) -> None:
        self.send(status, json.dumps(what).encode())

    def send(self, status: int, body: bytes, **headers: str) -> None:
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        self._begin(status, **fields)
        self._writer.write(body)

    def _begin(self, status: int, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())

    def refuse(self, status: int, message: str, **details: Any) -> None:
        self.answer(status, {"kind": "Status", "code": status, "message": message, "details": details})

    def begin_stream(self) -> None:
        self._begin(200, Transfer_Encoding="chunked")

    def chunk(self, piece: bytes) -> None:
        """Write a chunk; the empty one ends the answer."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))


def refuse(status: int, message: str = "refused", **details: Any) -> Fault:
    """A fault: a Status with an error."""
    return lambda handler: handler.refuse(status, message, **details)


def hang_up(handler: Handler) -> None:
    """A fault: the connection is closed without an answer."""
    handler.close_connection = True


async def hang(handler: Handler) -> None:
    """A fault: no answer until the client closes the connection."""
    handler.close_connection = True
    await handler.reader.read(1)


async def silence(handler: Handler) -> None:
    """A fault: a watch without events."""
    handler.begin_stream()
    await hang(handler)


def stream(*pieces: bytes, ends: bool = True) -> Fault:
    """A fault: a watch that sends these pieces, and then ends or stays open."""

    def fault(handler: Handler) -> None:
        handler.begin_stream()
        for piece in pieces:
            handler.chunk(piece)
        if ends:
            handler.chunk(b"")
        else:
            handler.close_connection = True

    return fault

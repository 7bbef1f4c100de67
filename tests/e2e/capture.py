"""The AdmissionReviews that an API server sends to a gateway, without a gateway."""

from __future__ import annotations

import json
import re
import ssl
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.direct import Answering
from tests.e2e.policy_comparison import Policies
from tests.e2e.setups import BehindGateway
from tests.recorded.recording import Review

if TYPE_CHECKING:
    Json = dict[str, Any]

VARYING: Final = (
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
"""Members of metadata that differ from one run to the next."""
GENERATED: Final = "00000"
"""Stands for the end of a generated name."""

UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CREATED: Final = "2026-01-01T00:00:00Z"
"""When namespaces were created, as far as a recording says."""
NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, canary: str) -> None:
        """*canary* is the label of the objects that get a warning."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.canary = canary
        self.captured: list[tuple[str, Json]] = []


class _Handler(Answering):
    server: _Server

    def do_POST(self) -> None:  # noqa: N802
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        path = self.path.partition("?")[0]
        self.server.captured.append((path, request))
        response: Json = {"uid": request["uid"], "allowed": True}
        labels = (request.get("object") or {}).get("metadata", {}).get("labels", {})
        if labels.get("canary") == self.server.canary:
            response["warnings"] = [f"{phase_of(path)} {self.server.canary}"]
        head = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview"}
        self.answer(200, json.dumps({**head, "response": response}).encode())


class Captured(BehindGateway):
    """A server in the place of a gateway: registered like it, it allows everything."""

    def start(self) -> None:
        """Serve, and register the server as `admission-gateway manifests` registers a gateway."""
        self.server = _Server(self.name)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*self.certificate)
        self.server.socket = tls.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self.server.server_address[1]
        thread = Thread(target=self.server.serve_forever)
        thread.start()
        self.stack.callback(self.server.server_close)
        self.stack.callback(thread.join)
        self.stack.callback(self.server.shutdown)
        self.write_configuration()
        self.register()

    def take(self, phase: str = "") -> tuple[Review, ...]:
        """Return the reviews since the last call, by path, or those of *phase*; equal ones are one."""
        captured, self.server.captured = self.server.captured, []
        found: dict[str, Review] = {}
        for path, request in sorted(captured, key=lambda each: each[0]):
            if phase and phase_of(path) != phase:
                continue
            stable = stable_request(request)
            text = json.dumps([phase_of(path), stable], sort_keys=True)
            paths = found[text].paths if text in found else ()
            # The API server calls again when an object was changed meanwhile.
            found[text] = Review(paths if path in paths else (*paths, path), stable)
        return tuple(found.values())


class CapturedPolicies(Captured, Policies):
    """A server in the place of a gateway with policies."""


def phase_of(path: str) -> str:
    """Return the phase of the webhooks at the *path* of a gateway."""
    return re.split("[./]", path)[1]


def stable_request(request: Json) -> Json:
    """Return *request* without what differs from one run to the next."""
    given = {key: value for key, value in request.items() if key != "uid" and value is not None}
    # Jobs have theirs in labels.
    kept: Json = json.loads(UUID.sub(NO_UUID, json.dumps(given)))
    for key in ("object", "oldObject"):
        if key in kept:
            kept[key] = stable_object(kept[key])
    if "name" in kept and kept.get("object", {}).get("metadata", {}).get("name", "").endswith(GENERATED):
        kept["name"] = kept["object"]["metadata"]["name"]
    return kept


def stable_object(document: Json) -> Json:
    """Return *document* without what differs from one request to the next."""
    if "metadata" not in document:
        return document
    metadata = {key: value for key, value in document["metadata"].items() if key not in VARYING}
    if "generateName" in metadata and "name" in metadata:
        metadata["name"] = metadata["generateName"] + GENERATED
    return {**document, "metadata": metadata}


def stable_namespace(document: Json) -> Json:
    """Return the namespace *document* as it is recorded."""
    stable = stable_object(document)
    return {**stable, "metadata": {**stable["metadata"], "creationTimestamp": CREATED}}

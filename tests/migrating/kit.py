"""An old engine as an HTTPS server, a worker in its place, and configurations of both."""

from __future__ import annotations

import base64
import json
import ssl
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import trustme
import yaml

from tests.core.build import document
from tests.kit import ThreadingServer, call_command, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Json = dict[str, Any]

SERVICE = "old-engine.policies.svc"
RULES = [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]

WORKER = '''\
"""The engine's policies in a worker, with a fault if there is one."""

import sys

from admission_gateway_worker import Denied, PolicyServer, Review

server = PolicyServer()
fault = sys.argv.pop(1)


def names(review):
    return review.object["metadata"].get("labels", {})


@server.policy("validation")
def validation(review: Review):
    """All constraints at once."""
    missing = [name for name in ("cost", "owner") if name not in names(review)]
    if fault == "forgets" and missing == ["owner"]:
        missing = []
    text = "%s: no label" if fault == "words" else "label %s is missing"
    if "old" in names(review):
        review.warn("the label old is old")
    if missing:
        lines = [f"[{name}s] {text % name}" for name in missing]
        raise Denied("\\n".join(reversed(lines) if fault == "order" else lines), code=403)


@server.policy("mutation", mutating=True)
def mutation(review: Review):
    """All mutators at once."""
    review.object["metadata"].setdefault("labels", {})["stamped"] = "no" if fault == "stamp" else "yes"


server.main()
'''


def answer(request: Json, path: str) -> Json:
    """The old engine's response to *request*: two labels are required, and one is set."""
    labels = request["object"]["metadata"].get("labels", {})
    if path == "/mutate":
        value = {"op": "add", "path": "/metadata/labels", "value": {**labels, "stamped": "yes"}}
        patch = base64.b64encode(json.dumps([value]).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}
    missing = [name for name in ("cost", "owner") if name not in labels]
    lines = "\n".join(f"[{name}s] label {name} is missing" for name in missing)
    warnings = ["the label old is old"] if "old" in labels else []
    status = {"status": {"code": 403, "message": lines}} if missing else {}
    return {"allowed": not missing, "warnings": warnings, **status}


class OldEngine:
    """A running engine, and its webhook configurations."""

    def __init__(self, port: int, ca: trustme.CA) -> None:
        self.port, self._ca = port, ca
        self.reviews: list[Json] = []

    def registrations(self, *, by_service: bool = False) -> list[Json]:
        """The webhook configurations as the engine registers them."""
        bundle = base64.b64encode(self._ca.cert_pem.bytes()).decode()

        def made(kind: str, path: str) -> Json:
            where: Json = {"url": f"https://localhost:{self.port}{path}"}
            if by_service:
                where = {"service": {"namespace": "policies", "name": "old-engine", "path": path}}
            webhook = {
                "name": f"{path[1:]}.old-engine.test",
                "clientConfig": {**where, "caBundle": bundle},
                "rules": RULES,
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            return {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind}WebhookConfiguration",
                "metadata": {"name": "old-engine"},
                "webhooks": [webhook],
            }

        return [made("Mutating", "/mutate"), made("Validating", "/validate")]


@contextmanager
def old_engine(folder: Path, answers: Callable[[Json, str], Json] = answer) -> Iterator[OldEngine]:
    """Run an engine that answers as *answers* says: a response for a request and a path."""
    ca = trustme.CA()
    issued = ca.issue_cert("localhost", SERVICE)
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "engine.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "engine.pem")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.reviews.append(review["request"])
            response = answers(review["request"], self.path.partition("?")[0])
            review = {**review, "response": {"uid": review["request"]["uid"], **response}}
            del review["request"]
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingServer(Handler, tls=tls)
    engine = OldEngine(server.server_port, ca)
    with serving(server):
        yield engine


def write(file: Path, *documents: Json) -> Path:
    """Write *documents* to *file*, whose folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(documents))
    return file


def new_configuration(folder: Path, fault: str = "none") -> Path:
    """Write the configuration with the worker to *folder*, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "worker.py").write_text(WORKER)
    pool = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "engine"},
        "spec": {"command": [sys.executable, str(folder / "worker.py"), fault]},
    }

    def made(kind: str, policy: str) -> Json:
        webhook = {
            "name": f"{policy}.engine.test",
            "clientConfig": {"worker": {"pool": "engine", "policy": policy}},
            "rules": RULES,
            "sideEffects": "None",
            "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "engine"},
            "webhooks": [webhook],
        }

    write(folder / "c.yaml", pool, made("Mutating", "mutation"), made("Validating", "validation"))
    return folder


def pod(number: int, **labels: str) -> Json:
    """An AdmissionRequest: the creation of a Pod with these labels."""
    name = f"web-{number}"
    found = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }
    return document(
        uid=f"u-{number}", name=name, namespace="shop", object=found, userInfo={"username": "ann"}
    )


def prove(*arguments: object, status: int = 0) -> Json:
    """Run the command, and return the report."""
    done = call_command("migrate", "prove", *arguments, "--json")
    assert done.returncode == status, (done.stdout, done.stderr)
    found: Json = json.loads(done.stdout)
    return found

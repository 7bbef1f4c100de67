"""What small reviews wait for beside large bodies and hostile webhooks: ``python -m tests.faults.latency``.

Prints milliseconds, and judges nothing: other processes of the machine count, too. Each line is one gateway
that reviews 6 KB Pods, one after another, by a worker, while something else happens to it.
"""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trustme

from tests.faults.hostile import HostileClient, post
from tests.faults.kit import SOME_PORT, configure, wait_until_ready
from tests.kit import REVIEWS, ROOT, GatewayProcess, WorkerProcess, pool_document, webhook_document
from tests.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 10.0
PERIOD_S = 0.01
SMALL = "/validate/small?timeout=20s"
POD = (REVIEWS / "pod-create-6kb.json").read_bytes()
MEGABYTE = 1024 * 1024
CHUNKED = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

HOSTILE_ANSWERS: dict[str, dict[str, object]] = {
    "chunks of one byte": {"chunked": 1, "zeros": 1_000_000},
    "chunk extensions": {"raw": CHUNKED + "1;a=", "pad": 16_000_000},
    "8 MB of empty lists": {"repeat": ["[", "[],", "0]"], "count": 2_700_000},
    "8 MB of nested lists": {"repeat": ["[", "[" * 200 + "]" * 200 + ",", "0]"], "count": 20_000},
    "a gzip bomb": {"gzip": True, "zeros": 50_000_000},
}


def review(update_bytes: int, item: bytes) -> bytes:
    """Return an UPDATE of an object of half of *update_bytes*, made of *item*."""
    document = json.loads((REVIEWS / "deployment-update.json").read_bytes())
    document["request"]["object"]["spec"] = document["request"]["oldObject"]["spec"] = "HERE"
    spec = b"[" + b",".join([item] * (update_bytes // 2 // (len(item) + 1))) + b"]"
    return json.dumps(document, separators=(",", ":")).encode().replace(b'"HERE"', spec)


def small_ones(gateway: GatewayProcess) -> list[float]:
    """Send small reviews for a while, one after another, and return how many seconds each took."""
    took: list[float] = []
    with HostileClient(gateway) as client:
        end = time.monotonic() + SECONDS
        while (begun := time.monotonic()) < end:
            client.send(post(SMALL, POD))
            status, _ = client.answer()
            assert status == 200
            took.append(time.monotonic() - begun)
            time.sleep(PERIOD_S)
    return took


def beside(gateway: GatewayProcess, clients: int, request: bytes) -> tuple[list[float], int]:
    """Return what small reviews took while each of so many *clients* sent *request* over and over.

    The clients are processes of their own, so that the one with small reviews does not wait for them here.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(request)
        file.flush()
        command = [sys.executable, "-m", "tests.faults.latency", str(gateway.port), file.name]
        others = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(clients)]
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()  # it has had its first answer
        took = small_ones(gateway)
        for other in others:
            other.terminate()
        return took, sum(int(other.communicate()[0].splitlines()[-1]) for other in others)


def send_over_and_over(port: int, request: bytes) -> None:
    """Send *request* until the process is terminated; print a line first, and last how often."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    count, is_over = 0, threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    with HostileClient(Address(port, context)) as client:
        while not is_over.is_set():
            client.send(request)
            client.answer()
            count += 1
            if count == 1:
                sys.stdout.write("first\n")
                sys.stdout.flush()
    sys.stdout.write(f"{count}\n")


@dataclass
class Address:
    """Where a gateway listens."""

    port: int
    client_context: ssl.SSLContext


def show(name: str, took: list[float], others: int) -> None:
    took.sort()
    p50, p99, most = (1000 * took[int(part * (len(took) - 1))] for part in (0.5, 0.99, 1.0))
    sys.stdout.write(f"{name:44} p50 {p50:7.1f}  p99 {p99:7.1f}  max {most:7.1f} ms, {others} beside\n")
    sys.stdout.flush()


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = trustme.CA()
        leaf = authority.issue_cert("localhost", "127.0.0.1")
        certificate = folder / "tls.crt", folder / "tls.key"
        leaf.cert_chain_pems[0].write_to_path(str(certificate[0]))
        leaf.private_key_pem.write_to_path(str(certificate[1]))
        worker = WorkerProcess(SOME_PORT)
        stack.callback(worker.stop)
        webhook = WebhookProcess(folder)
        stack.callback(webhook.stop)
        pods = {
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}]
        }
        labelled = {"objectSelector": {"matchLabels": {"nobody": "has"}}}
        conditions = {"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'nobody'"}]}
        documents = [
            pool_document("pool", worker.target),
            webhook_document("validate", "small", "pool", {}),
            webhook_document("validate", "pods", "pool", {}, **pods),
            webhook_document("validate", "labelled", "pool", {}, **labelled),
            webhook_document("validate", "all", "pool", {}),
            webhook_document("validate", "conditions", "pool", {}, **conditions),
            webhook_document(
                "mutate", "patched", "pool", {"patch": [{"op": "add", "path": "/metadata/a", "value": "b"}]}
            ),
        ]
        for number, script in enumerate(HOSTILE_ANSWERS.values()):
            documents.append(
                webhook_document(
                    "validate", f"hostile{number}", "pool", {}, clientConfig=webhook.client_config(script)
                )
            )
        (folder / "config").mkdir()
        gateway = GatewayProcess(configure(folder / "config", *documents), certificate, authority)
        stack.callback(gateway.stop)
        wait_until_ready(gateway, 1)
        measure(gateway)


def measure(gateway: GatewayProcess) -> None:
    cases: dict[str, Callable[[], tuple[list[float], int]]] = {
        "nothing else": lambda: (small_ones(gateway), 0)
    }
    pods = json.dumps(json.loads(POD)["request"]["object"], separators=(",", ":")).encode()
    shapes = {"Pods": pods, "numbers": b"1", "nested lists": b"[" * 200 + b"]" * 200}

    def add(name: str, clients: int, path: str, body: bytes) -> None:
        cases[name] = lambda: beside(gateway, clients, post(f"{path}?timeout=20s", body))

    for name, item in shapes.items():
        add(f"8 clients, 7 MiB of {name}, no match", 8, "/validate/pods", review(7 * MEGABYTE - 9000, item))
    update = review(6 * MEGABYTE, pods)
    for path in (
        "/validate/pods",
        "/validate/labelled",
        "/validate/all",
        "/validate/conditions",
        "/mutate/patched",
    ):
        add(f"1 client, 6 MiB updates, {path}", 1, path, update)
    for number, name in enumerate(HOSTILE_ANSWERS):
        add(f"4 clients, webhook answers {name}", 4, f"/validate/hostile{number}", POD)
    for name, measured in cases.items():
        show(name, *measured())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        send_over_and_over(int(sys.argv[1]), Path(sys.argv[2]).read_bytes())
    else:
        main()

"""``python -m tests.e2e.bench_audit``: an audit of many Pods in a kube-apiserver, its time and its memory.

No Pod has an owner, so each of them is evaluated. Half of them violate five of ten policies. The first audit
evaluates all and writes reports, the next ones go on from its state. ``many_pods.py`` makes the Pods.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import orjson
import yaml

from gateway.base.logs import print_output
from tests.audit.kit import policy_documents
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import Controllers
from tests.e2e.many_pods import NAMESPACES, NODES, Load, change, fill, pod
from tests.e2e.report_definitions import define_reports
from tests.kit import ROOT, free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

POLICIES: Final = 10
CHANGED: Final = 100
"""One of so many Pods is changed before the last audit."""


def measure(name: str, arguments: Sequence[object], cluster: Cluster | None) -> None:
    """Run an audit, and print its numbers, time, largest resident memory, and what it costs *cluster*."""
    before = None if cluster is None else Load.of(cluster)
    began = time.monotonic()
    command = [sys.executable, "-m", "gateway", "audit", *map(str, arguments), "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    report = json.loads(printed)
    print_output(
        f"{name}: {report['listed']:,} objects, {report['evaluated']:,} evaluated,"
        f" {report['denied']:,} denied, complete: {report['complete']}; {time.monotonic() - began:.0f} s,"
        f" {usage.ru_utime + usage.ru_stime:.0f} s of CPU, {usage.ru_maxrss / 1024:.0f} MiB"
    )
    if cluster is not None and before is not None:
        print_output(f"  {Load.of(cluster).since(before)}")


class Pages(BaseHTTPRequestHandler):
    """An API server that makes the Pods of each page up. It costs less than a real one, and holds none."""

    protocol_version = "HTTP/1.1"
    pods = 0

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        asked = dict(parse_qsl(query))
        first, limit = int(asked.get("continue", 0)), int(asked.get("limit", 1))
        pods = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["create", "list"]}
        found: dict[str, Any] = {"gitVersion": "v1", "resources": [pods] if path == "/api/v1" else []}
        if path == "/api/v1/namespaces":
            found = {"items": [{"metadata": {"name": f"n{n}"}} for n in range(NAMESPACES)], "metadata": {}}
        elif path == "/api/v1/pods":
            last = min(first + limit, self.pods)
            following = str(last) if last < self.pods else ""
            found = {"items": [stored(n) for n in range(first, last)], "metadata": {"continue": following}}
        body = orjson.dumps(found)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name there
        pass


def stored(number: int) -> dict[str, Any]:
    """Return a Pod as an API server has it."""
    found = pod(number)
    added = {"uid": f"uid-{number}", "resourceVersion": "1", "namespace": f"n{number % NAMESPACES}"}
    return {"metadata": {**found["metadata"], **added}, "spec": found["spec"], "status": {"phase": "Running"}}


def serve(pods: int, port: int) -> None:
    """Serve *pods* Pods on *port*."""
    Pages.pods = pods
    ThreadingHTTPServer(("127.0.0.1", port), Pages).serve_forever()


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--made-up", action="store_true", help="of a server that makes the Pods up")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = None
        if parsed.made_up:
            port, kubeconfig = free_port(), Path(folder) / "kubeconfig"
            server = multiprocessing.get_context("spawn").Process(target=serve, args=(parsed.pods, port))
            server.start()
            stack.callback(server.terminate)
            _write_kubeconfig(kubeconfig, port)
            eventually(lambda: is_open(port))
        else:
            binaries = obtain(VERSIONS[0])
            cluster = stack.enter_context(Cluster(binaries, Path(folder) / "cluster", audit=False))
            define_reports(cluster)
            # Without kwok from then on: it repeats updates of many Pods that it has made already.
            with Controllers(cluster, NODES, only_nodes=True):
                began = time.monotonic()
                fill(cluster, parsed.pods)
                print_output(f"created, and run by kwok, in {time.monotonic() - began:.0f} s")
            kubeconfig = cluster.kubeconfig()
        run(Path(folder), kubeconfig, parsed.pods, cluster)


def is_open(port: int) -> bool:
    """Whether somebody listens on *port*."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _write_kubeconfig(file: Path, port: int) -> None:
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    server = {"name": "a", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    document = {"contexts": [context], "clusters": [server], "users": [{"name": "a", "user": {}}]}
    file.write_text(
        yaml.safe_dump({**document, "current-context": "a", "kind": "Config", "apiVersion": "v1"})
    )


def run(folder: Path, kubeconfig: Path, pods: int, cluster: Cluster | None) -> None:
    """Measure the audits of one cluster."""
    config = folder / "config"
    config.mkdir()
    for n in range(POLICIES):
        expression = "'team' in object.metadata.labels" if n % 2 else "'app' in object.metadata.labels"
        (config / f"p{n}.yaml").write_text(yaml.safe_dump_all(policy_documents(f"p{n}", expression)))
    given = ("--config", config, "--kubeconfig", kubeconfig, "--kinds", "pods")
    state, rate = ("--state", folder / "state.db"), ("--requests-per-second", 1000)
    reports = ("--reports",) if cluster is not None else ()
    written = (*reports, "--jsonl", folder / "findings.jsonl", "--sqlite", folder / "findings.db")
    measure("first audit", (*given, *state, *rate, *written), cluster)
    print_output(f"state of {(folder / 'state.db').stat().st_size / 1_000_000:.0f} MB")
    measure("second audit", (*given, *state, *rate, *written), cluster)
    if cluster is not None:
        change(cluster, pods, CHANGED)
        measure("after a change of 1 % of the Pods", (*given, *state, *rate, *written), cluster)
    (config / "p0.yaml").write_text(yaml.safe_dump_all(policy_documents("p0", "true")))
    measure("after a change of a policy", (*given, *state, *rate, *written), cluster)
    measure("at 10 requests a second", (*given, *state, *reports), cluster)


if __name__ == "__main__":
    main()

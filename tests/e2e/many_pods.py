"""Many Pods in a kube-apiserver, and what an audit costs there.

kwok runs them on nodes that do not exist. They are created by several processes, in many namespaces and
without owners. They name their node: there is neither a scheduler nor another controller.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import urlopen

from tests.e2e.client import Api
from tests.e2e.cluster import ADMIN
from tests.kit import metric_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

CREATORS: Final = 4
THREADS: Final = 16
"""Of each."""
NAMESPACES: Final = 100
NODES: Final = 20
RUNNING_WITHIN_S: Final = 3600.0
POLL_EVERY_S: Final = 2.0


def pod(number: int) -> dict[str, Any]:
    """Return a Pod of some 4 KB as it is stored; every second one has a label."""
    environment = [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(10)]
    container = {
        "image": f"registry.example.com/team/app:{number % 100}",
        "env": environment,
        "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
    }
    labels = {"app": f"app-{number % 500}", **({"team": f"t{number % 20}"} if number % 2 else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"app-{number}", "labels": labels},
        "spec": {
            "nodeName": f"node-{number % NODES}",
            "containers": [{"name": name, **container} for name in ("main", "sidecar")],
        },
    }


def path_of(number: int) -> str:
    """Return the path of the Pods among which the one with *number* is."""
    return f"/api/v1/namespaces/n{number % NAMESPACES}/pods"


def _create(port: int, ca_file: Path, numbers: range) -> None:
    _each(port, ca_file, numbers, lambda api, n: api.create(path_of(n), pod(n)))


def _change(port: int, ca_file: Path, numbers: range) -> None:
    document = {"metadata": {"annotations": {"changed": "true"}}}
    _each(port, ca_file, numbers, lambda api, n: api.patch(f"{path_of(n)}/app-{n}", document))


def _each(port: int, ca_file: Path, numbers: range, send: Callable[[Api, int], Answer]) -> None:
    """Have several threads *send* a request for each of *numbers*."""
    api = Api(port, ca_file, ADMIN)
    with ThreadPoolExecutor(THREADS) as threads:
        for answer in threads.map(lambda number: send(api, number), numbers):
            assert answer.status in (200, 201, 409), answer


def fill(cluster: Cluster, pods: int) -> None:
    """Create so many Pods, which kwok runs at the end."""
    for n in range(NAMESPACES):
        cluster.api.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": f"n{n}"}})
    _share(cluster, _create, range(pods))
    waiting = "/api/v1/pods?limit=1&fieldSelector=status.phase%3DPending"
    give_up = time.monotonic() + RUNNING_WITHIN_S
    while cluster.api.get(waiting).document["items"]:
        assert time.monotonic() < give_up, "kwok does not run all Pods"
        time.sleep(POLL_EVERY_S)


def change(cluster: Cluster, number: int, every: int) -> None:
    """Change one of *every* Pods of the *number*."""
    _share(cluster, _change, range(0, number, every))


def _share(cluster: Cluster, do: Callable[[int, Path, range], None], numbers: range) -> None:
    """Have several processes *do* a part of *numbers* each."""
    context = multiprocessing.get_context("spawn")
    each = math.ceil(len(numbers) / CREATORS)
    parts = [numbers[n * each : (n + 1) * each] for n in range(CREATORS)]
    workers = [context.Process(target=do, args=(cluster.port, cluster.ca_file, part)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


@dataclass(frozen=True)
class Load:
    """What the API server and etcd have done until a moment."""

    lists: float
    """Requests for lists, by anybody."""
    writes: float
    """Of reports."""
    api_server_s: float
    """CPU time."""
    etcd_bytes: float
    """In use by its database, with the versions that were not compacted away."""

    @classmethod
    def of(cls, cluster: Cluster) -> Load:
        """Return that of *cluster* until now."""
        text = cluster.api.get("/metrics").text.decode()
        context = ssl.create_default_context(cafile=str(cluster.ca_file))
        with urlopen(f"{cluster.etcd}/metrics", context=context) as answer:
            etcd = answer.read().decode()
        name = "apiserver_request_total"
        lists = metric_of(text, name, {"verb": "LIST", "resource": "pods"})
        writes = [
            metric_of(text, name, {"verb": verb, "group": "openreports.io"})
            for verb in ("POST", "PUT", "DELETE")
        ]
        fields = Path(f"/proc/{cluster.api_server_pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return cls(
            lists,
            sum(writes),
            ticks / os.sysconf("SC_CLK_TCK"),
            metric_of(etcd, "etcd_mvcc_db_total_size_in_use_in_bytes", {}),
        )

    def since(self, before: Load) -> str:
        """Return what came since *before* as text."""
        return (
            f"{self.lists - before.lists:,.0f} lists, {self.writes - before.writes:,.0f} writes of reports,"
            f" {self.api_server_s - before.api_server_s:.0f} s of CPU of the API server,"
            f" {(self.etcd_bytes - before.etcd_bytes) / 2**20:+.1f} MiB in etcd"
        )

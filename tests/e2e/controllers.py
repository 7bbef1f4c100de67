"""The rest of a cluster: kube-controller-manager, kube-scheduler, and nodes that kwok simulates.

Limits of clients are set so high that the API server decides how fast Pods come into being.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import yaml

from tests.e2e.cluster import ADMIN, CONTROLLER_MANAGER, SCHEDULER
from tests.e2e.kubelet.nodes import LEASE_S, is_ready
from tests.kit import Process
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

REQUESTS_PER_S: Final = 10_000
SYNCS: Final = 50
"""Deployments and ReplicaSets that are synchronised at once; 5 by default."""
ZONES: Final = 3


class Controllers:
    """The controllers and nodes of a cluster, as long as the ``with`` block lasts."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: int,
        *manager_flags: str,
        have_kubelets: bool = False,
        only_nodes: bool = False,
    ) -> None:
        """Start everything and wait until *nodes* nodes take Pods.

        *manager_flags*: further ones of kube-controller-manager.
        *have_kubelets*: others make the nodes ready, and run their Pods; by default kwok plays them.
        *only_nodes*: without controllers and scheduler, for Pods that name their node.
        """
        self._cluster = cluster
        self._manager_flags = manager_flags
        self._stack = ExitStack()
        self.processes: dict[str, Process] = {}
        try:
            if not only_nodes:
                self._start_controller_manager()
                self._start_scheduler()
            if not have_kubelets:
                self._start_kwok()
            self._add_nodes(nodes, keeps_taints=only_nodes)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Controllers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, name: str, *command: object) -> None:
        process = Process(*map(str, command))
        self._stack.callback(process.stop)
        self.processes[name] = process

    def _start_controller_manager(self) -> None:
        cluster = self._cluster
        self._start(
            "kube-controller-manager",
            cluster.binaries.kube_controller_manager,
            *("--kubeconfig", cluster.kubeconfig(CONTROLLER_MANAGER)),
            # Each controller has an account of its own, to which the API server's roles are bound.
            *("--use-service-account-credentials", "--root-ca-file", cluster.ca_file),
            *("--leader-elect=false", "--secure-port=0"),
            *(f"--kube-api-qps={REQUESTS_PER_S}", f"--kube-api-burst={REQUESTS_PER_S}"),
            *(f"--concurrent-deployment-syncs={SYNCS}", f"--concurrent-replicaset-syncs={SYNCS}"),
            *self._manager_flags,
        )

    def _start_scheduler(self) -> None:
        cluster = self._cluster
        configuration = cluster.folder / "scheduler.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(cluster.kubeconfig(SCHEDULER)),
                "qps": REQUESTS_PER_S,
                "burst": REQUESTS_PER_S,
            },
            "leaderElection": {"leaderElect": False},
        }
        configuration.write_text(yaml.safe_dump(document))
        scheduler = cluster.binaries.kube_scheduler
        self._start("kube-scheduler", scheduler, "--config", configuration, "--secure-port=0")

    def _start_kwok(self) -> None:
        cluster = self._cluster
        self._start(
            "kwok",
            cluster.binaries.kwok,
            *("--kubeconfig", cluster.kubeconfig(ADMIN), "--config", cluster.binaries.kwok_stages),
            *("--manage-all-nodes", "--node-lease-duration-seconds", LEASE_S, "--v=WARN"),
        )

    def _add_nodes(self, count: int, *, keeps_taints: bool) -> None:
        """*keeps_taints*: no controller takes that of a new node away."""
        api = self._cluster.api
        for number in range(count):
            labels = {
                "kubernetes.io/hostname": f"node-{number}",
                "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
            }
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{number}", "labels": labels},
            }
            answer = api.create("/api/v1/nodes", node)
            assert answer.status == 201, answer

        def all_take_pods() -> bool:
            nodes = api.get("/api/v1/nodes").document["items"]
            return len(nodes) == count and all(
                is_ready(node) and (keeps_taints or not node["spec"].get("taints")) for node in nodes
            )

        try:
            eventually(all_take_pods)
        except AssertionError:
            logs = {name: process.log[-3000:] for name, process in self.processes.items()}
            raise AssertionError(f"the nodes take no Pods: {json.dumps(logs, indent=1)}") from None

"""A whole cluster whose Pods run: API server, controllers, scheduler, and the stand-in for the kubelet."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.e2e.cluster import Cluster
from tests.e2e.controllers import Controllers
from tests.e2e.kubelet.network import NODE_IP, private_network
from tests.kit import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.binaries import Binaries

NODES: Final = 3
FLAGS: Final = (
    # All addresses of the network; it has no way out.
    "--bind-address=0.0.0.0",
    f"--advertise-address={NODE_IP}",
    "--endpoint-reconciler-type=lease",
    "--allow-privileged",
)


@contextmanager
def whole_cluster(binaries: Binaries, folder: Path, *manager_flags: str) -> Iterator[Cluster]:
    """Run a cluster with three nodes, in a network of its own. Files of Pods are in ``folder / "pods"``.

    *manager_flags*: further ones of kube-controller-manager.
    """
    with (
        private_network(),
        Cluster(binaries, folder / "cluster", *FLAGS, service_accounts=True) as cluster,
    ):
        kubelet = Process(
            *(sys.executable, "-m", "tests.e2e.kubelet", "--port", str(cluster.port)),
            *("--cluster", str(cluster.folder), "--folder", str(folder / "pods")),
        )
        try:
            kubelet.expect("^running$")
            with Controllers(cluster, NODES, *manager_flags, have_kubelets=True):
                yield cluster
            assert kubelet.child.poll() is None, kubelet.log
        finally:
            kubelet.stop()

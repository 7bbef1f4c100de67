"""The nodes, as their kubelets keep them: Leases that do not end, and a status in which they are ready.

A file in the folder ``away`` takes the node of its name away, until it is removed.

Source: https://kubernetes.io/docs/reference/node/node-status/
"""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.client import APPLY, STRATEGIC_PATCH
from tests.e2e.kubelet.network import LOGS_PORT, NODE_IP

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Api

RENEW_EVERY_S: Final = 1.0
"""A kubelet renews its Lease every ten seconds."""
LEASE_S: Final = 40
READY: Final = {"type": "Ready", "status": "True"}
_CACHED: Final = "?resourceVersion=0"
_RESOURCES: Final = {"cpu": "1k", "memory": "1Ti", "pods": "1M"}
_STATUS: Final = {
    "addresses": [{"type": "InternalIP", "address": NODE_IP}],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": LOGS_PORT}},
    "capacity": _RESOURCES,
    "allocatable": _RESOURCES,
    "conditions": [
        {**READY, "reason": "KubeletReady"},
        *(
            {"type": kind, "status": "False", "reason": "None"}
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
        ),
    ],
}


class Nodes(threading.Thread):
    """Renews the Leases of the nodes that are not away."""

    def __init__(self, api: Api, folder: Path) -> None:
        """Take a client of its own, and the folder ``away``, which is made."""
        super().__init__(name="nodes", daemon=True)
        folder.mkdir(parents=True)
        self._api, self._folder = api, folder

    def away(self) -> set[str]:
        """Return the names of the nodes that are away."""
        return {file.name for file in self._folder.iterdir()}

    def run(self) -> None:
        """Run until the process ends."""
        while True:
            # The API server may be restarting.
            with contextlib.suppress(OSError):
                for node in self._api.get(f"/api/v1/nodes{_CACHED}").document.get("items", ()):
                    if node["metadata"]["name"] not in self.away():
                        self._renew(node)
            threading.Event().wait(RENEW_EVERY_S)

    def _renew(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": LEASE_S,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        self._api.patch(f"{path}?fieldManager=kubelet", lease, APPLY)
        if not is_ready(node):
            self._api.patch(f"/api/v1/nodes/{name}/status", {"status": _STATUS}, STRATEGIC_PATCH)


def is_ready(node: dict[str, Any]) -> bool:
    """Return whether the status of *node* has the condition Ready."""
    return any(READY.items() <= found.items() for found in node["status"].get("conditions", []))

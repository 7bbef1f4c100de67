"""A gateway that moves its policies to the API server."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.cluster import NAMESPACE
from tests.e2e.setups import REGISTRATIONS, BehindGateway, run_manifests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.kit import GatewayProcess

NOT_SYSTEM: Final = {
    "key": "kubernetes.io/metadata.name",
    "operator": "NotIn",
    "values": ["kube-system", NAMESPACE],
}
"""The namespaces that a registration leaves out, so that policies for the others can move."""


class Placing(BehindGateway):
    """A gateway with the policies *documents* in a file."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        documents: Sequence[dict[str, Any]],
        name: str = "placement",
        settle_s: int = 2,
    ) -> None:
        super().__init__(cluster, folder, [], name)
        self._documents = documents
        self._settle_s = settle_s
        self.placement = "Auto"

    def write_configuration(self) -> None:
        """Write the policies, and where they are to be evaluated."""
        self._gateway = {
            "kubernetes": {"kubeconfig": str(self.cluster.kubeconfig())},
            "kubernetesVersion": self.cluster.binaries.version,
            "policies": {
                "placement": self.placement,
                "installation": f"{NAMESPACE}/{self.name}",
                "settleSeconds": self._settle_s,
            },
        }
        text = "".join(json.dumps(each) + "\n---\n" for each in self._documents)
        (self.config / "policies.yaml").write_text(text)
        super().write_configuration()

    def place(self, placement: str) -> None:
        """Have policies evaluated elsewhere."""
        self.placement = placement
        self.write_configuration()

    def states(self, gateway: GatewayProcess) -> Counter[str]:
        """Return how many policies are in each state, by the overview of *gateway*."""
        status, text = gateway.admin("/?format=json")
        assert status == 200, text
        return Counter(one["state"] for one in json.loads(text)["placement"])

    def are_in_api_server(self, gateway: GatewayProcess) -> bool:
        """Whether the API server evaluates all policies, by the overview of *gateway*."""
        policies = sum(not one["kind"].endswith("Binding") for one in self._documents)
        return self.states(gateway) == {"APIServer": policies}

    def apply_registration(self) -> None:
        """Register the gateway for what it evaluates now."""
        done = run_manifests(
            *("--config", self.config, "--service", f"{NAMESPACE}/{self.name}:{self.port}"),
            *("--name", self.name, "--ca-file", self.cluster.ca_file, "--apply", "--force-conflicts"),
        )
        assert done.returncode == 0, done.stderr

    def is_registered_for_pods(self) -> bool:
        """Whether the API server sends the gateway pods."""
        resources = set()
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            document = self.cluster.api.get(f"{REGISTRATIONS}/{plural}/{self.name}").document
            for entry in document["webhooks"]:
                resources |= {one for each in entry["rules"] for one in each["resources"]}
        return "pods" in resources

    @property
    def pids(self) -> list[int]:
        return [self.gateway.child.pid]

"""Several gateways behind one Service, as a Deployment has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.service import ServiceProxy
from tests.e2e.setups import BehindGateway
from tests.kit import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.setups import Hook
    from tests.kit import GatewayProcess


class Replicas(BehindGateway):
    """Gateways behind one Service, ready and registered."""

    def __init__(
        self, cluster: Cluster, folder: Path, hooks: list[Hook], name: str, count: int = 2, **settings: Any
    ) -> None:
        """Take the arguments of ``BehindGateway``, and the *count* of gateways."""
        super().__init__(cluster, folder, hooks, name, **settings)
        self._count = count
        self.service = ServiceProxy()
        self.replicas: list[GatewayProcess] = []

    def start(self) -> None:
        self.write_configuration()
        self.start_worker()
        self.stack.enter_context(self.service)
        self.port = self.service.port
        for _ in range(self._count):
            self.scale_up()
        self.register()

    def scale_up(self) -> GatewayProcess:
        """Start a gateway, and list it once it is ready."""
        gateway = self.start_gateway(free_port())
        self.service.add(gateway)
        self.replicas.append(gateway)
        return gateway

    def forget(self, gateway: GatewayProcess) -> None:
        """Take *gateway* out of the Service."""
        self.service.remove(gateway)
        self.replicas.remove(gateway)

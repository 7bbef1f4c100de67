"""The Lease by which one of several replicas is the one that writes.

A holder renews the Lease. Another one takes it over if it has not changed for ``LEASE_S`` seconds of its own
clock, so that clocks need not agree. Every write names the version that was read.

Source: k8s.io/client-go tools/leaderelection.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.base.errors import ClusterError
from gateway.base.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.server.kubernetes.api_client import ApiClient

LEASE_S: Final = 20.0
_CONFLICT: Final = 409


class Lease:
    """The Lease *name* in *namespace*, which one of several holders has."""

    def __init__(self, namespace: str, name: str, holder: str, now: Callable[[], float]) -> None:
        self.name = name
        self._holder = holder
        self._now = now
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
        self.path = f"{self._collection}/{quote(name, safe='')}"
        self._seen: tuple[str, float] = ("", 0.0)
        """The version of the Lease of another holder, and when it was first seen."""
        self._until = 0.0

    @property
    def is_held(self) -> bool:
        """Whether this holder has it now: another one takes it over later."""
        return self._now() < self._until

    async def take(self, api: ApiClient) -> bool:
        """Take or renew the Lease if that is possible, and return whether this holder has it.

        Raises:
            ClusterError: it cannot be read or written.
        """
        began_at = self._now()
        found = await api.find(self.path)
        try:
            if found is None:
                metadata = {"name": self.name}
                document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
                await api.write("POST", self._collection, {**document, "spec": self._spec()})
            elif not self._is_free(found):
                return False
            else:
                await api.write("PUT", self.path, {**found, "spec": {**found["spec"], **self._spec()}})
        except ClusterError as error:
            if error.status != _CONFLICT:
                raise
            # Another one was faster.
            self._until = 0.0
            return False
        # A quarter is kept back for what is under way when it ends.
        self._until = began_at + 0.75 * LEASE_S
        return True

    async def release(self, api: ApiClient) -> None:
        """Leave the Lease to others at once.

        Raises:
            ClusterError: it cannot be read or written.
        """
        self._until = 0.0
        found = await api.find(self.path)
        if found is not None and found.get("spec", {}).get("holderIdentity") == self._holder:
            await api.write("PUT", self.path, {**found, "spec": {**found["spec"], "holderIdentity": ""}})

    def _is_free(self, found: dict[str, Any]) -> bool:
        holder = found.setdefault("spec", {}).get("holderIdentity") or ""
        if holder in ("", self._holder):
            return True
        self._until = 0.0
        version = found["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = version, self._now()
        return self._now() - self._seen[1] >= LEASE_S

    def _spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": int(LEASE_S),
            "renewTime": rfc3339(time.time(), 6),
        }

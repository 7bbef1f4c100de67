"""Whether the API server has the version of Kubernetes by which expressions are evaluated.

Source: k8s.io/apimachinery pkg/version/types.go (Info). Every user may read it, by the ClusterRole
system:public-info-viewer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ClusterError
from gateway.config.kinds.gateway_configuration import has_go_types
from gateway.pure.core.webhook import PolicyRef
from gateway.server.kubernetes.access import ClusterAccess

if TYPE_CHECKING:
    from admission_gateway_worker.kubernetes_client import Json
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

log = logging.getLogger(__name__)

CHECK_S: Final = 300.0
"""Between two requests of the version: a cluster is upgraded while the gateway runs."""
RETRY_S: Final = 10.0
VERSION: Final = "/version"
"""The path of the API server's version."""
ADVICE: Final = "set GatewayConfiguration.kubernetesVersion to the version of the cluster"
_MINOR: Final = re.compile(r"[0-9]{1,4}", re.ASCII)
"""Managed control planes append a plus sign."""


def minor_of(info: Json | None) -> int | None:
    """Return the minor version of Kubernetes 1 in *info*, the object at ``VERSION``, or None without one."""
    known = info or {}
    minor = _MINOR.match(str(known.get("minor")))
    return int(minor[0]) if minor is not None and known.get("major") == "1" else None


def version_difference(config: Config, minor: int | None) -> str:
    """Return how expressions of *config* differ from those of an API server of Kubernetes 1.*minor*.

    Empty if they do not differ, or there are none, or *minor* is None.
    """
    settings = config.gateway
    if minor is None or has_go_types(minor) == settings.has_go_types:
        return ""
    if not any(map(_has_expressions, config.webhooks)):
        return ""
    return (
        f"the API server has Kubernetes 1.{minor}, and expressions are evaluated as in "
        f"{settings.kubernetes_version}, which compares maps and lists otherwise"
    )


def _has_expressions(webhook: Webhook) -> bool:
    if isinstance(webhook.client, PolicyRef):
        # The gateway's own check of the authors of policies has the same results in all versions.
        return not webhook.client.checks_authors
    return webhook.match_conditions is not None


class ClusterVersion:
    """The version of a cluster's API server until :meth:`close`. Make it on a running event loop."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._access = ClusterAccess(settings)
        self._config: Config | None = None
        self.minor: int | None = None
        """That of Kubernetes 1. None as long as it is not known."""
        self._task: asyncio.Task[None] | None = None
        self.difference = ""
        """How expressions differ from those of the API server. Empty if they do not, as far as is known."""

    def activate(self, config: Config) -> None:
        """Compare the version with that of *config* from now on, and log each new difference."""
        self._config = config
        self._compare()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the requests."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._access.close()

    async def _run(self) -> None:
        while True:
            wait_s = CHECK_S
            try:
                async with self._access.api() as api:
                    self.minor = minor_of(await api.find(VERSION))
                self._compare()
            except ClusterError as error:
                # Others need the API server more, and say that it is away.
                log.debug("version of the API server is not known: %s", error)
                wait_s = RETRY_S
            await asyncio.sleep(wait_s)

    def _compare(self) -> None:
        before = self.difference
        self.difference = "" if self._config is None else version_difference(self._config, self.minor)
        if self.difference and self.difference != before:
            log.warning("other version of Kubernetes: %s: %s", self.difference, ADVICE)

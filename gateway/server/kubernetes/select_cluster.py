"""The cluster of a command: ``--kubeconfig`` and ``--context``, and the defaults."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.base.errors import GatewayError
from gateway.config.kinds.kubernetes_settings import KubernetesSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.base.errors import Problem
    from gateway.config.merge.model import Config


def add_arguments(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the options that select a cluster to *parser*; *purpose* ends the help: "the cluster to …"."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help=f"kubeconfig of the cluster {purpose}"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")


def with_custom_resources(
    config: Config, target: KubernetesSettings, refused: Callable[[Problem], None]
) -> Config:
    """Return *config* with the custom resources of the cluster *target*, if *config* enables them.

    *refused* is called with each problem of a resource.

    Raises:
        ClusterError: they cannot be read.
    """
    configured = config.gateway.kubernetes
    if configured is None or not configured.custom_resources:
        return config
    import asyncio

    from gateway.server.kubernetes.custom_resources import read_once

    return asyncio.run(read_once(target, config, refused))


def select(
    configured: KubernetesSettings | None, kubeconfig: Path | None, context: str | None
) -> KubernetesSettings:
    """Return the cluster that a command is for.

    In this order: *kubeconfig*; a kubeconfig in the configuration; $KUBECONFIG; the cluster of the pod that
    this runs in; ``~/.kube/config``. A configuration without a kubeconfig means the cluster of the gateway's
    pod, where this command may not run: it is ignored.

    Raises:
        GatewayError: there is none of them.
    """
    if kubeconfig is None and configured is not None and configured.kubeconfig is not None:
        return replace(configured, context=context or configured.context)
    if kubeconfig is None and (named := os.environ.get("KUBECONFIG")):
        if os.pathsep in named:
            raise GatewayError(f"KUBECONFIG names several files, {named}; use --kubeconfig FILE")
        kubeconfig = Path(named)
    # Set in every pod; a service account has no contexts.
    is_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and context is None
    if kubeconfig is None and not is_pod:
        kubeconfig = Path.home() / ".kube" / "config"
        if not kubeconfig.exists():
            raise GatewayError("no cluster: there is no ~/.kube/config; use --kubeconfig FILE")
    return KubernetesSettings(kubeconfig, context)

"""The options of kubectl, and those by which the gateway in a cluster is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.errors import GatewayError
from gateway.base.files import UnusableFileError
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli import admin_ports

if TYPE_CHECKING:
    import argparse

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings

DEFAULT_NAMESPACE: Final = "default"
"""Of objects, as for kubectl."""
_OF_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def add_cluster(parser: argparse.ArgumentParser, *namespace_options: str) -> None:
    """Add the options to *parser* that choose the cluster, and the gateway in it.

    *namespace_options* are further names of ``--gateway-namespace``.
    """
    cluster.add_arguments(parser, "to ask")
    add = parser.add_argument
    add(
        *namespace_options,
        "--gateway-namespace",
        dest="namespace",
        metavar="NS",
        help=f"namespace of the gateway (default: {admin_ports.DEFAULT_NAMESPACE}, or else the only one that "
        "has its pods)",
    )
    add(
        *("-l", "--selector"),
        metavar="LABELS",
        help=f"labels of the gateway's pods (default: {admin_ports.DEFAULT_SELECTOR})",
    )
    admin_ports.add_credentials(parser)
    add("-o", "--output", dest="json", choices=("json",), help="print JSON")
    parser.set_defaults(cluster=True, admin=None)


def add_namespace(parser: argparse.ArgumentParser, of_objects: str) -> None:
    """Add ``-n`` to *parser*; *of_objects* ends its help."""
    parser.add_argument("-n", "--namespace", dest="of_namespace", metavar="NS", help=of_objects)


def target_of(parsed: argparse.Namespace) -> KubernetesSettings:
    """Return the cluster that *parsed* chooses.

    Raises:
        GatewayError: there is none.
    """
    return cluster.select(None, parsed.kubeconfig, parsed.context)


def namespace_of(parsed: argparse.Namespace) -> str:
    """Return the namespace of objects that name none: that of ``-n``, or else of the kubeconfig's context.

    Raises:
        GatewayError: the kubeconfig cannot be read, or has no such context.
    """
    from gateway.config.kinds.kubeconfig import namespace_of as namespace_of_context
    from gateway.config.kinds.kubeconfig import read_document

    if parsed.of_namespace:
        return str(parsed.of_namespace)
    settings = target_of(parsed)
    if settings.kubeconfig is None:
        return _OF_POD.read_text().strip() if os.access(_OF_POD, os.R_OK) else DEFAULT_NAMESPACE
    try:
        found = namespace_of_context(read_document(settings.kubeconfig), settings.context)
    except UnusableFileError as error:
        raise GatewayError(error.about(settings.kubeconfig)) from error
    return found or DEFAULT_NAMESPACE

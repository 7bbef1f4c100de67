"""The options of ``preview`` that tell what validates objects as an API server does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Container, Mapping
    from contextlib import AsyncExitStack

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.tools.preview.model import Level
    from gateway.tools.preview.validation import Validator

_UNKNOWN_FIELDS: Final[Mapping[str, Level | None]] = {"strict": "error", "warn": "warning", "ignore": None}
"""The levels of ``--validate``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to *parser*."""
    parser.add_argument(
        "--validate",
        choices=tuple(_UNKNOWN_FIELDS),
        default="strict",
        help="what of fields that Kubernetes does not know, as with kubectl (default: %(default)s)",
    )
    parser.add_argument(
        "--server-dry-run",
        action="store_true",
        help="validate by a dry run of the cluster of --kubeconfig or --context, which creates nothing",
    )


def problem(parsed: argparse.Namespace) -> str:
    """Return what is wrong with the options; empty if nothing is."""
    lacks_cluster = parsed.server_dry_run and parsed.kubeconfig is None and parsed.context is None
    return "--server-dry-run needs --kubeconfig or --context" if lacks_cluster else ""


def validator(
    parsed: argparse.Namespace,
    minor: int,
    cluster: KubernetesSettings | None,
    namespaces: Container[str],
    custom: Container[tuple[str, str]],
    stack: AsyncExitStack,
) -> Validator:
    """Return what validates objects for Kubernetes 1.*minor*; *stack* releases it.

    *namespaces*, and the kinds in *custom* by group, are those that the input has itself.
    """
    from gateway.tools.preview.server_dry_run import ServerDryRun
    from gateway.tools.preview.validation import Validation

    if not parsed.server_dry_run or cluster is None:
        return Validation(minor, _UNKNOWN_FIELDS[parsed.validate], custom)
    server = ServerDryRun(cluster, namespaces, custom, is_strict=parsed.validate == "strict")
    stack.push_async_callback(server.close)
    return server

"""``admission-gateway manifests``: prints, applies or writes the objects that register the gateway."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.base.errors import GatewayError
from gateway.base.progress import Progress
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.manifests_options import add_options, registration_options, service_account
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.kinds.serving_settings import SelfManagedTls
    from gateway.config.merge.model import Config
    from gateway.tools.registration.backend import Backend
    from gateway.tools.registration.coverage_gaps import CoverageGap
    from gateway.tools.registration.plan import Plan

_NO_CA: Final = (
    "no --ca-file, so the objects have no caBundle: the API server verifies the gateway's certificate with "
    "the roots of its system, unless another component such as cert-manager adds a caBundle"
)

HELP: Final = Help(
    "Print or apply the objects that register the gateway in a cluster, for the webhooks of a configuration.",
    (
        ("print them", "manifests --config config --service policies/gateway"),
        ("apply them", "manifests --config config --service policies/gateway --apply"),
    ),
    "docs/install.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command to *parser*."""
    add_options(parser)
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print or apply the objects, and return the exit status. *refuse* prints a usage error and exits."""
    from gateway.config.merge.load import load
    from gateway.tools.registration.plan import plan

    if parsed.delete:
        return _delete(parsed, refuse)
    options = None if parsed.roles_for else registration_options(parsed, refuse)
    account = service_account(parsed, refuse) if parsed.roles_for else ("", "")
    config = files = load(parsed.config, () if parsed.ca_file is None else (parsed.ca_file,))
    kubernetes = config.gateway.kubernetes
    if kubernetes is not None and kubernetes.custom_resources:
        target = cluster.select(kubernetes, parsed.kubeconfig, parsed.context)
        config = cluster.with_custom_resources(
            config, target, lambda problem: logs.print_error(f"error: {problem}")
        )
    if options is None:
        return _print_roles(config, account)
    backend, ca_warnings = _trusting(options.backend, parsed.ca_file)
    if parsed.apply:
        began_at = time.monotonic()
        target = cluster.select(kubernetes, parsed.kubeconfig, parsed.context)
        if parsed.wait is not None:
            with Progress("waiting until the gateway is ready"):
                _wait(target, options.backend, parsed.wait)
        if parsed.workers:
            _check_workers(files, (parsed.wait or 0.0) - (time.monotonic() - began_at))
        if config.gateway.tls.self_managed is not None and parsed.ca_file is None:
            backend, ca_warnings = _trusting_own(backend, target, config.gateway.tls.self_managed)
    options = replace(options, backend=backend)
    with Progress("planning the registration"):
        made = plan(config, options)
    if parsed.apply:
        from gateway.tools.cli.manifests_apply import apply_unmoved

        with Progress("applying the registration"):
            made, result = apply_unmoved(config, options, made, target, parsed)
    elif parsed.static is not None:
        from gateway.tools.registration import static_manifests

        result = static_manifests.write(made, parsed.static)
    else:
        result = _as_yaml(made)
    gaps = [_describe(gap, options.backend.namespace) for gap in made.coverage_gaps]
    logs.print_error(
        *(f"warning: {warning}" for warning in (*config.warnings, *ca_warnings, *made.notes, *gaps))
    )
    logs.print_output(*result.splitlines())
    return 0


def _delete(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Delete the registration, so that API servers no longer call the gateway."""
    import asyncio

    from gateway.config.merge.load import load
    from gateway.server.kubernetes.apply import delete

    if parsed.apply or parsed.static is not None or parsed.wait is not None:
        refuse("--delete excludes --apply, --static and --wait")
    kubernetes = load(parsed.config).gateway.kubernetes if parsed.config else None
    target = cluster.select(kubernetes, parsed.kubeconfig, parsed.context)
    logs.print_output(*asyncio.run(delete(target, parsed.name)))
    return 0


def _print_roles(config: Config, account: tuple[str, str]) -> int:
    from gateway.config.merge.model import ca_bundle_sources
    from gateway.tools.registration.roles import (
        binding_roles,
        ca_bundle_roles,
        engine_roles,
        placement_roles,
        read_roles,
    )
    from gateway.tools.registration.yaml_output import to_yaml

    of_bundles = ca_bundle_roles(ca_bundle_sources(config), account)
    if not of_bundles:
        logs.print_error("no webhook has caBundleFrom: no rights are needed for it")
    policies = config.gateway.policies
    documents = [*of_bundles, *read_roles(policies.read_kinds, account)]
    documents += engine_roles(policies.followed_kinds, account)
    documents += binding_roles(config, account)
    documents += placement_roles(policies.installation, account)
    logs.print_output(*"---\n".join(map(to_yaml, documents)).splitlines())
    return 0


def _describe(gap: CoverageGap, own: str | None) -> str:
    from gateway.tools.registration.coverage_gaps import how_to_include

    names = ", ".join(gap.namespaces)
    noun = "namespace" if len(gap.namespaces) == 1 else "namespaces"
    ways = " and ".join(dict.fromkeys(how_to_include(name, own) for name in gap.namespaces))
    return f"{noun} {names} excluded: {gap}; to include, run manifests {ways}"


def _trusting(backend: Backend, ca_file: Path | None) -> tuple[Backend, list[str]]:
    """Return *backend* with the certificates of *ca_file* as caBundle, and warnings about them."""
    import datetime

    from gateway.base.files import UnusableFileError, read_file
    from gateway.tools.registration.backend import ca_bundle

    if ca_file is None:
        return backend, [_NO_CA]
    try:
        bundle, ca_warnings = ca_bundle(read_file(ca_file), datetime.datetime.now(datetime.UTC))
    except UnusableFileError as error:
        raise GatewayError(f"--ca-file: {ca_file} {error}") from None
    return replace(backend, ca_bundle=bundle), [f"--ca-file: {ca_file}: {warning}" for warning in ca_warnings]


def _trusting_own(
    backend: Backend, target: KubernetesSettings, own: SelfManagedTls
) -> tuple[Backend, list[str]]:
    """Return *backend* with the CA that the gateway issued itself as caBundle, and warnings about it."""
    import asyncio

    from gateway.base.errors import ClusterError
    from gateway.server.kubernetes.self_managed_tls import read_ca_bundle

    try:
        bundle = asyncio.run(read_ca_bundle(target, own))
    except ClusterError as error:
        name = "/".join(own.secret_key)
        return backend, [f"Secret {name}: {error}: the gateway adds its caBundle itself, seconds later"]
    return replace(backend, ca_bundle=bundle), []


def _as_yaml(made: Plan) -> str:
    """Return the documents of *made* as YAML, after a comment with the command that removes them."""
    from gateway.tools.registration.yaml_output import to_yaml

    kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    head = (
        "# Made by admission-gateway manifests, from the configuration that the gateway serves.\n"
        f"# Locked out? kubectl delete {kinds} {made.name}\n"
    )
    return head + "---\n".join(map(to_yaml, made.documents))


def _wait(target: KubernetesSettings, backend: Backend, seconds: float) -> None:
    import asyncio

    from gateway.server.kubernetes.apply import wait_for_endpoint

    assert backend.service is not None
    asyncio.run(wait_for_endpoint(target, backend.service[:2], seconds))


def _check_workers(files: Config, wait_s: float) -> None:
    """Print what is wrong with the workers of *files*, which have *wait_s* seconds to become reachable.

    Workers of the gateway's own machine cannot be reached from here. Custom resources are left out: others
    write them, and each has a status of its own.

    Raises:
        GatewayError: a policy is not served, or its parameters are refused, or no worker is reachable.
    """
    import asyncio

    from gateway.tools.inspection.workers import REACHED_WITHIN_S, check_workers, in_network

    config, local = in_network(files)
    with Progress("looking the policies up at their workers"):
        found = asyncio.run(check_workers(config, max(REACHED_WITHIN_S, wait_s)))
    logs.print_error(*found)
    if local:
        logs.print_error(f"worker pools of the gateway's own machine are not checked: {', '.join(local)}")
    errors = sum(one.severity == "error" for one in found)
    if errors:
        what = "1 error" if errors == 1 else f"{errors} errors"
        raise GatewayError(f"nothing was applied, the registration stays as it was: {what} about workers")

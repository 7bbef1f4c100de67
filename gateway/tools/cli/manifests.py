"""``admission-gateway manifests``: prints, applies or writes the objects that register the gateway."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.base.errors import GatewayError
from gateway.base.progress import Progress
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.arguments import add_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.kinds.serving_settings import SelfManagedTls
    from gateway.config.merge.model import Config
    from gateway.tools.registration.backend import Backend
    from gateway.tools.registration.coverage_gaps import CoverageGap
    from gateway.tools.registration.plan import Plan, RegistrationOptions

FIELD_MANAGER: Final = "admission-gateway"
_NO_CA: Final = (
    "no --ca-file, so the objects have no caBundle: the API server verifies the gateway's certificate with "
    "the roots of its system, unless another component such as cert-manager adds a caBundle"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add_config(parser, required=False)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--service", metavar="NS/NAME[:PORT]", help="Service of the gateway")
    where.add_argument("--url", metavar="URL", help="https URL of a gateway outside the cluster")
    where.add_argument(
        "--delete",
        action="store_true",
        help="delete the objects called --name from the cluster instead; needs no --config",
    )
    where.add_argument(
        "--roles-for",
        metavar="NS/NAME",
        help="instead print the roles by which the service account NS/NAME may read what caBundleFrom names, "
        "and the parameters of policies.paramKinds",
    )
    add = parser.add_argument
    add("--ca-file", metavar="FILE", type=Path, help="CA of the gateway's certificate, PEM, for caBundle")
    add(
        "--name",
        default="admission-gateway",
        metavar="NAME",
        help="name of both objects (default: %(default)s)",
    )
    add(
        "--split-mutating",
        action="store_true",
        help="write a mutating entry for each failurePolicy; order is kept within an entry only",
    )
    add(
        "--exclude-namespace",
        metavar="NS",
        action="append",
        default=[],
        help="exclude NS, in addition to the gateway's own namespace and kube-system; may be repeated",
    )
    add(
        "--include",
        metavar="NAME",
        action="append",
        default=[],
        help="do not exclude own-namespace or kube-system, or do not exclude leases.coordination.k8s.io or "
        "events from wildcards; may be repeated",
    )
    add(
        "--annotation",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="annotate both objects, as with cert-manager.io/inject-ca-from=NS/NAME; may be repeated",
    )
    add("--apply", action="store_true", help="apply the objects instead of printing them")
    add(
        "--if-registered",
        action="store_true",
        help="with --apply: create no object, so that a registration that was deleted stays deleted",
    )
    add(
        "--wait",
        metavar="SECONDS",
        type=float,
        help="with --apply: wait up to SECONDS until the Service has a ready endpoint, and fail otherwise",
    )
    add(
        "--workers",
        action="store_true",
        help="with --apply: first look the policies up at the workers in the network, for which --wait "
        "waits too, and apply nothing if one is not served or refuses its parameters",
    )
    add(
        "--static",
        metavar="FOLDER",
        type=Path,
        help="with --url: write the objects as files for the API server's staticManifestsDir "
        "(Kubernetes 1.37), and print the AdmissionConfiguration that names them",
    )
    cluster.add_arguments(parser, "to apply to")
    add(
        "--force-conflicts",
        action="store_true",
        help="with --apply: take over fields of other field managers",
    )
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print or apply the objects, and return the exit status. *refuse* prints a usage error and exits."""
    from gateway.config.merge.load import load
    from gateway.tools.registration.plan import plan

    if parsed.delete:
        return _delete(parsed, refuse)
    if not parsed.config:
        refuse("the following arguments are required: --config")
    options = None if parsed.roles_for else _options(parsed, refuse)
    account = _account(parsed, refuse) if parsed.roles_for else ("", "")
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
    with Progress("planning the registration"):
        made = plan(config, replace(options, backend=backend))
    if parsed.apply:
        with Progress("applying the registration"):
            result = _apply(made, target, parsed)
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


def _account(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> tuple[str, str]:
    """Return namespace and name of the service account of ``--roles-for``."""
    from gateway.config.kinds.names import dns_1123_label, dns_1123_subdomain

    namespace, _, name = parsed.roles_for.partition("/")
    if parsed.apply or parsed.static is not None or parsed.wait is not None:
        refuse("--roles-for excludes --apply, --static and --wait")
    if message := dns_1123_label(namespace) or dns_1123_subdomain(name):
        refuse(f"argument --roles-for: expected NAMESPACE/NAME: {message}")
    return namespace, name


def _print_roles(config: Config, account: tuple[str, str]) -> int:
    from gateway.config.merge.model import ca_bundle_sources
    from gateway.tools.registration.roles import ca_bundle_roles, param_roles
    from gateway.tools.registration.yaml_output import to_yaml

    of_bundles = ca_bundle_roles(ca_bundle_sources(config), account)
    if not of_bundles:
        logs.print_error("no webhook has caBundleFrom: no rights are needed for it")
    documents = [*of_bundles, *param_roles(config.gateway.policies.param_kinds, account)]
    logs.print_output(*"---\n".join(map(to_yaml, documents)).splitlines())
    return 0


def _describe(gap: CoverageGap, own: str | None) -> str:
    from gateway.tools.registration.coverage_gaps import how_to_include

    names = ", ".join(gap.namespaces)
    noun = "namespace" if len(gap.namespaces) == 1 else "namespaces"
    ways = " and ".join(dict.fromkeys(how_to_include(name, own) for name in gap.namespaces))
    return f"{noun} {names} excluded: {gap}; to include, run manifests {ways}"


def _options(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> RegistrationOptions:
    from gateway.base.text import did_you_mean, one_of, shown
    from gateway.config.kinds.names import configuration_name, dns_1123_label, webhook_name
    from gateway.pure.core.versions import LONGEST_KEY
    from gateway.tools.registration.exclusions import INCLUDABLE, KUBE_SYSTEM
    from gateway.tools.registration.plan import RegistrationOptions, entry_name

    backend = _backend(parsed, refuse)
    # The longest name of all entries.
    longest = entry_name(parsed.name, "validate", "Ignore", "k" * LONGEST_KEY, 1)
    if message := configuration_name(parsed.name) or webhook_name(longest):
        refuse(f"argument --name: {message}")
    for namespace in parsed.exclude_namespace:
        if message := dns_1123_label(namespace):
            refuse(f"argument --exclude-namespace: {message}")
    for word in parsed.include:
        if word not in INCLUDABLE:
            hint = did_you_mean(word, INCLUDABLE)
            refuse(f"argument --include: found {shown(word)}, expected {one_of(INCLUDABLE)}{hint}")
    if KUBE_SYSTEM in parsed.include and KUBE_SYSTEM in parsed.exclude_namespace:
        refuse(f"--include {KUBE_SYSTEM} and --exclude-namespace {KUBE_SYSTEM} contradict each other")
    if parsed.wait is not None and (parsed.service is None or not parsed.apply):
        refuse("--wait needs --service and --apply")
    if parsed.static is not None and (parsed.url is None or parsed.apply):
        refuse(
            "--static needs --url, and excludes --apply: files can name no Service, and are not in the API"
        )
    for option in ("kubeconfig", "context", "force_conflicts", "if_registered", "workers"):
        if getattr(parsed, option) and not parsed.apply:
            refuse(f"--{option.replace('_', '-')} needs --apply")
    return RegistrationOptions(
        backend=backend,
        name=parsed.name,
        split_mutating=parsed.split_mutating,
        excluded_namespaces=tuple(parsed.exclude_namespace),
        included=frozenset(parsed.include),
        annotations=_annotations(parsed.annotation, refuse),
    )


def _annotations(given: list[str], refuse: Callable[[str], object]) -> tuple[tuple[str, str], ...]:
    from gateway.base.text import shown
    from gateway.config.kinds.names import qualified_name

    split = [text.partition("=") for text in given]
    for key, equals, _ in split:
        message = qualified_name(key) if equals else f"found {shown(key)}, expected KEY=VALUE"
        if message:
            refuse(f"argument --annotation: {message}")
    return tuple((key, value) for key, _, value in split)


def _backend(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> Backend:
    from gateway.tools.registration.backend import Backend, parse_service, parse_url

    option, text, parse = "--service", parsed.service, parse_service
    if text is None:
        option, text, parse = "--url", parsed.url, parse_url
    try:
        return parse(text)
    except ValueError as error:
        refuse(f"argument {option}: {error}")
        return Backend()


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


def _apply(made: Plan, target: KubernetesSettings, parsed: argparse.Namespace) -> str:
    import asyncio

    from gateway.server.kubernetes.apply import apply

    # An absent list removes entries too, and an empty list would count as a change each time.
    documents = [
        {key: value for key, value in document.items() if key != "webhooks" or value}
        for document in made.documents
    ]
    applying = apply(
        target,
        documents,
        field_manager=FIELD_MANAGER,
        force=parsed.force_conflicts,
        creates=not parsed.if_registered,
    )
    lines = asyncio.run(applying)
    return "".join(f"{line}\n" for line in lines)

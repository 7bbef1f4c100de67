"""The options of ``admission-gateway manifests``, and the errors in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.arguments import add_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.tools.cli.parser import Parser
    from gateway.tools.registration.backend import Backend
    from gateway.tools.registration.plan import RegistrationOptions


def add_options(parser: Parser) -> None:
    """Add the options to *parser*."""
    add_config(parser, unless="delete")
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
        help="instead print the roles by which the service account NS/NAME may read what caBundleFrom, "
        "policies.paramKinds and policies.resources name, and the policies of policies.customResourcesOf",
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


def service_account(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> tuple[str, str]:
    """Return namespace and name of the service account of ``--roles-for``."""
    from gateway.config.kinds.names import dns_1123_label, dns_1123_subdomain

    namespace, _, name = parsed.roles_for.partition("/")
    if parsed.apply or parsed.static is not None or parsed.wait is not None:
        refuse("--roles-for excludes --apply, --static and --wait")
    if message := dns_1123_label(namespace) or dns_1123_subdomain(name):
        refuse(f"argument --roles-for: expected NAMESPACE/NAME: {message}")
    return namespace, name


def registration_options(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> RegistrationOptions:
    """Return the options of the registration. *refuse* prints a usage error and exits."""
    from gateway.base.text import did_you_mean, one_of, shown
    from gateway.config.kinds.names import configuration_name, dns_1123_label, webhook_name
    from gateway.config.kinds.namespace import KUBE_SYSTEM
    from gateway.pure.core.versions import LONGEST_KEY
    from gateway.tools.registration.exclusions import INCLUDABLE
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

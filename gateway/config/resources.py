"""The gateway's own kinds, WorkerPool and GatewayConfiguration, and Kubernetes' Namespace.

Paths of files are relative to the folder of the file that names them. A WorkerPool from the cluster may not
name files, sockets or programs of the gateway's machine: its author may choose the workers, and nothing else.

Source for Namespace: k8s.io/kubernetes pkg/apis/core/v1/defaults.go (the label with its name),
pkg/apis/core/validation/validation.go (its syntax).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, get_args

import orjson

from gateway.base.text import described, one_of, shown
from gateway.config import addresses
from gateway.config.credential_files import (
    read_basic_auth_file,
    read_ca_bundle,
    read_ca_file,
    read_key_pair,
    read_token_file,
)
from gateway.config.kubeconfig import read_kubernetes
from gateway.config.logging_settings import read_logging
from gateway.config.metadata import read_metadata
from gateway.config.model import (
    NEWEST_VERSION,
    Authentication,
    GatewaySettings,
    Hedge,
    PageSettings,
    PolicySource,
    SelfManagedTls,
    ServerTls,
    TransportMode,
    WorkerPool,
    WorkerTls,
)
from gateway.config.names import configuration_name, dns_1123_label, dns_1123_subdomain
from gateway.config.policy_settings import read_policy_settings
from gateway.config.record_settings import read_record
from gateway.config.report_settings import read_reports
from gateway.config.tracing_settings import read_tracing
from gateway.config.webhook_token_settings import read_webhook_tokens
from gateway.config.webhook_users import read_webhook_users
from gateway.pure.core.annotations import AuditLevel
from gateway.pure.core.decision import DecisionReference
from gateway.pure.core.durations import format_duration, parse_duration
from gateway.pure.core.namespace import Namespace

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.fields import Fields

TRANSPORTS: tuple[TransportMode, ...] = get_args(TransportMode)
POLICY_SOURCES: tuple[PolicySource, ...] = get_args(PolicySource)
REFERENCES: tuple[DecisionReference, ...] = get_args(DecisionReference)
AUDIT_LEVELS: tuple[AuditLevel, ...] = get_args(AuditLevel)
NAME_LABEL = "kubernetes.io/metadata.name"

MAX_IN_FLIGHT = 1_000_000
"""Calls or reviews at once; even at a kilobyte each, a gigabyte."""
MAX_PROCESSES = 1024
REQUEST_BYTES = (1024, 64 * 1024 * 1024)
"""The least is that of an empty review; the most is ten times that of the API server."""
MAX_BYTES_IN_FLIGHT = 1024**4
"""More than a machine has."""
LONGEST_RESERVE_S = 30.0
"""The longest budget that a review can have."""
LONGEST_DRAIN_S = 3600.0
LONGEST_HEDGE_S = 30.0
"""The longest time of a review."""
PERCENTILE = re.compile(r"p([5-9][0-9](?:\.[0-9]{1,6})?)")
"""At most six decimals: with more, 99.9… would round to 100."""


def read_worker_pool(fields: Fields, folder: Path | None) -> WorkerPool:
    """Return the WorkerPool behind *fields*, which stand in a file in *folder*; None: in the cluster."""
    name = read_metadata(fields, dns_1123_subdomain).name
    spec = fields.required_mapping("spec")
    fields.finish()
    if spec is None:
        return WorkerPool(name)
    ways = ("target", "targets", "command") if folder else ("target", "targets")
    given = [way for way in ways if spec.has(way)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        spec.report.add(spec.path, f"found {found}, expected exactly one of {one_of(ways)}")
    targets = _read_targets(spec, folder)
    if folder is None:
        _refuse_local(spec)
    pool = WorkerPool(
        name,
        targets=targets,
        command=_read_command(spec),
        transport=spec.choice("transport", TRANSPORTS, "Auto"),
        max_in_flight=spec.integer("maxInFlight", WorkerPool("").max_in_flight, 1, MAX_IN_FLIGHT),
        tls=_read_worker_tls(spec.mapping("tls"), folder),
        hedge=_read_hedge(spec.mapping("hedge")),
        policies=spec.choice("policies", POLICY_SOURCES, "Own"),
    )
    if pool.tls and (pool.command or any(map(addresses.is_local, targets))):
        spec.problem(
            "tls",
            "is not allowed with a command or a unix socket: their connections do not leave this machine",
        )
    if pool.hedge and (pool.command or (len(targets) == 1 and addresses.is_local(targets[0]))):
        spec.report.warn(spec.at("hedge"), "has no effect: the pool has only one endpoint")
    spec.finish()
    return pool


def _refuse_local(spec: Fields) -> None:
    """Report the fields that a custom resource may not have; ``spec`` does not read ``command`` then."""
    if spec.has("command"):
        spec.problem("command", "is not allowed in a custom resource, expected target or targets")
    tls = spec.content.get("tls")
    for name in ("caFile", "certFile", "keyFile"):
        if isinstance(tls, dict) and tls.get(name) is not None:
            message = "is not allowed in a custom resource, expected caBundle"
            spec.report.add(f"{spec.at('tls')}.{name}", message)


def _read_targets(spec: Fields, folder: Path | None) -> tuple[str, ...]:
    targets: list[str] = []
    seen: set[str] = set()
    texts = []
    for name in ("target", "targets"):
        if name == "targets" or isinstance(spec.content.get(name), list):
            texts += spec.indexed_strings(name, addresses.target)
            if spec.content.get(name) == []:
                spec.problem(name, "is empty, expected at least one gRPC name")
        elif (text := spec.string(name, None, addresses.target)) is not None:
            texts.append((spec.at(name), text))
    for path, text in texts:
        if folder is None and addresses.is_local(text):
            reason = "expected a network address: a custom resource may not name unix sockets"
            spec.report.add(path, f"found {shown(text)}, {reason}")
            continue
        resolved = text if folder is None else addresses.below(folder, text)
        spec.report.named_files[resolved] = text
        if resolved in seen:
            spec.report.add(path, f"found {shown(text)} twice")
        seen.add(resolved)
        message = addresses.target(resolved)
        if message and not addresses.target(text):
            spec.report.add(path, message)
        targets.append(resolved)
    return tuple(targets)


def _read_command(spec: Fields) -> tuple[str, ...]:
    arguments = spec.strings("command", lambda text: "contains a NUL character" if "\0" in text else None)
    value = spec.content.get("command")
    if isinstance(value, list) and (not value or value[0] == ""):
        spec.problem(
            "command",
            "is empty, expected a program and its arguments such as "
            "[python, -m, admission_gateway_worker.samples]",
        )
    return arguments


def _read_worker_tls(fields: Fields | None, folder: Path | None) -> WorkerTls | None:
    if fields is None:
        return None
    files = WorkerTls()
    if folder is not None:
        pair = read_key_pair(fields, folder)
        ca_file = read_ca_file(fields, "caFile", folder)
        files = WorkerTls(ca_file=ca_file, cert_file=pair.cert_file, key_file=pair.key_file)
    else:
        fields.accept("caFile", "certFile", "keyFile")
    tls = replace(
        files,
        ca_bundle=read_ca_bundle(fields, "caBundle"),
        server_name=fields.string("serverName", None, addresses.server_name),
    )
    if fields.has("caFile") and fields.has("caBundle"):
        fields.problem("caBundle", "is not allowed together with caFile")
    fields.finish()
    return tls


def _read_hedge(fields: Fields | None) -> Hedge | None:
    if fields is None:
        return None
    default = Hedge()
    after_s, percentile = _read_hedge_after(fields, default)
    budget_percent = fields.number("budgetPercent", default.budget_percent, 0, 100)
    if not budget_percent:
        found = described(fields.content["budgetPercent"])
        fields.problem("budgetPercent", f"found {found}, expected more than 0; leave out hedge for no hedges")
    fields.finish()
    return Hedge(after_s, percentile, budget_percent)


def _read_hedge_after(fields: Fields, default: Hedge) -> tuple[float | None, float]:
    """Return the time in seconds, or None and the percentile."""
    if not fields.has("after"):
        return default.after_s, default.percentile
    value = fields.content["after"]
    if isinstance(value, str):
        if percentile := PERCENTILE.fullmatch(value):
            return None, float(percentile[1])
        try:
            after_s = parse_duration(value)
        except ValueError:
            after_s = 0.0
        if 0 < after_s <= LONGEST_HEDGE_S:
            return after_s, default.percentile
    longest = format_duration(LONGEST_HEDGE_S)
    fields.problem(
        "after",
        f"found {described(value)}, expected a duration such as 20ms, more than 0 and at most {longest}, "
        "or a percentile of the pool's own latencies from p50 to p99.9",
    )
    return default.after_s, default.percentile


_VERSION: Final = re.compile(r"v?1\.([1-9][0-9]{1,2})(\.(0|[1-9][0-9]{0,2}))?", re.ASCII)
_OLDEST_MINOR: Final = 30


def _read_version(fields: Fields) -> str:
    """Return ``kubernetesVersion`` as MAJOR.MINOR, at most the newest version that is known."""
    text = fields.string("kubernetesVersion", NEWEST_VERSION, _not_a_version)
    match = _VERSION.fullmatch(text)
    newest = int(NEWEST_VERSION.partition(".")[2])
    return NEWEST_VERSION if match is None else f"1.{min(int(match[1]), newest)}"


def _not_a_version(text: str) -> str | None:
    match = _VERSION.fullmatch(text)
    if match is not None and int(match[1]) >= _OLDEST_MINOR:
        return None
    return f"found {shown(text)}, expected a version of Kubernetes from 1.{_OLDEST_MINOR} on, such as 1.36"


def read_gateway_configuration(fields: Fields, folder: Path) -> GatewaySettings:
    """Return the GatewayConfiguration behind *fields*, which stand in a file in *folder*."""
    default = GatewaySettings()
    read_metadata(fields, dns_1123_subdomain, required=False)
    limits = fields.group("limits")
    settings = GatewaySettings(
        listen=fields.string("listen", default.listen, addresses.listen_address),
        admin_listen=fields.string("adminListen", default.admin_listen, addresses.listen_address),
        processes=fields.integer("processes", default.processes, 1, MAX_PROCESSES),
        tls=_read_server_tls(fields.group("tls"), folder),
        authentication=_read_authentication(fields.group("authentication"), folder),
        pages=_read_pages(fields.group("pages"), folder),
        max_request_bytes=limits.integer("maxRequestBytes", default.max_request_bytes, *REQUEST_BYTES),
        max_concurrent_reviews=limits.integer(
            "maxConcurrentReviews", default.max_concurrent_reviews, 1, MAX_IN_FLIGHT
        ),
        max_bytes_in_flight=limits.integer(
            "maxBytesInFlight", default.max_bytes_in_flight, REQUEST_BYTES[0], MAX_BYTES_IN_FLIGHT
        ),
        deadline_reserve_s=fields.duration(
            "deadlineReserve", default.deadline_reserve_s, 0, LONGEST_RESERVE_S
        ),
        drain_s=fields.number("drainSeconds", default.drain_s, 0, LONGEST_DRAIN_S),
        audit_level=fields.choice("auditLevel", AUDIT_LEVELS, default.audit_level),
        decision_reference=fields.choice("decisionReference", REFERENCES, default.decision_reference),
        webhook_users=read_webhook_users(fields, "webhookKubeConfigFile", folder),
        kubernetes=read_kubernetes(fields.mapping("kubernetes"), folder),
        logging=read_logging(fields.group("logging"), folder),
        reports=read_reports(fields.mapping("reports")),
        tracing=read_tracing(fields.mapping("tracing"), folder),
        record=read_record(fields.mapping("record"), folder),
        policies=read_policy_settings(fields.group("policies")),
        kubernetes_version=_read_version(fields),
        image_review_webhooks=_read_image_review(fields.mapping("imageReview")),
    )
    if settings.tls.self_managed is not None and settings.kubernetes is None:
        fields.report.add(
            f"{fields.at('tls')}.selfManaged", "requires kubernetes: the certificate is kept in a Secret"
        )
    has_custom_resources = settings.kubernetes is not None and settings.kubernetes.custom_resources
    if settings.policies.param_kinds and not has_custom_resources:
        path = f"{fields.at('policies')}.paramKinds"
        fields.report.add(path, "requires kubernetes.customResources: it is for policies in the cluster")
    tokens = settings.authentication.webhook_tokens
    if tokens is not None and tokens.needs_cluster and settings.kubernetes is None:
        message = "requires kubernetes, whose API server has the keys, or jwksFile"
        fields.report.add(f"{fields.at('authentication')}.webhookTokens.jwksFrom", message)
    if settings.reports is not None and settings.kubernetes is None:
        fields.problem("reports", "requires kubernetes: the reports are objects of the cluster")
    found, least = settings.max_bytes_in_flight, settings.max_request_bytes
    if found < least:
        reason = f"expected at least maxRequestBytes ({least}), which one request can have"
        limits.problem("maxBytesInFlight", f"found the number {found}, {reason}")
    limits.finish()
    if settings.listen == settings.admin_listen and not settings.listen.endswith(":0"):
        fields.problem(
            "adminListen", f"found {shown(settings.listen)}, the address in listen; expected another one"
        )
    fields.finish()
    return settings


def _read_image_review(fields: Fields | None) -> tuple[str, ...]:
    if fields is None:
        return ()
    names = tuple(fields.strings("webhooks", dns_1123_subdomain))
    if not names:
        fields.problem("webhooks", "is required, expected the names of validating webhooks")
    fields.finish()
    return names


def _read_server_tls(fields: Fields, folder: Path) -> ServerTls:
    # A running gateway waits for a new one: it logs an error, and ``check`` fails.
    pair = read_key_pair(fields, folder, warns=False)
    tls = ServerTls(
        cert_file=pair.cert_file,
        key_file=pair.key_file,
        client_ca_file=read_ca_file(fields, "clientCAFile", folder),
        client_names=fields.strings(
            "clientNames", lambda text: None if text else "is empty, expected a name"
        ),
        self_managed=_read_self_managed(fields.mapping("selfManaged")),
    )
    if tls.self_managed is not None and (pair.cert_file or pair.key_file):
        fields.problem("selfManaged", "is not allowed together with certFile and keyFile")
    if tls.client_names and not fields.has("clientCAFile"):
        fields.problem("clientNames", "requires clientCAFile: without it no client certificate is requested")
    fields.finish()
    return tls


def _read_self_managed(fields: Fields | None) -> SelfManagedTls | None:
    if fields is None:
        return None
    place = fields.required_string("service", _service)
    secret = fields.string("secret", "admission-gateway-tls", dns_1123_subdomain)
    registration = fields.string("registration", "admission-gateway", configuration_name)
    fields.finish()
    namespace, _, service = place.partition("/")
    return SelfManagedTls(namespace, service, secret, registration)


def _service(text: str) -> str | None:
    namespace, slash, name = text.partition("/")
    if not slash:
        return f"found {shown(text)}, expected NAMESPACE/NAME"
    return dns_1123_label(namespace) or dns_1123_label(name)


def _read_authentication(fields: Fields, folder: Path) -> Authentication:
    tokens = read_webhook_tokens(fields.mapping("webhookTokens"), folder)
    authentication = replace(_read_credential_files(fields, folder), webhook_tokens=tokens)
    fields.finish()
    return authentication


def _read_credential_files(fields: Fields, folder: Path) -> Authentication:
    return Authentication(
        token_file=read_token_file(fields, "tokenFile", folder),
        basic_auth_file=read_basic_auth_file(fields, "basicAuthFile", folder),
    )


def _read_pages(fields: Fields, folder: Path) -> PageSettings:
    is_enabled = fields.boolean("enabled") or not fields.has("enabled")
    pages = PageSettings(is_enabled, _read_credential_files(fields, folder))
    fields.finish()
    return pages


def read_namespace(fields: Fields) -> Namespace:
    """Return the Namespace behind *fields*, with the label that the API server adds to every namespace."""
    metadata = read_metadata(fields, dns_1123_label)
    for name in ("spec", "status"):
        fields.mapping(name)
    fields.finish()
    labels = metadata.labels | {NAME_LABEL: metadata.name}
    written = fields.content.get("metadata")
    shown_metadata = {**(written if isinstance(written, dict) else {}), "labels": labels}
    document = {**fields.content, "metadata": shown_metadata}
    return Namespace(metadata.name, labels, orjson.dumps(document))

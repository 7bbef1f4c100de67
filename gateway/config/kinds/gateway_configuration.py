"""GatewayConfiguration: the settings of the gateway itself, a group of them in each module beside.

Paths of files are relative to the folder of the file that names them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import shown
from gateway.config.kinds import addresses
from gateway.config.kinds.kubernetes_settings import KubernetesSettings, read_kubernetes
from gateway.config.kinds.logging_settings import LoggingSettings, read_logging
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_settings import PolicySettings, read_policy_settings
from gateway.config.kinds.record_settings import RecordSettings, read_record
from gateway.config.kinds.report_settings import ReportSettings, read_reports
from gateway.config.kinds.serving_settings import (
    Authentication,
    PageSettings,
    ServerTls,
    read_authentication,
    read_pages,
    read_server_tls,
)
from gateway.config.kinds.tracing_settings import TracingSettings, read_tracing
from gateway.config.kinds.webhook_users import WebhookUsers, read_webhook_users
from gateway.pure.core.annotations import AuditLevel
from gateway.pure.core.decision import DecisionReference

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

REFERENCES: tuple[DecisionReference, ...] = get_args(DecisionReference)
AUDIT_LEVELS: tuple[AuditLevel, ...] = get_args(AuditLevel)
NEWEST_VERSION: Final = "1.37"
"""The newest Kubernetes whose expressions are known."""
_FIRST_WITH_GO_TYPES: Final = 37
"""The minor version from which values of expressions have Go types."""
_VERSION: Final = re.compile(r"v?1\.([1-9][0-9]{1,2})(\.(0|[1-9][0-9]{0,2}))?", re.ASCII)
_OLDEST_MINOR: Final = 30
MAX_CONCURRENT_REVIEWS = 1_000_000
"""Even at a kilobyte for each review, a gigabyte."""

MAX_PROCESSES = 1024
REQUEST_BYTES = (1024, 64 * 1024 * 1024)
"""The least is that of an empty review; the most is ten times that of the API server."""
MAX_BYTES_IN_FLIGHT = 1024**4
"""More than a machine has."""
LONGEST_RESERVE_S = 30.0
"""The longest budget that a review can have."""
LONGEST_DRAIN_S = 3600.0


def has_go_types(minor: int) -> bool:
    """Whether values of expressions have Go types in Kubernetes 1.*minor*."""
    return minor >= _FIRST_WITH_GO_TYPES


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The GatewayConfiguration, with its defaults."""

    listen: str = "0.0.0.0:8443"
    """HOST:PORT of the HTTPS front end. The host ``[::]`` listens on IPv6."""
    admin_listen: str = "127.0.0.1:9090"
    """HOST:PORT of /livez, /readyz, /metrics and the pages, plain HTTP; loopback by default."""
    pages: PageSettings = field(default_factory=PageSettings)
    processes: int = 1
    tls: ServerTls = field(default_factory=ServerTls)
    authentication: Authentication = field(default_factory=Authentication)
    max_request_bytes: int = 7 * 1024 * 1024
    """The API server accepts writes of up to 3 MiB. A review can have two such objects, and
    1 MiB is for the rest. controller-runtime derives the same number."""
    max_concurrent_reviews: int = 4096
    """Per process; above it the answer is 503, after which the API server retries."""
    max_bytes_in_flight: int = 128 * 1024 * 1024
    """Request bodies that are read or reviewed, per process; above it the answer is 503. 32 KiB for each of
    4096 reviews, five times the usual size, or eighteen reviews of the largest. A large body takes four times
    its bytes while it waits for a worker and, one body at a time, up to thirty times while it is parsed."""
    deadline_reserve_s: float = 0.1
    """Seconds of a review's budget that are reserved for its answer, at most a fifth of the budget."""
    drain_s: float = 10.0
    """Seconds for reviews in flight after the signal to stop."""
    audit_level: AuditLevel = "Metadata"
    decision_reference: DecisionReference = "None"
    """Where a refusal names the command that shows its decision; by default nowhere, as a plain webhook."""
    webhook_users: WebhookUsers | None = None
    """The gateway's credentials for HTTPS webhooks; None: none are sent."""
    kubernetes: KubernetesSettings | None = None
    """None: no cluster is watched, and Namespace documents have all namespaces."""
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    reports: ReportSettings | None = None
    """None: no reports are written into the cluster."""
    tracing: TracingSettings | None = None
    """None: no spans are made."""
    record: RecordSettings | None = None
    """None: no reviews are recorded."""
    policies: PolicySettings = field(default_factory=PolicySettings)
    kubernetes_version: str = NEWEST_VERSION
    """MAJOR.MINOR of the API servers whose expressions are followed; 1.37 stands for all newer ones."""
    image_review_webhooks: tuple[str, ...] = ()
    """Names of the validating webhooks that answer ImageReviews; empty: there is no such path."""

    @property
    def has_go_types(self) -> bool:
        """Whether values of expressions have Go types, see ``gateway.pure.cel.go_types``."""
        return has_go_types(int(self.kubernetes_version.partition(".")[2]))


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
        tls=read_server_tls(fields.group("tls"), folder),
        authentication=read_authentication(fields.group("authentication"), folder),
        pages=read_pages(fields.group("pages"), folder),
        max_request_bytes=limits.integer("maxRequestBytes", default.max_request_bytes, *REQUEST_BYTES),
        max_concurrent_reviews=limits.integer(
            "maxConcurrentReviews", default.max_concurrent_reviews, 1, MAX_CONCURRENT_REVIEWS
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
        fields.problems.add(
            f"{fields.at('tls')}.selfManaged", "requires kubernetes: the certificate is kept in a Secret"
        )
    has_custom_resources = settings.kubernetes is not None and settings.kubernetes.custom_resources
    if settings.policies.param_kinds and not has_custom_resources:
        path = f"{fields.at('policies')}.paramKinds"
        fields.problems.add(path, "requires kubernetes.customResources: it is for policies in the cluster")
    tokens = settings.authentication.webhook_tokens
    if tokens is not None and tokens.needs_cluster and settings.kubernetes is None:
        message = "requires kubernetes, whose API server has the keys, or jwksFile"
        fields.problems.add(f"{fields.at('authentication')}.webhookTokens.jwksFrom", message)
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

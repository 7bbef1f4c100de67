"""The loaded configuration: immutable, made by ``gateway.config.load``, and replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from gateway.config.logging_settings import LoggingSettings
from gateway.config.policy_settings import PolicySettings
from gateway.pure.core.webhook import HttpsClient, PolicyRef

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.base.errors import Problem
    from gateway.config.custom_resource import CustomResource
    from gateway.config.record_settings import RecordSettings
    from gateway.config.report_settings import ReportSettings
    from gateway.config.tracing_settings import TracingSettings
    from gateway.config.webhook_token_settings import WebhookTokenSettings
    from gateway.config.webhook_users import WebhookUsers
    from gateway.pure.core.annotations import AuditLevel
    from gateway.pure.core.decision import DecisionReference
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import CaBundleSource, Webhook

TransportMode = Literal["Auto", "Stream", "Unary"]
PolicySource = Literal["Own", "ReadyMade"]
NEWEST_VERSION: Final = "1.37"
"""The newest Kubernetes whose expressions are known."""
_FIRST_WITH_GO_TYPES: Final = 37
"""The minor version from which values of expressions have Go types."""
_LIBRARY: Final = ("-m", "admission_gateway_worker.policies")
"""In the command of a worker with the ready-made policies."""


def has_go_types(minor: int) -> bool:
    """Whether values of expressions have Go types in Kubernetes 1.*minor*."""
    return minor >= _FIRST_WITH_GO_TYPES


@dataclass(frozen=True, slots=True)
class WorkerTls:
    """TLS to the workers of a pool. All files are PEM."""

    ca_file: Path | None = None
    """Roots that the worker's certificate must chain to; None: ``ca_bundle``, or the system's."""
    cert_file: Path | None = None
    """The gateway's certificate, for workers that request one."""
    key_file: Path | None = None
    server_name: str | None = None
    """The expected name in the worker's certificate; None: the host in the target."""
    ca_bundle: bytes | None = None
    """The roots themselves, PEM, instead of ``ca_file``."""


@dataclass(frozen=True, slots=True)
class Hedge:
    """When a hedge, a second call at another endpoint, is made; the first answer counts."""

    after_s: float | None = None
    """Seconds without an answer; None: the ``percentile`` of the pool's own latencies."""
    percentile: float = 95.0
    """From 50 to below 100; used when ``after_s`` is None."""
    budget_percent: float = 5.0
    """Extra calls per hundred calls, at most."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """A set of interchangeable workers. Exactly one of ``targets`` and ``command`` is non-empty."""

    name: str
    targets: tuple[str, ...] = ()
    """gRPC names: ``dns:///HOST:PORT``, ``unix:PATH``, ``ipv4:A:P,B:P``, ``ipv6:[A]:P``, ``HOST:PORT``."""
    command: tuple[str, ...] = ()
    """A local worker to start and supervise; ``--listen unix:PATH`` is appended."""
    transport: TransportMode = "Auto"
    max_in_flight: int = 1024
    """Calls per endpoint. Above it a call with Ignore makes room for one with Fail, or the new call fails."""
    tls: WorkerTls | None = None
    """None: plaintext."""
    hedge: Hedge | None = None
    """None: no hedges."""
    policies: PolicySource = field(default="Own", compare=False, repr=False)
    """Whose policies the workers serve. No decision depends on it: it is for ``check``."""

    @property
    def serves_ready_made(self) -> bool:
        """Whether the workers serve the ready-made policies of the SDK for Python."""
        return self.policies == "ReadyMade" or _LIBRARY in zip(self.command, self.command[1:], strict=False)


@dataclass(frozen=True, slots=True)
class SelfManagedTls:
    """A certificate that the gateway issues and renews itself, in a Secret of the cluster."""

    namespace: str
    """Of the Service and the Secret."""
    service: str
    """The Service at which API servers call the gateway; the certificate has its name."""
    secret: str
    registration: str
    """Name of the registered objects whose ``caBundle`` is kept up to date."""

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names in the certificate. API servers use the first."""
        return tuple(f"{self.service}.{self.namespace}{suffix}" for suffix in (".svc", ""))

    @property
    def secret_key(self) -> tuple[str, str]:
        """Namespace and name of the Secret."""
        return self.namespace, self.secret


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The serving certificate, and the client certificates that are accepted."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    """None: no client certificate is requested."""
    client_names: tuple[str, ...] = ()
    """Names allowed in a client's certificate (CN or DNS name); empty: any that the CA signed."""
    self_managed: SelfManagedTls | None = None
    """Where the certificate is kept if the gateway issues it itself; None: it is in the files."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """Files with credentials of clients. None: this way of authentication is off."""

    token_file: Path | None = None
    """One bearer token a line; lines starting with # and blank lines are ignored."""
    basic_auth_file: Path | None = None
    """One ``user:password`` a line."""
    webhook_tokens: WebhookTokenSettings | None = None
    """Tokens of API servers; never for pages."""


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The pages of the admin port."""

    is_enabled: bool = True
    authentication: Authentication = field(default_factory=Authentication)
    """Credentials of readers. Without any, the pages are served over loopback only."""


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """The cluster whose namespaces are watched, and perhaps its custom resources."""

    kubeconfig: Path | None = None
    """None: the service account of the pod that the gateway runs in."""
    context: str | None = None
    """The context of the kubeconfig; None: its ``current-context``."""
    custom_resources: bool = False
    """Whether the gateway's custom resources in the cluster are part of the configuration."""


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


@dataclass(frozen=True, slots=True)
class Pinned:
    """That a configuration is a kept one, see ``gateway.server.history``."""

    digest: str
    since: str
    """RFC 3339."""
    resources: tuple[CustomResource, ...]
    """The custom resources that were in force. Those of the cluster are not used."""


@dataclass(frozen=True, slots=True)
class Config:
    """The complete configuration, validated as a whole."""

    mutating: tuple[Webhook, ...] = ()
    """In the order in which they apply: configurations by name in byte order, then as written."""
    validating: tuple[Webhook, ...] = ()
    """Likewise."""
    pools: Mapping[str, WorkerPool] = field(default_factory=dict)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    exceptions: tuple[PolicyException, ...] = ()
    """By id."""
    configurations: frozenset[tuple[str, str]] = frozenset()
    """(phase, name) of every configuration object, also of those without a webhook."""
    policies: frozenset[tuple[str, str]] = frozenset()
    """(kind, name) of every policy and binding in files."""
    warnings: tuple[Problem, ...] = ()
    """About values that are accepted, but probably a mistake."""
    pinned: Pinned | None = field(default=None, repr=False)
    """None: it is that of the files."""
    source: bytes = field(default=b"", repr=False, compare=False)
    """JSON of the documents in files: a list of objects with ``file`` and ``content``. Empty: it has none."""

    named_files: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The paths that the documents name, and how they write them. Others are from the command line."""

    @property
    def webhooks(self) -> tuple[Webhook, ...]:
        """All of them."""
        return self.mutating + self.validating


def ca_bundle_sources(config: Config) -> frozenset[CaBundleSource]:
    """Return what the webhooks of *config* name in ``caBundleFrom``."""
    webhooks = (*config.mutating, *config.validating)
    clients = (client for webhook in webhooks for client in webhook.clients)
    return frozenset(
        client.ca_from for client in clients if isinstance(client, HttpsClient) and client.ca_from is not None
    )


def param_kinds(config: Config) -> frozenset[tuple[str, str]]:
    """Return apiVersion and kind of the parameters that the policies of *config* take from the cluster."""
    clients = (webhook.client for webhook in (*config.mutating, *config.validating))
    kinds = (client.param_kind for client in clients if isinstance(client, PolicyRef))
    return frozenset(kind for kind in kinds if kind is not None)


def merged_versions(config: Config) -> frozenset[tuple[str, str]]:
    """Return groups and versions of the objects that the policies of *config* merge by their schemas."""
    clients = (webhook.client for webhook in config.mutating)
    return frozenset(
        version for client in clients if isinstance(client, PolicyRef) for version in client.merged_versions
    )


def summary(config: Config) -> str:
    """Return one line about *config* for the log."""
    namespaces = len(config.namespaces) if config.gateway.kubernetes is None else "the cluster's"
    return (
        f"webhooks: {len(config.mutating)} mutating, {len(config.validating)} validating; "
        f"worker pools: {len(config.pools)}; namespaces: {namespaces}"
    )

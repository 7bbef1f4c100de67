"""The loaded configuration: one frozen whole, made by ``gateway.config.load`` and swapped, never edited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.config.webhook_users import WebhookUsers
    from gateway.core.namespace import Namespace
    from gateway.core.webhook import Webhook
    from gateway.errors import Problem

TransportMode = Literal["Auto", "Stream", "Unary"]
AuditLevel = Literal["None", "Metadata", "Request"]


@dataclass(frozen=True, slots=True)
class WorkerTls:
    """How to speak TLS to a pool's workers. All files are PEM."""

    ca_file: Path | None = None
    """Roots that the worker's certificate must chain to; None: ``ca_bundle``, or the system's."""
    cert_file: Path | None = None
    """The gateway's own certificate, for workers that ask for one."""
    key_file: Path | None = None
    server_name: str | None = None
    """Name to expect in the worker's certificate; None: the host in the target."""
    ca_bundle: bytes | None = None
    """Roots themselves, PEM, in place of ``ca_file``."""


@dataclass(frozen=True, slots=True)
class Hedge:
    """When a call without an answer is asked a second time, at another endpoint; the first answer counts."""

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
    """Calls per endpoint; past it a call is refused at once."""
    tls: WorkerTls | None = None
    """None: plaintext."""
    hedge: Hedge | None = None
    """None: no call is asked twice."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The serving certificate, and which client certificates are asked for."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    """None: no client certificate is asked for."""
    client_names: tuple[str, ...] = ()
    """Names allowed in a client's certificate (CN or DNS name); empty: any that the CA signed."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """Credential files of callers. None: that way is not offered."""

    token_file: Path | None = None
    """One bearer token a line; lines starting with # and blank lines do not count."""
    basic_auth_file: Path | None = None
    """One ``user:password`` a line."""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The cluster whose namespaces are watched, and perhaps its custom resources."""

    kubeconfig: Path | None = None
    """None: the service account of the pod that the gateway runs in."""
    context: str | None = None
    """Which context of the kubeconfig; None: its ``current-context``."""
    custom_resources: bool = False
    """Whether the gateway's custom resources in the cluster are part of the configuration."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The GatewayConfiguration, with its defaults."""

    listen: str = "0.0.0.0:8443"
    """HOST:PORT of the HTTPS front end. A host of ``[::]`` takes IPv6."""
    admin_listen: str = "127.0.0.1:9090"
    """HOST:PORT of /livez, /readyz and /metrics, plain HTTP: loopback unless said otherwise."""
    processes: int = 1
    tls: ServerTls = field(default_factory=ServerTls)
    authentication: Authentication = field(default_factory=Authentication)
    max_request_bytes: int = 7 * 1024 * 1024
    """The API server takes writes of up to 3 MiB; a review can carry two such objects, and 1 MiB is left
    for the rest. controller-runtime derives the same figure."""
    max_concurrent_reviews: int = 4096
    """Per process; past it the answer is 503, which the API server sends again."""
    max_bytes_in_flight: int = 128 * 1024 * 1024
    """Of request bodies that are read or reviewed, per process; past it the answer is 503. 32 KiB for each of
    4096 reviews, five times the usual size, or eighteen reviews of the largest. A large body takes four times
    its bytes while it waits for a worker and, one body at a time, up to thirty times while it is parsed."""
    deadline_reserve_s: float = 0.1
    """Seconds kept back of a review's budget for the way back, at most a fifth of the budget."""
    drain_s: float = 10.0
    """Seconds that reviews in flight get once the process was told to stop."""
    audit_level: AuditLevel = "Metadata"
    webhook_users: WebhookUsers | None = None
    """Who the gateway is to HTTPS webhooks; None: it does not say."""
    kubernetes: Kubernetes | None = None
    """None: no cluster is watched, and Namespace documents say what there is to know."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that was configured, validated as a whole."""

    mutating: tuple[Webhook, ...] = ()
    """In the order in which they apply: configurations by name in byte order, then as written."""
    validating: tuple[Webhook, ...] = ()
    """Likewise."""
    pools: Mapping[str, WorkerPool] = field(default_factory=dict)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    configurations: frozenset[tuple[str, str]] = frozenset()
    """(phase, name) of every configuration object, also of those without a webhook."""
    warnings: tuple[Problem, ...] = ()
    """What is accepted and will not do what it seems to say."""


def summary(config: Config) -> str:
    """Return what *config* holds, in one line for the log."""
    namespaces = len(config.namespaces) if config.gateway.kubernetes is None else "the cluster's"
    return (
        f"webhooks: {len(config.mutating)} mutating, {len(config.validating)} validating; "
        f"worker pools: {len(config.pools)}; namespaces: {namespaces}"
    )

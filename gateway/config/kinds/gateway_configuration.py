"""GatewayConfiguration: the settings of the gateway itself, a group of them in each module beside.

Paths of files are relative to the folder of the file that names them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import shown
from gateway.config.kinds.addresses import listen_address
from gateway.config.kinds.declare import (
    Choice,
    Declared,
    Duration,
    Group,
    Integer,
    Number,
    Read,
    Row,
    Schema,
    Text,
    Type,
    declare,
    optional,
    required,
)
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.kinds.logging_settings import LoggingSettings
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_settings import PolicySettings
from gateway.config.kinds.record_settings import RecordSettings
from gateway.config.kinds.report_settings import ReportSettings
from gateway.config.kinds.rollout_plan_settings import RolloutPlanSettings
from gateway.config.kinds.serving_settings import Authentication, PageSettings, ServerTls
from gateway.config.kinds.tracing_settings import TracingSettings
from gateway.config.kinds.webhook_users import WebhookUsers, read_webhook_users
from gateway.pure.core.annotations import AuditLevel
from gateway.pure.core.conflicts import Conflicts
from gateway.pure.core.decision import DecisionReference

if TYPE_CHECKING:
    from collections.abc import Iterator

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
LONGEST_DRAIN_S = 3600


def has_go_types(minor: int) -> bool:
    """Whether values of expressions have Go types in Kubernetes 1.*minor*."""
    return minor >= _FIRST_WITH_GO_TYPES


def _read_version(source: Fields, name: str) -> str:
    """Return ``kubernetesVersion`` as MAJOR.MINOR, at most the newest version that is known."""
    text = source.string(name, NEWEST_VERSION, _not_a_version)
    match = _VERSION.fullmatch(text)
    newest = int(NEWEST_VERSION.partition(".")[2])
    return NEWEST_VERSION if match is None else f"1.{min(int(match[1]), newest)}"


def _not_a_version(text: str) -> str | None:
    match = _VERSION.fullmatch(text)
    if match is not None and int(match[1]) >= _OLDEST_MINOR:
        return None
    return f"found {shown(text)}, expected a version of Kubernetes from 1.{_OLDEST_MINOR} on, such as 1.36"


class _WebhookNames(Type[tuple[str, ...]]):
    """``imageReview``, a mapping with the names of webhooks alone."""

    words = "mapping"

    def read(self, source: Fields, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        found = Group(_ImageReview).read(source, name, None)
        return default if found is None else found.webhooks

    def schema(self) -> Schema:
        return _ImageReview.schema()

    def rows(self, path: str) -> Iterator[Row]:
        return _ImageReview.rows(f"{path}.")


def _read_webhooks(source: Fields, name: str) -> tuple[str, ...]:
    names = source.strings(name, dns_1123_subdomain)
    if not names:
        source.problem(name, "is required, expected the names of validating webhooks")
    return names


@dataclass(frozen=True, slots=True)
class _ImageReview(Declared):
    webhooks: tuple[str, ...] = required(
        Read("list of names", _read_webhooks, "array"),
        "Validating webhooks and ValidatingAdmissionPolicies. An unknown name is refused; with "
        "`kubernetes.customResources` it is a warning, since a custom resource may bring it",
    )


@dataclass(frozen=True, slots=True)
class GatewaySettings(Declared):
    """The GatewayConfiguration, with its defaults."""

    MAPPINGS = MappingProxyType({"limits": "See [limits](http.md#limits)"})

    listen: str = declare(
        Text("`HOST:PORT`", listen_address),
        "HTTPS front end. `[::]` accepts IPv6. Port 0 is any free one",
        default="0.0.0.0:8443",
    )
    admin_listen: str = declare(
        Text("`HOST:PORT`", listen_address),
        "`/livez`, `/readyz`, `/metrics` and the [pages](pages.md), plain HTTP",
        default="127.0.0.1:9090",
    )
    pages: PageSettings = declare(
        Group(PageSettings),
        "The [pages](pages.md#who-may-read-them). Without credentials they are served over loopback only,"
        " which `kubectl port-forward` uses too",
        default=PageSettings(),
    )
    processes: int = declare(
        Integer(1, MAX_PROCESSES, "processes"),
        "Gateway processes that share the port, from 1 to 1,024",
        default=1,
    )
    tls: ServerTls = declare(Group(ServerTls), "", default=ServerTls())
    authentication: Authentication = declare(
        Group(Authentication),
        "See [callers](security.md#callers). Without any method every caller is accepted",
        default=Authentication(),
    )
    max_request_bytes: int = declare(
        Integer(*REQUEST_BYTES, "bytes"),
        "Largest request body, from 1,024 to 67,108,864. The default holds the old and the new object of "
        "the largest write that kube-apiserver accepts (3 MiB), and 1 MiB more",
        default=7 * 1024 * 1024,
        name="limits.maxRequestBytes",
    )
    """controller-runtime derives the same number."""
    max_concurrent_reviews: int = declare(
        Integer(1, MAX_CONCURRENT_REVIEWS, "reviews"),
        "In each process, from 1 to 1,000,000. Above it the answer is 503",
        default=4096,
        name="limits.maxConcurrentReviews",
    )
    max_bytes_in_flight: int = declare(
        Integer(REQUEST_BYTES[0], MAX_BYTES_IN_FLIGHT, "bytes"),
        "Request bodies that are being read or reviewed, in each process; at least `maxRequestBytes`. "
        "Above it the answer is 503",
        default=128 * 1024 * 1024,
        name="limits.maxBytesInFlight",
    )
    """The default has 32 KiB for each of 4096 reviews, five times the usual size, or eighteen reviews of the
    largest. A large body takes four times its bytes while it waits for a worker and, one body at a time, up
    to thirty times while it is parsed."""
    deadline_reserve_s: float = declare(
        Duration(0, LONGEST_RESERVE_S),
        "Part of a review's time that is kept for the way back, from 0 to 30s; at most a fifth of the "
        "time counts",
        default=0.1,
        name="deadlineReserve",
    )
    drain_s: float = declare(
        Number(0, LONGEST_DRAIN_S, "seconds"),
        "Time for reviews in flight after SIGTERM, from 0 to 3,600",
        default=10.0,
        name="drainSeconds",
    )
    audit_level: AuditLevel = declare(
        Choice(AUDIT_LEVELS),
        "Audit annotations of the gateway itself: none, without patches, with patches",
        default="Metadata",
    )
    decision_reference: DecisionReference = declare(
        Choice(REFERENCES),
        "Where a refusal names the [command](commands.md#decisions) that shows its decision: nowhere, in "
        "a warning, or in the last line of its message, see [denials](answers.md#denials)",
        default="None",
    )
    conflicts: Conflicts = declare(
        Choice(get_args(Conflicts)),
        "What becomes of a request in which a mutating webhook or policy overwrites what another one wrote, "
        "see [conflicts](mutators.md#conflicts)",
        default="Allow",
    )
    image_review_webhooks: tuple[str, ...] = declare(
        _WebhookNames(),
        "The backend of an API server's ImagePolicyWebhook, see [ImageReviews](http.md#imagereviews). "
        "Absent: there is no such path",
        default=(),
        name="imageReview",
    )
    webhook_users: WebhookUsers | None = optional(
        Read("path of a kubeconfig", read_webhook_users),
        "Credentials for HTTPS webhooks, see [below](#credentials-for-https-webhooks)",
        name="webhookKubeConfigFile",
    )
    kubernetes_version: str = declare(
        Read("version, quoted", _read_version, written='"{}"'.format),
        'The version of your cluster, from `"1.30"` on. Expressions compare [maps and '
        "lists](policies.md#maps-and-lists) as that version does. A patch level may follow, as in "
        "`v1.36.2`, and has no effect. A newer version counts as 1.37",
        default=NEWEST_VERSION,
    )
    kubernetes: KubernetesSettings | None = optional(
        Group(KubernetesSettings), "The cluster that the gateway watches. Absent: none"
    )
    logging: LoggingSettings = declare(
        Group(LoggingSettings),
        "Form of the logs, and the [decision log](decision-log.md)",
        default=LoggingSettings(),
    )
    reports: ReportSettings | None = optional(
        Group(ReportSettings),
        "[Reports](reports.md) of failed webhooks in the cluster; needs `kubernetes`. Absent: none",
    )
    rollout_plans: RolloutPlanSettings | None = optional(
        Group(RolloutPlanSettings),
        "Where the states of rollout plans are kept. Absent: a plan stays in its first stage",
    )
    tracing: TracingSettings | None = optional(
        Group(TracingSettings),
        "[Traces](tracing.md) by OpenTelemetry. Absent: no spans are made, and a `traceparent` is passed on",
    )
    policies: PolicySettings = declare(
        Group(PolicySettings), "[Policies](policies.md)", default=PolicySettings()
    )
    record: RecordSettings | None = optional(
        Group(RecordSettings),
        "[Recordings](recordings.md) of reviews and their answers. Absent: nothing is recorded",
    )

    @property
    def has_go_types(self) -> bool:
        """Whether values of expressions have Go types, see ``gateway.pure.cel.go_types``."""
        return has_go_types(self.kubernetes_minor)

    @property
    def kubernetes_minor(self) -> int:
        """The minor version of Kubernetes 1 by which expressions are evaluated."""
        return int(self.kubernetes_version.partition(".")[2])

    def check(self, source: Fields) -> None:
        """Report settings that exclude or require each other."""
        if self.tls.self_managed is not None and self.kubernetes is None:
            source.problems.add(
                f"{source.at('tls')}.selfManaged", "requires kubernetes: the certificate is kept in a Secret"
            )
        has_custom_resources = self.kubernetes is not None and self.kubernetes.custom_resources
        if self.policies.param_kinds and not has_custom_resources:
            path = f"{source.at('policies')}.paramKinds"
            source.problems.add(
                path, "requires kubernetes.customResources: it is for policies in the cluster"
            )
        if self.policies.custom_resources_of and not has_custom_resources:
            source.problems.add(
                f"{source.at('policies')}.customResourcesOf",
                "requires kubernetes.customResources: it is for policies in the cluster",
            )
        if self.kubernetes is None:
            for index, backend in enumerate(self.policies.backends):
                if backend.ca_bundle_from is not None:
                    path = f"{source.at('policies')}.backends[{index}].caBundleFrom"
                    source.problems.add(path, "requires kubernetes: the roots are followed in the cluster")
        tokens = self.authentication.webhook_tokens
        if tokens is not None and tokens.needs_cluster and self.kubernetes is None:
            message = "requires kubernetes, whose API server has the keys, or jwksFile"
            source.problems.add(f"{source.at('authentication')}.webhookTokens.jwksFrom", message)
        if self.reports is not None and self.kubernetes is None:
            source.problem("reports", "requires kubernetes: the reports are objects of the cluster")
        plans = self.rollout_plans
        if plans is not None and plans.installation is not None and self.kubernetes is None:
            path = f"{source.at('rolloutPlans')}.installation"
            source.problems.add(path, "requires kubernetes: the states are objects of the cluster")
        found, least = self.max_bytes_in_flight, self.max_request_bytes
        if found < least:
            reason = f"expected at least maxRequestBytes ({least}), which one request can have"
            path = f"{source.at('limits')}.maxBytesInFlight"
            source.problems.add(path, f"found the number {found}, {reason}")
        if self.listen == self.admin_listen and not self.listen.endswith(":0"):
            source.problem(
                "adminListen", f"found {shown(self.listen)}, the address in listen; expected another one"
            )


def read_gateway_configuration(source: Fields) -> GatewaySettings:
    """Return the GatewayConfiguration behind *source*, which is in a file."""
    read_metadata(source, dns_1123_subdomain, required=False)
    return GatewaySettings.read(source)

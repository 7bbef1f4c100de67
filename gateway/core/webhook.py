"""The configured model: webhooks and their rules, after defaulting and validation.

One type serves both phases, since all that differs is ``phase`` and ``reinvocation_policy``. Values keep
the spelling of Kubernetes. Validated where they are made (``gateway.config``) and trusted from there on.

Source: k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from gateway.core.conditions import MatchConditions
    from gateway.core.labels import Selector

Phase = Literal["mutate", "validate"]
FailurePolicy = Literal["Fail", "Ignore"]
MatchPolicy = Literal["Exact", "Equivalent"]
Scope = Literal["Cluster", "Namespaced", "*"]
SideEffects = Literal["None", "NoneOnDryRun", "Some", "Unknown"]
ReinvocationPolicy = Literal["Never", "IfNeeded"]
ReviewVersion = Literal["v1", "v1beta1"]

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests a webhook is for: all five dimensions have to match. ``*`` matches anything."""

    operations: tuple[str, ...]
    api_groups: tuple[str, ...]
    api_versions: tuple[str, ...]
    resources: tuple[str, ...]
    """``RESOURCE``, ``RESOURCE/SUBRESOURCE``, either part may be ``*``."""
    scope: Scope = "*"


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """``clientConfig.worker``: the policy to ask for, and the pool that serves it."""

    pool: str
    policy: str


@dataclass(frozen=True, slots=True)
class HttpsClient:
    """``clientConfig.url`` or ``clientConfig.service``: a webhook called as the API server calls it.

    Webhooks for which all of it is equal share one backend, and its connections.
    """

    url: str
    """``https://HOST[:PORT]/PATH``, without a query, its path cleaned."""
    ca_pem: bytes = b""
    """Roots that the server's certificate must chain to, PEM; empty: the system's."""
    is_custom: bool = False
    """Whether a custom resource names it, whose author need not be whose credentials the gateway has."""


@dataclass(frozen=True, slots=True, eq=False)
class Webhook:
    """One entry of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""

    phase: Phase
    configuration: str
    """``metadata.name`` of the configuration object that holds it."""
    name: str
    client: WorkerRef | HttpsClient
    rules: tuple[Rule, ...]
    namespace_selector: Selector
    object_selector: Selector
    failure_policy: FailurePolicy = "Fail"
    match_policy: MatchPolicy = "Equivalent"
    side_effects: SideEffects = "None"
    timeout_s: int = 10
    """Seconds, 1 to 30."""
    reinvocation_policy: ReinvocationPolicy = "Never"
    """Always ``Never`` in the validating phase."""
    match_conditions: MatchConditions | None = None
    """None: there are none."""
    review_version: ReviewVersion = "v1"
    """Of the AdmissionReviews that its HTTPS server reads; workers get no review."""

    @property
    def backend(self) -> str | HttpsClient:
        """What webhooks share that are asked over the same connections: a pool's name, or a client."""
        client = self.client
        return client.pool if isinstance(client, WorkerRef) else client

    @property
    def worker(self) -> WorkerRef:
        """The client of a webhook that is known to be a worker."""
        return cast("WorkerRef", self.client)

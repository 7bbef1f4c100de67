"""Webhooks and their rules, after defaulting and validation.

One type serves both phases, which differ only in ``phase`` and ``reinvocation_policy``. Values keep the
spelling of Kubernetes. ``gateway.config`` validates them.

Source: k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.core.conditions import ConditionInput, MatchConditions
    from gateway.pure.core.labels import Selector
    from gateway.pure.core.policy import AdmissionPolicy, KindKey, ParamPaths

Phase = Literal["mutate", "validate"]
FailurePolicy = Literal["Fail", "Ignore"]
MatchPolicy = Literal["Exact", "Equivalent"]
Scope = Literal["Cluster", "Namespaced", "*"]
SideEffects = Literal["None", "NoneOnDryRun", "Some", "Unknown"]
ReinvocationPolicy = Literal["Never", "IfNeeded"]
ReviewVersion = Literal["v1", "v1beta1"]
Mode = Literal["Enforce", "Warn", "Audit", "Shadow"]

MAX_PARAMETERS_BYTES: Final = 64 * 1024
"""Limit of the parameters of a policy as JSON: workers keep several hundred values, and a list of all images
of a large registry is shorter."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The requests that a webhook is called for: all five fields have to match. ``*`` matches anything."""

    operations: tuple[str, ...]
    api_groups: tuple[str, ...]
    api_versions: tuple[str, ...]
    resources: tuple[str, ...]
    """``RESOURCE`` or ``RESOURCE/SUBRESOURCE``; either part may be ``*``."""
    scope: Scope = "*"


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """``clientConfig.worker``: a policy, and the pool that serves it."""

    pool: str
    policy: str
    parameters: bytes = b""
    """Parameters of the policy as JSON with sorted keys, an object. Empty if there are none."""
    parameters_annotation: str = ""
    """Key of the annotation of namespaces whose JSON replaces members of ``parameters``, or empty."""
    place: str = field(default="", compare=False, repr=False)
    """Document and path of ``clientConfig.worker``, for messages."""
    kind: str = ""
    """The kind of the document of another engine that the policy was made of. Empty for ``clientConfig``."""
    has_own_words: bool = False
    """Whether its messages are those of its engine, which name the policy, and its warnings may be long."""

    @property
    def has_parameters(self) -> bool:
        """Whether calls have parameters."""
        return self.parameters != b"" or self.parameters_annotation != ""


@dataclass(frozen=True, slots=True)
class CaBundleSource:
    """``clientConfig.caBundleFrom``: a field of an object in the cluster that has root certificates."""

    kind: str
    """Secret, ConfigMap, MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""
    namespace: str
    """Empty for a webhook configuration."""
    name: str
    key: str
    """The key in ``data``, or the name of the webhook in the configuration."""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}, {'key' if self.namespace else 'webhook'} {self.key}"


@dataclass(frozen=True, slots=True)
class ImageReviewSettings:
    """``clientConfig.imageReview``: the server gets ImageReviews instead of AdmissionReviews."""

    kubeconfig: str
    """Absolute path of the file with the server and the credentials for it."""
    allow_ttl_s: float
    deny_ttl_s: float
    """Seconds for which a verdict holds for the same images. With 0 it is not kept."""
    retry_backoff_s: float
    """Seconds before the first retry."""
    default_allow: bool | None
    """Whether a failure allows the request. None if the file does not say."""


@dataclass(frozen=True, slots=True)
class BackendOfPolicies:
    """A server from which the expressions of policies get data."""

    name: str
    timeout_s: int
    """Seconds of one request."""


@dataclass(frozen=True, slots=True)
class HttpsClient:
    """``clientConfig.url`` or ``clientConfig.service``: a webhook called as the API server calls it.

    Webhooks with equal clients share one backend, and its connections.
    """

    url: str
    """``https://HOST[:PORT]/PATH``, without a query, with a normalized path."""
    ca_pem: bytes = b""
    """Root certificates for the server's certificate, PEM. By default those of the system."""
    ca_from: CaBundleSource | None = None
    """Where the root certificates are followed, instead of ``ca_pem``. None if they are fixed."""
    image_review: ImageReviewSettings | None = None
    """None if the server gets AdmissionReviews."""
    is_custom: bool = False
    """Whether a custom resource names it; its author may not be entitled to the gateway's credentials."""
    backend: BackendOfPolicies | None = None
    """None if it is a webhook's. Otherwise it gets no reviews, and no credentials of the gateway."""
    connect_to: tuple[str, int] | None = None
    """Host and port to connect to instead of those of the URL, which name the server all the same. A command
    sets it for a server that a tunnel reaches."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """``rollout.enforce``: where a webhook is enforced already. All conditions have to match."""

    namespace_selector: Selector
    percent_of_namespaces: int = 100
    """From 0 to 100, see ``gateway.pure.core.modes``."""
    after_s: float = 0.0
    """The time from which on it is enforced, in seconds since 1970."""
    included: tuple[Selector, ...] = ()
    """Namespaces in which it is enforced whatever the percentage."""
    excluded: tuple[Selector, ...] = ()
    """Namespaces in which it is not enforced yet, even if ``included`` has them."""
    salt: str = ""
    """What ranks namespaces instead of the name of the webhook. Empty: the name."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """``rollout.candidate``: called beside the client in force and compared with it, and never in force."""

    client: WorkerRef | HttpsClient
    percent_of_reviews: float = 100.0
    """Above 0, up to 100."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How far a webhook is in force."""

    mode: Mode = "Enforce"
    """Where ``enforce`` does not match."""
    enforce: Enforcement | None = None
    """None if it is enforced nowhere, unless ``mode`` is Enforce."""
    candidate: Candidate | None = None
    enforced_from_s: float = field(default=0.0, repr=False, compare=False)
    """The earliest time at which a plan enforces it in more places, in seconds since 1970. 0: not set."""
    is_mode_given: bool = True
    """Whether the configuration says the mode. Otherwise the stage of a plan that was removed holds."""


class RolloutPlan(Protocol):
    """``rollout.plan``: a ``gateway.pure.rollout_plan.model.Plan``, which is above the core."""

    @property
    def digest(self) -> str:
        """What replicas with the same plan share."""


@dataclass(frozen=True, slots=True)
class PolicyRollout:
    """How far a policy document is in force, by its annotation or its own action."""

    rollout: Rollout
    plan: RolloutPlan | None = None
    document: str = ""
    """``KIND/NAME`` or ``KIND/NAMESPACE/NAME`` of the document with the annotation. Empty without one."""
    needs_denial: bool = False
    """Whether the document's own action has to be to deny: it softens that, and is not in its place."""

    @property
    def is_enforced(self) -> bool:
        """Whether it is enforced everywhere, now and later."""
        return self.plan is None and self.rollout.mode == "Enforce"

    def applied_to(self, entry: Webhook) -> Webhook:
        """Return *entry*, one that the document makes, so far in force.

        Enforced without an annotation that says so, it is like a webhook without a rollout: the stage of a
        plan that was removed holds.
        """
        if self.is_enforced and not self.document:
            return entry
        document = self.document or entry.document
        return replace(entry, rollout=self.rollout, plan=self.plan, document=document)


class CacheKey(Protocol):
    """The part of a request that a verdict depends on."""

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """Its name and expression, for digests."""

    def digest(self, condition_input: ConditionInput) -> bytes:
        """Return a digest that equal parts share; empty if the part of this request has no value."""


@dataclass(frozen=True, slots=True)
class Cache:
    """``cache``: the verdict of a call holds for other requests with an equal key for some time."""

    ttl_s: int
    """Seconds, from 1 on."""
    key: CacheKey
    max_entries: int


Reads: TypeAlias = "tuple[tuple[KindKey, ParamPaths], ...]"


class WebhookId(NamedTuple):
    """A webhook, whatever configuration it is of."""

    phase: Phase
    configuration: str
    name: str


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """An admission policy, which the gateway evaluates itself: there is no call."""

    kind: str
    """``ValidatingAdmissionPolicy`` or ``MutatingAdmissionPolicy``."""
    policy: AdmissionPolicy
    """The policy with its bindings."""
    reads: Reads = ()
    """The kinds that it reads from the cluster, such as that of its parameters, and which parts of them."""
    unlisted_reads: tuple[tuple[str, str], ...] = ()
    """apiVersion and plural name of what it would read if the GatewayConfiguration listed it."""
    wrong_calls: tuple[str, ...] = field(default=(), kw_only=True)
    """What its expressions call and cannot succeed, each as a sentence about the policy."""
    merged_versions: frozenset[tuple[str, str]] = frozenset()
    """Groups and versions of the objects that it merges by their schemas; a star stands for all."""
    checks_authors: bool = False
    """Whether it matches also what no other webhook sees: it checks the authors of policies."""
    is_on_templates: bool = field(default=False, repr=False)
    """Whether it is evaluated on the Pods of workloads. Digests have it by the expressions of ``policy``."""
    has_long_warnings: bool = field(default=False, repr=False)
    """Whether its warnings are cut only where the API server cuts them."""


@dataclass(frozen=True, slots=True, eq=False)
class Webhook:
    """An entry of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration, or a policy."""

    phase: Phase
    configuration: str
    """``metadata.name`` of its configuration object, or of the policy."""
    name: str
    client: WorkerRef | HttpsClient | PolicyRef
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
    """None if there are none."""
    review_version: ReviewVersion = "v1"
    """Version of the AdmissionReviews for its HTTPS server; workers get no AdmissionReview."""
    rollout: Rollout | None = None
    """None if no mode is given: it is enforced, and has no candidate, or the stage of a plan that was removed
    holds. With a ``plan``, that of its first stage."""
    plan: RolloutPlan | None = None
    """The stages through which ``rollout`` goes. None if there are none."""
    cache: Cache | None = None
    """None if every request is a call."""
    after: tuple[str, ...] = ()
    """Names of mutating webhooks that are called before it, see ``gateway.pure.core.call_order``."""
    help: str = ""
    """What who is denied can do, or the URL of a page that says it: a line below the denial. Empty: none."""
    namespace: str = field(default="", repr=False)
    """Of a policy of one namespace: it is for the requests in that one only."""
    document: str = field(default="", repr=False)
    """``KIND/NAME`` of the policy or binding that has its ``rollout``, or could. Empty for webhooks."""

    @property
    def id(self) -> WebhookId:
        """What is the same in all configurations that have it."""
        return WebhookId(self.phase, self.configuration, self.name)

    @property
    def plan_id(self) -> WebhookId:
        """What the state of its plan is of.

        All entries of a phase and a name that a document makes have one plan. Policies of other kinds, and
        other bindings of a policy, may make entries of that name, too.
        """
        return WebhookId(self.phase, self.document or self.configuration, self.name)

    @property
    def allows_dry_run(self) -> bool:
        """Whether ``side_effects`` allow calls for requests with ``dryRun``."""
        return self.side_effects in ("None", "NoneOnDryRun")

    @property
    def policy(self) -> AdmissionPolicy | None:
        """The admission policy with its bindings, or None if it is a webhook."""
        return self.client.policy if isinstance(self.client, PolicyRef) else None

    @property
    def has_namespace_selectors(self) -> bool:
        """Whether the labels of a namespace may exclude it."""
        policy = self.policy
        of_bindings = policy is not None and policy.has_namespace_selectors
        return of_bindings or not self.namespace_selector.is_empty

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether its namespaceSelector matches *labels*, and, of a policy, that of any binding too."""
        policy = self.policy
        return self.namespace_selector.matches(labels) and (
            policy is None or policy.may_match_namespace(labels)
        )

    @property
    def may_reject(self) -> bool:
        """Whether a failed call rejects any request: failurePolicy Fail, and enforced somewhere, or later."""
        rollout = self.rollout
        is_enforced = (
            rollout is None
            or rollout.mode == "Enforce"
            or rollout.enforce is not None
            or self.plan is not None
        )
        return is_enforced and self.failure_policy == "Fail"

    @property
    def clients(self) -> tuple[WorkerRef | HttpsClient, ...]:
        """The client, and that of the candidate if there is one. A policy has none."""
        if isinstance(self.client, PolicyRef):
            return ()
        candidate = None if self.rollout is None else self.rollout.candidate
        return (self.client,) if candidate is None else (self.client, candidate.client)

    @property
    def order(self) -> tuple[int, bytes]:
        """The key by which the webhooks of a phase are sorted.

        First are policies, then policies of other engines that workers evaluate, then webhooks, each by
        configuration.
        """
        client = self.client
        is_of_engine = isinstance(client, WorkerRef) and client.kind != ""
        stage = 0 if isinstance(client, PolicyRef) else 1 if is_of_engine else 2
        return stage, self.configuration.encode()

    @property
    def engine(self) -> str:
        """The pool of the engine that has it and others as one webhook. Empty for other webhooks."""
        client = self.client
        return client.pool if isinstance(client, WorkerRef) and client.kind else ""

    @property
    def has_own_words(self) -> bool:
        """Whether its messages name it."""
        client = self.client
        return isinstance(client, PolicyRef) or (isinstance(client, WorkerRef) and client.has_own_words)

    @property
    def worker(self) -> WorkerRef:
        """The client, which has to be a worker."""
        return cast("WorkerRef", self.client)

"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration, with the API server's defaults and checks.

The checks are those of the API server for a new object; it is more lenient with stored objects. ``v1beta1``
differs in its defaults and in the allowed sideEffects.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go,
v1beta1/defaults.go; k8s.io/api admissionregistration types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import one_of, shown
from gateway.config.kinds.client_config import ClientConfig
from gateway.config.kinds.declare import Group
from gateway.config.kinds.matching import (
    CONDITIONS,
    FAILURE_POLICIES,
    MATCH_POLICIES,
    RuleEntry,
    compiled_conditions,
)
from gateway.config.kinds.metadata import read_metadata, read_selector
from gateway.config.kinds.names import configuration_name, dns_1035_label, webhook_name
from gateway.config.kinds.rollout import read_rollout
from gateway.pure.core.webhook import (
    Cache,
    FailurePolicy,
    HttpsClient,
    MatchPolicy,
    Phase,
    ReinvocationPolicy,
    ReviewVersion,
    SideEffects,
    Webhook,
    WorkerRef,
)

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields

REINVOCATION_POLICIES: tuple[ReinvocationPolicy, ...] = get_args(ReinvocationPolicy)
REVIEW_VERSIONS: tuple[ReviewVersion, ...] = get_args(ReviewVersion)
LONGEST_TIMEOUT_S = 30
LONGEST_TTL_S: Final = 24 * 60 * 60
DEFAULT_ENTRIES: Final = 1024
MOST_ENTRIES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Version:
    """The defaults and allowed values of one version of the API."""

    failure_policy: FailurePolicy
    match_policy: MatchPolicy
    timeout_s: int
    side_effects: SideEffects | None
    """None if the field is required."""
    allowed_side_effects: tuple[SideEffects, ...]
    review_versions: tuple[ReviewVersion, ...] | None
    """None if the field is required."""


V1 = Version("Fail", "Equivalent", 10, None, ("None", "NoneOnDryRun"), None)
V1BETA1 = Version("Ignore", "Exact", 30, "Unknown", get_args(SideEffects), ("v1beta1",))


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    """One configuration object."""

    phase: Phase
    name: str
    webhooks: tuple[Webhook, ...] = ()
    """In the order written."""
    pools: tuple[tuple[str, str], ...] = ()
    """The path of every reference to a WorkerPool, and the name of the pool."""
    authorizers: tuple[str, ...] = ()
    """The paths of matchConditions that use the API server's authorizer."""
    followed: tuple[str, ...] = ()
    """The paths of ``caBundleFrom``, whose objects are followed in a cluster."""


def read_webhook_configuration(fields: Fields, phase: Phase, version: Version) -> WebhookConfiguration:
    """Return the configuration object behind *fields*; apiVersion and kind are read already."""
    name = read_metadata(fields, configuration_name).name
    webhooks, pools, authorizers, followed = [], [], [], []
    first_of_name: dict[str, str] = {}
    for entry in fields.mappings("webhooks"):
        problems = len(fields.problems.found)
        webhook = _read_webhook(entry, phase, name, version)
        webhooks.append(webhook)
        for parent, client in zip(("", ".rollout.candidate"), webhook.clients, strict=False):
            path = f"{entry.path}{parent}.clientConfig"
            if isinstance(client, WorkerRef) and client.pool:
                pools.append((f"{path}.worker.pool", client.pool))
            is_followed = isinstance(client, HttpsClient) and client.ca_from is not None
            if is_followed and len(fields.problems.found) == problems:
                followed.append(f"{path}.caBundleFrom")
        if webhook.match_conditions is not None and webhook.match_conditions.needs_authorizer:
            authorizers.append(entry.at("matchConditions"))
        if webhook.name in first_of_name:
            first = first_of_name[webhook.name]
            entry.problem("name", f"found {shown(webhook.name)}, the name of {first}; expected unique names")
        elif webhook.name:
            first_of_name[webhook.name] = entry.path
    fields.finish()
    return WebhookConfiguration(
        phase, name, tuple(webhooks), tuple(pools), tuple(authorizers), tuple(followed)
    )


def _read_webhook(fields: Fields, phase: Phase, configuration: str, version: Version) -> Webhook:
    client = Group(ClientConfig).read_required(fields, "clientConfig").client
    webhook = Webhook(
        phase=phase,
        configuration=configuration,
        name=fields.required_string("name", webhook_name),
        client=client,
        rules=tuple(RuleEntry.read(each).rule for each in fields.mappings("rules")),
        failure_policy=_read_failure_policy(fields, client, version),
        match_policy=fields.choice("matchPolicy", MATCH_POLICIES, version.match_policy),
        namespace_selector=read_selector(fields.mapping("namespaceSelector")),
        object_selector=read_selector(fields.mapping("objectSelector")),
        side_effects=(
            side_effects := fields.choice("sideEffects", version.allowed_side_effects, version.side_effects)
        ),
        timeout_s=fields.integer("timeoutSeconds", version.timeout_s, 1, LONGEST_TIMEOUT_S),
        reinvocation_policy=_read_reinvocation_policy(fields, phase),
        match_conditions=compiled_conditions(CONDITIONS.read(fields, "matchConditions", ())),
        review_version=_read_review_version(fields, version),
        rollout=read_rollout(fields, side_effects),
        cache=read_cache(fields, side_effects),
    )
    fields.finish()
    return webhook


def _read_failure_policy(fields: Fields, client: WorkerRef | HttpsClient, version: Version) -> FailurePolicy:
    review = client.image_review if isinstance(client, HttpsClient) else None
    if review is None or review.default_allow is None:
        return fields.choice("failurePolicy", FAILURE_POLICIES, version.failure_policy)
    default: FailurePolicy = "Ignore" if review.default_allow else "Fail"
    found = fields.choice("failurePolicy", FAILURE_POLICIES, default)
    if found != default:
        fields.problem(
            "failurePolicy", f"found {found}, which contradicts clientConfig.imageReview.defaultAllow"
        )
    return found


def _read_reinvocation_policy(fields: Fields, phase: Phase) -> ReinvocationPolicy:
    if phase == "mutate":
        return fields.choice("reinvocationPolicy", REINVOCATION_POLICIES, "Never")
    if "reinvocationPolicy" in fields.content:
        fields.problem("reinvocationPolicy", "is not allowed: only mutating webhooks are reinvoked")
        fields.accept("reinvocationPolicy")
    return "Never"


def _read_review_version(fields: Fields, version: Version) -> ReviewVersion:
    """Return the first of admissionReviewVersions that the gateway supports, as the API server chooses it."""
    entries = fields.indexed_strings("admissionReviewVersions")
    if fields.content.get("admissionReviewVersions") is None and version.review_versions is not None:
        return version.review_versions[0]
    if fields.content.get("admissionReviewVersions") in (None, []):
        fields.problem("admissionReviewVersions", f"is required, expected at least {one_of(REVIEW_VERSIONS)}")
        return "v1"
    seen: set[str] = set()
    for path, entry in entries:
        if entry in seen:
            fields.problems.add(path, f"found {shown(entry)} twice")
        elif message := dns_1035_label(entry):
            fields.problems.add(path, message)
        seen.add(entry)
    if entries and seen.isdisjoint(REVIEW_VERSIONS):
        found = ", ".join(shown(entry) for _, entry in entries)
        fields.problem(
            "admissionReviewVersions", f"found {found}, expected at least {one_of(REVIEW_VERSIONS)}"
        )
    written = [entry for _, entry in entries]
    return min(REVIEW_VERSIONS, key=lambda known: written.index(known) if known in written else len(written))


def read_cache(webhook: Fields, side_effects: SideEffects) -> Cache | None:
    """Return the cache of *webhook*, which has these *side_effects*; None if it has no valid one."""
    fields = webhook.mapping("cache")
    if fields is None:
        return None
    if not fields.has("ttlSeconds"):
        fields.problem("ttlSeconds", f"is required, expected 1 to {LONGEST_TTL_S}")
    ttl_s = fields.integer("ttlSeconds", 1, 1, LONGEST_TTL_S)
    max_entries = fields.integer("maxEntries", DEFAULT_ENTRIES, 1, MOST_ENTRIES)
    expression = fields.required_string("key").strip()
    fields.finish()
    if side_effects != "None":
        webhook.problem("cache", f"requires sideEffects None, found {side_effects}: calls are left out")
    if not expression:
        return None
    # The import takes 60 ms and 6 MB, which a configuration without expressions does not need.
    from gateway.pure.cel.errors import InvalidExpression
    from gateway.pure.conditions.cache_key import CompiledKey

    try:
        return Cache(ttl_s, CompiledKey(expression), max_entries)
    except InvalidExpression as error:
        fields.problem("key", str(error))
        return None

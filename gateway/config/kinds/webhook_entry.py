"""An entry of a webhook configuration, with the API server's defaults and checks.

The checks are those of the API server for a new object; it is more lenient with stored objects. ``v1beta1``
differs in its defaults and in the allowed sideEffects.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go,
v1beta1/defaults.go; k8s.io/api admissionregistration types.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import one_of, shown
from gateway.config.kinds.cache import CacheEntry
from gateway.config.kinds.client_config import ClientConfig
from gateway.config.kinds.declare import (
    Choice,
    Declared,
    Group,
    Groups,
    Integer,
    Type,
    declare,
    optional,
    required,
)
from gateway.config.kinds.help_text import HELP_TEXT
from gateway.config.kinds.matching import (
    CONDITIONS,
    FAILURE_POLICIES,
    MATCH_POLICIES,
    MAX_RULES,
    ConditionEntry,
    RuleEntry,
    compiled_conditions,
)
from gateway.config.kinds.metadata import LabelSelector
from gateway.config.kinds.names import (
    LABEL_LENGTH,
    NAME_OF_WEBHOOK,
    NAMES_OF_WEBHOOKS,
    dns_1035_label,
)
from gateway.config.kinds.rollout import RolloutEntry
from gateway.config.kinds.validation import Rule
from gateway.pure.core.labels import EVERYTHING, Selector
from gateway.pure.core.webhook import (
    FailurePolicy,
    MatchPolicy,
    Phase,
    ReinvocationPolicy,
    ReviewVersion,
    SideEffects,
    Webhook,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.config.kinds.declare import Schema
    from gateway.config.yaml.fields import Fields

REINVOCATION_POLICIES: tuple[ReinvocationPolicy, ...] = get_args(ReinvocationPolicy)
_SIDE_EFFECTS_OF_V1: tuple[SideEffects, ...] = ("None", "NoneOnDryRun")
OLD_SIDE_EFFECTS: Final = frozenset(get_args(SideEffects)).difference(_SIDE_EFFECTS_OF_V1)
"""Those that only ``v1beta1`` allows."""
REVIEW_VERSIONS: tuple[ReviewVersion, ...] = get_args(ReviewVersion)
_MAX_REVIEW_VERSIONS: Final = 16
_LONGEST_TIMEOUT_S: Final = 30


class _ReviewVersions(Type[ReviewVersion]):
    """The first of ``admissionReviewVersions`` that the gateway supports, as the API server chooses it."""

    words = "list with at least `v1` or `v1beta1`"

    def read(self, source: Fields, name: str, default: ReviewVersion) -> ReviewVersion:
        entries = source.indexed_strings(name)
        if source.content.get(name) in (None, []):
            source.problem(name, f"is required, expected at least {one_of(REVIEW_VERSIONS)}")
            return "v1"
        seen: set[str] = set()
        for path, entry in entries:
            if entry in seen:
                source.problems.add(path, f"found {shown(entry)} twice")
            elif message := dns_1035_label(entry):
                source.problems.add(path, message)
            seen.add(entry)
        if entries and seen.isdisjoint(REVIEW_VERSIONS):
            found = ", ".join(shown(entry) for _, entry in entries)
            source.problem(name, f"found {found}, expected at least {one_of(REVIEW_VERSIONS)}")
        written = [entry for _, entry in entries]
        return min(
            REVIEW_VERSIONS, key=lambda known: written.index(known) if known in written else len(written)
        )

    def schema(self) -> Schema:
        items = {"type": "string", "maxLength": LABEL_LENGTH, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
        # The reader has this check too, since it is for each webhook, and CEL takes time.
        rule = {
            "rule": f"self.exists(e, e in {list(REVIEW_VERSIONS)})",
            "message": f"expected at least {one_of(REVIEW_VERSIONS)}",
        }
        bounds = {"minItems": 1, "maxItems": _MAX_REVIEW_VERSIONS, "x-kubernetes-list-type": "set"}
        return {"type": "array", **bounds, "items": items, "x-kubernetes-validations": [rule]}

    def value(self, value: ReviewVersion) -> object:
        return value and [value]


def _has_no_side_effects(content: Mapping[str, object]) -> bool:
    return content.get("sideEffects") == "None"


def _without_side_effects(is_absent: str, at: str, message: str) -> Rule:
    """Return the rule that a webhook has no side effects, unless *is_absent*, in CEL, is true."""
    return Rule(
        f"{is_absent} || has(self.sideEffects) && self.sideEffects == 'None'",
        message,
        about=(at.partition(".")[0],),
        at=at,
        holds_surely=_has_no_side_effects,
        found="sideEffects",
    )


# Without slots: the classes of v1beta1 have two bases.
@dataclass(frozen=True, kw_only=True)
class WebhookEntry(Declared):
    """An entry of a ValidatingWebhookConfiguration of version ``v1``."""

    RULES = (
        _without_side_effects(
            "!has(self.rollout) || !has(self.rollout.mode) || self.rollout.mode != 'Shadow'",
            "rollout.mode",
            "Shadow requires sideEffects None: its calls are additional ones",
        ),
        _without_side_effects(
            "!has(self.rollout) || !has(self.rollout.plan) || "
            "self.rollout.plan.stages.all(s, s.mode != 'Shadow')",
            "rollout.plan",
            "a stage Shadow requires sideEffects None: its calls are additional ones",
        ),
        _without_side_effects(
            "!has(self.rollout) || !has(self.rollout.candidate)",
            "rollout.candidate",
            "requires sideEffects None: its calls are additional ones",
        ),
        _without_side_effects("!has(self.cache)", "cache", "requires sideEffects None: calls are left out"),
    )
    name: str = required(
        NAME_OF_WEBHOOK,
        "Unique in the configuration",
    )
    client_config: ClientConfig = required(
        Group(ClientConfig), "Exactly one of `worker`, `url` and `service`"
    )
    rules: tuple[RuleEntry, ...] = declare(
        Groups(RuleEntry, maxItems=MAX_RULES),
        "The requests that the webhook is for. Absent: none",
        default=(),
    )
    failure_policy: FailurePolicy = declare(
        Choice(FAILURE_POLICIES), "See [Failures](answers.md#failures)", default="Fail"
    )
    match_policy: MatchPolicy = declare(
        Choice(MATCH_POLICIES), "See [matchPolicy](#matchpolicy)", default="Equivalent"
    )
    namespace_selector: Selector = declare(
        LabelSelector(),
        "Labels of the namespace; for a Namespace, of the object. Absent: all",
        default=EVERYTHING,
    )
    object_selector: Selector = declare(
        LabelSelector(), "Labels of the object or the old object. Absent: all", default=EVERYTHING
    )
    match_conditions: tuple[ConditionEntry, ...] = declare(
        CONDITIONS, "See [matchConditions](#matchconditions)", default=()
    )
    timeout_seconds: int = declare(
        Integer(1, _LONGEST_TIMEOUT_S, "seconds"), f"From 1 to {_LONGEST_TIMEOUT_S}", default=10
    )
    side_effects: SideEffects = required(
        Choice(_SIDE_EFFECTS_OF_V1), "`v1beta1` also allows `Some` and `Unknown`"
    )
    review_version: ReviewVersion = required(
        _ReviewVersions(),
        "The gateway uses the first one that it supports. Only HTTPS webhooks see it",
        name="admissionReviewVersions",
    )
    rollout: RolloutEntry | None = optional(
        Group(RolloutEntry),
        "How far the webhook is in force, see [rollout](rollout.md). Absent: it is enforced",
    )
    help: str = declare(
        HELP_TEXT,
        "A line below the message of a denial: what who is denied can do, or a URL. See "
        "[denials](answers.md#denials)",
        default="",
    )
    cache: CacheEntry | None = optional(
        Group(CacheEntry),
        "Verdicts that hold for other requests, see [cache](#cache). Requires `sideEffects: None`",
    )

    @property
    def _default_failure_policy(self) -> FailurePolicy | None:
        """The failurePolicy that ``imageReview.defaultAllow`` stands for. None if it is not given."""
        default_allow = self.client_config.default_allow
        return None if default_allow is None else "Ignore" if default_allow else "Fail"

    def check(self, source: Fields) -> None:
        """Report a failurePolicy that contradicts ``imageReview.defaultAllow``."""
        if source.has("failurePolicy") and self._default_failure_policy not in (None, self.failure_policy):
            source.problem(
                "failurePolicy",
                f"found {self.failure_policy}, which contradicts clientConfig.imageReview.defaultAllow",
            )

    def webhook(self, phase: Phase, configuration: str) -> Webhook:
        """Return the webhook of *phase* in the configuration object of this name."""
        return Webhook(
            phase=phase,
            configuration=configuration,
            name=self.name,
            client=self.client_config.client,
            rules=tuple(each.rule for each in self.rules),
            failure_policy=self._default_failure_policy or self.failure_policy,
            match_policy=self.match_policy,
            namespace_selector=self.namespace_selector,
            object_selector=self.object_selector,
            side_effects=self.side_effects,
            timeout_s=self.timeout_seconds,
            match_conditions=compiled_conditions(self.match_conditions),
            review_version=self.review_version,
            rollout=None if self.rollout is None else self.rollout.rollout,
            plan=None if self.rollout is None or self.rollout.plan is None else self.rollout.plan.plan,
            cache=None if self.cache is None else self.cache.cache,
            help=self.help,
        )


@dataclass(frozen=True, kw_only=True)
class MutatingEntry(WebhookEntry):
    """An entry of a MutatingWebhookConfiguration of version ``v1``."""

    reinvocation_policy: ReinvocationPolicy = declare(
        Choice(REINVOCATION_POLICIES), "Mutating webhooks only", default="Never"
    )
    after: tuple[str, ...] = declare(
        NAMES_OF_WEBHOOKS,
        "Mutating webhooks only. Webhooks, of any configuration, that are called before it, see "
        "[order](mutators.md#order)",
        default=(),
    )

    def webhook(self, phase: Phase, configuration: str) -> Webhook:
        """As in the class above."""
        made = super().webhook(phase, configuration)
        return replace(made, reinvocation_policy=self.reinvocation_policy, after=self.after)


@dataclass(frozen=True, kw_only=True)
class _OldEntry(WebhookEntry):
    failure_policy: FailurePolicy = declare(Choice(FAILURE_POLICIES), "", default="Ignore")
    match_policy: MatchPolicy = declare(Choice(MATCH_POLICIES), "", default="Exact")
    timeout_seconds: int = declare(Integer(1, _LONGEST_TIMEOUT_S), "", default=30)
    side_effects: SideEffects = declare(Choice(get_args(SideEffects)), "", default="Unknown")
    review_version: ReviewVersion = declare(
        _ReviewVersions(), "", default="v1beta1", name="admissionReviewVersions"
    )


@dataclass(frozen=True, kw_only=True)
class _OldMutatingEntry(_OldEntry, MutatingEntry):
    pass


V1: Final[Mapping[Phase, type[WebhookEntry]]] = {"mutate": MutatingEntry, "validate": WebhookEntry}
"""The entries of ``v1``, which is the version of custom resources too."""
V1BETA1: Final[Mapping[Phase, type[WebhookEntry]]] = {"mutate": _OldMutatingEntry, "validate": _OldEntry}

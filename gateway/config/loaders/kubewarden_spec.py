"""The spec of Kubewarden's ClusterAdmissionPolicy and AdmissionPolicy.

Both versions have the same fields. Those that the worker reads are accepted as they are.

Source: github.com/kubewarden/kubewarden-controller api/policies/v1/{policy,clusteradmissionpolicy}_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Groups,
    Integer,
    Text,
    declare,
    optional,
    required,
)
from gateway.config.kinds.matching import (
    CONDITIONS,
    FAILURE_POLICIES,
    MATCH_POLICIES,
    ConditionEntry,
    RuleEntry,
)
from gateway.config.kinds.metadata import LabelSelector
from gateway.pure.core.labels import EVERYTHING, Selector

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import FailurePolicy, MatchPolicy, SideEffects

_SIDE_EFFECTS: tuple[SideEffects, ...] = ("None", "NoneOnDryRun")
_OF_WORKER: Final = ("settings", "timeoutEvalSeconds", "message", "policyServer", "backgroundAudit")
"""Fields that the worker reads, or that only have a meaning in Kubewarden."""
_OF_CLUSTER_WIDE: Final = ("contextAwareResources", "allowInsideAdmissionControllerNamespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Declared):
    """The spec of an AdmissionPolicy."""

    mode: str = declare(
        Choice(("protect", "monitor")), "Whether a rejection refuses the request", default="protect"
    )
    module: str = required(Text(minLength=1), "Where the worker finds the module")
    rules: tuple[RuleEntry, ...] = required(Groups(RuleEntry), "The requests")
    failure_policy: FailurePolicy = declare(
        Choice(FAILURE_POLICIES), "Effect of failed calls", default="Fail"
    )
    mutating: bool = declare(Boolean(), "Whether it may change objects", default=False)
    match_policy: MatchPolicy = declare(
        Choice(MATCH_POLICIES), "Whether rules also match other versions of a resource", default="Equivalent"
    )
    match_conditions: tuple[ConditionEntry, ...] = declare(CONDITIONS, "All have to hold", default=())
    object_selector: Selector = declare(LabelSelector(), "Labels of the object", default=EVERYTHING)
    side_effects: SideEffects = declare(Choice(_SIDE_EFFECTS), "As those of webhooks", default="None")
    timeout_seconds: int | None = optional(Integer(1, 30, "seconds"), "Timeout of a call")

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Accept what the worker reads."""
        source.accept(*_OF_WORKER)
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec(Spec):
    """That of a ClusterAdmissionPolicy."""

    namespace_selector: Selector = declare(LabelSelector(), "Labels of the namespace", default=EVERYTHING)

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Accept what the worker reads."""
        source.accept(*_OF_WORKER, *_OF_CLUSTER_WIDE)
        return {}

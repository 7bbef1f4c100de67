"""Which requests policies and their bindings match: rules for objects of some names, and selectors.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go; k8s.io/api
admissionregistration types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import Choice, Declared, Groups, Type, declare, required
from gateway.config.kinds.matching import MATCH_POLICIES, MAX_ENTRIES, MAX_RULES, RuleEntry, operations_of
from gateway.config.kinds.metadata import LabelSelector
from gateway.config.kinds.names import SUBDOMAIN_LENGTH
from gateway.pure.admission_policies.model import MatchResources, NamedRule
from gateway.pure.core.labels import EVERYTHING, Selector

if TYPE_CHECKING:
    from gateway.config.kinds.declare import Schema
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import MatchPolicy

PATH_SEGMENT: Final = r"^([^/%.]|\.[^/%.]|[^/%.][^/%]|[^/%]{3,})?$"


def path_segment(text: str) -> str | None:
    """Check a name. Source: k8s.io/apimachinery pkg/api/validate/content (IsPathSegmentName)."""
    if text in (".", ".."):
        return f"found {shown(text)}, which is no name"
    wrong = next((character for character in "/%" if character in text), None)
    return None if wrong is None else f"found {shown(text)}, which contains {shown(wrong)}"


class _Names(Type[tuple[str, ...]]):
    words = "list of names"

    def read(self, source: Fields, name: str, default: object) -> tuple[str, ...]:
        names = source.strings(name, path_segment)
        for each in {each for each in names if names.count(each) > 1}:
            source.problem(name, f"found {shown(each)} twice")
        return names

    def schema(self) -> Schema:
        items = {"type": "string", "maxLength": SUBDOMAIN_LENGTH, "pattern": PATH_SEGMENT}
        return {"type": "array", "maxItems": MAX_ENTRIES, "items": items, "x-kubernetes-list-type": "set"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRuleEntry(RuleEntry):
    """A rule for objects of some names."""

    resource_names: tuple[str, ...] = declare(_Names(), "Names of objects. Absent: all", default=())

    def named(self, match_policy: MatchPolicy) -> NamedRule:
        """Return the rule, with the *match_policy* of the list in which it is."""
        return NamedRule((self.rule,), self.resource_names, match_policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchEntry(Declared):
    """``matchResources`` of a binding."""

    resource_rules: tuple[NamedRuleEntry, ...] = declare(
        Groups(NamedRuleEntry, maxItems=MAX_RULES), "The requests. Absent: all of the policy", default=()
    )
    exclude_resource_rules: tuple[NamedRuleEntry, ...] = declare(
        Groups(NamedRuleEntry, maxItems=MAX_RULES), "Requests that are excluded", default=()
    )
    match_policy: MatchPolicy = declare(
        Choice(MATCH_POLICIES),
        "Whether rules also match other versions of a resource",
        default="Equivalent",
    )
    namespace_selector: Selector = declare(
        LabelSelector(), "Labels of the namespace. Absent: all", default=EVERYTHING
    )
    object_selector: Selector = declare(
        LabelSelector(), "Labels of the object. Absent: all", default=EVERYTHING
    )

    @property
    def resources(self) -> MatchResources:
        """What it matches."""
        return MatchResources(
            tuple(each.named(self.match_policy) for each in self.resource_rules),
            tuple(each.named(self.match_policy) for each in self.exclude_resource_rules),
            self.match_policy,
            self.namespace_selector,
            self.object_selector,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintsEntry(MatchEntry):
    """``matchConstraints`` of a policy."""

    resource_rules: tuple[NamedRuleEntry, ...] = required(
        Groups(NamedRuleEntry, minItems=1, maxItems=MAX_RULES), "The requests"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MutatingRule(NamedRuleEntry):
    """A rule without DELETE, at which nothing can be changed."""

    operations: tuple[str, ...] = required(operations_of("CREATE", "UPDATE", "CONNECT"), "Operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutatingConstraints(ConstraintsEntry):
    """``matchConstraints`` of a mutating policy."""

    resource_rules: tuple[NamedRuleEntry, ...] = required(
        Groups(_MutatingRule, minItems=1, maxItems=MAX_RULES), "The requests"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MutatingMatch(MatchEntry):
    """``matchResources`` of the binding of one."""

    resource_rules: tuple[NamedRuleEntry, ...] = declare(
        Groups(_MutatingRule, maxItems=MAX_RULES), "The requests. Absent: all of the policy", default=()
    )

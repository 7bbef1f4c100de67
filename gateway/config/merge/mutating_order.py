"""Why the order of mutating policies keeps some of them in the gateway.

The API server evaluates its own mutating policies before it calls the gateway, and in random order among each
other. So a policy can move only if no policy before it, in the gateway's order, writes what it reads or
writes, or reads what it writes. Then it does not matter which of these policies move. Webhooks and policies
behind it see the object as before.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_source.go, mutating/dispatcher.go.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.text import shown
from gateway.config.yaml.documents import MUTATING_POLICY
from gateway.pure.admission_policies.effects import LABELS, PolicyEffects, overlap
from gateway.pure.cel.parse import parse
from gateway.pure.cel.syntax import Call, nodes
from gateway.pure.core.overlap import has, parts
from gateway.pure.core.overlap import overlap as rules_overlap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.pure.admission_policies.effects import Path
    from gateway.pure.admission_policies.model import MatchResources, MutatingPolicy
    from gateway.pure.core.webhook import Rule

MAX_NAMED: Final = 3
"""Policies that one kind of reason names."""
_COMPARISONS: Final = frozenset({"_==_", "_!=_", "@in", "ofNonZeroValue"})
"""Functions whose value can depend on whether maps and lists have Go types."""


class OrderedPolicy(NamedTuple):
    """A policy, with the requests that it and its bindings match."""

    policy: MutatingPolicy
    matches: Sequence[MatchResources]


class MutatingOrder:
    """The mutating policies of a configuration."""

    def __init__(self, policies: Iterable[OrderedPolicy]) -> None:
        self._policies = sorted(policies, key=lambda each: each.policy.name.encode())
        self.effects = {each.policy.name: PolicyEffects(each.policy) for each in self._policies}
        """By name of the policy."""
        self._writes, self._uses = _Fields(), _Fields()
        self._rules: dict[str, list[Rule]] = {}
        for position, (policy, _) in enumerate(self._policies):
            self._rules[policy.name] = rules_of(policy.match)
            reads, writes = self.effects[policy.name].all
            for path in writes:
                self._writes.add(path, position)
            for path in reads | writes:
                self._uses.add(path, position)
        self._selecting = [each.policy for each in self._policies if any(map(_selects_labels, each.matches))]
        self._conditional = [each.policy for each in self._policies if each.policy.conditions]

    def reasons(self, policy: MutatingPolicy, *, has_go_types: bool) -> Iterator[str]:
        """Yield the reasons for *policy*. *has_go_types* is whether values have Go types in conditions."""
        effects = self.effects[policy.name].all
        for other in self._meeting(policy, self._before(policy)):
            path = effects.depend(self.effects[other.name].all)
            field = shown(".".join(path)) if path else "the whole object"
            yield (
                f"the policy depends by {field} on {MUTATING_POLICY} {shown(other.name)}, which comes before "
                "it by name, and the API server has no order; name it so that it comes first, or let them "
                "use other fields"
            )
        if any(overlap(path, LABELS) for path in effects.writes):
            for other in self._meeting(policy, self._selecting):
                yield (
                    f"the policy sets labels, and {MUTATING_POLICY} {shown(other.name)} selects objects by "
                    "labels, which it has to see without them; use matchConditions there"
                )
        if has_go_types and not policy.conditions and _compares(policy):
            for other in self._meeting(policy, self._conditional):
                yield (
                    f"{MUTATING_POLICY} {shown(other.name)} has matchConditions: if the API server evaluates "
                    "it first, maps and lists of this policy compare otherwise; give it matchConditions too"
                )

    def _before(self, policy: MutatingPolicy) -> Iterator[MutatingPolicy]:
        """Yield the policies before *policy* that use the same fields."""
        reads, writes = self.effects[policy.name].all
        found = {one for path in writes for one in self._uses.overlapping(path)}
        found |= {one for path in reads for one in self._writes.overlapping(path)}
        for position in sorted(found):
            other = self._policies[position].policy
            if other is policy:
                return
            yield other

    def _meeting(self, policy: MutatingPolicy, others: Iterable[MutatingPolicy]) -> Iterator[MutatingPolicy]:
        """Return the first of *others* that may match a request of *policy*, by their rules."""
        ours = self._rules[policy.name]
        return islice(
            (
                other
                for other in others
                if other is not policy
                and any(rules_overlap(own, their) for own in ours for their in self._rules[other.name])
            ),
            MAX_NAMED,
        )


class _Fields:
    """The positions of policies by the fields that they use."""

    def __init__(self) -> None:
        self._exact: dict[Path, set[int]] = {}
        self._above: dict[Path, set[int]] = {}
        """By each field that is above a field in use."""

    def add(self, path: Path, position: int) -> None:
        self._exact.setdefault(path, set()).add(position)
        for length in range(len(path)):
            self._above.setdefault(path[:length], set()).add(position)

    def overlapping(self, path: Path) -> Iterator[int]:
        """Yield the positions that use *path*, a field above it, or one below it; some twice."""
        for length in range(len(path) + 1):
            yield from self._exact.get(path[:length], ())
        yield from self._above.get(path, ())


def rules_of(match: MatchResources) -> list[Rule]:
    """Return the rules of *match*."""
    return [rule for each in match.named_rules for rule in each.rules]


def functions_of(text: str) -> set[str]:
    """Return the names of the functions and operators in the expression *text*."""
    return {node.function for node in nodes(parse(text)) if isinstance(node, Call)}


def _compares(policy: MutatingPolicy) -> bool:
    return any(not functions_of(each.text).isdisjoint(_COMPARISONS) for each in policy.expressions)


def _selects_labels(match: MatchResources) -> bool:
    """Whether labels of the object can decide whether *match* has a request: a Namespace has its own."""
    rules = rules_of(match)
    is_about_namespaces = not rules or any(
        has(rule.api_groups, "") and any(parts(each)[0] in ("*", "namespaces") for each in rule.resources)
        for rule in rules
    )
    return not match.object_selector.is_empty or (
        is_about_namespaces and not match.namespace_selector.is_empty
    )

"""Kyverno's PolicyException of ``kyverno.io``, which leaves rules of ClusterPolicies and Policies out.

Source: github.com/kyverno/kyverno api/kyverno/v2/policy_exception_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.declare import Boolean, Declared, Group, Groups, Text, Texts, declare, required
from gateway.config.kinds.matching import PlacedEntry
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_spec import spec_json
from gateway.config.loaders.cluster_filters import MAX_CHARS, AnyOrAllEntry
from gateway.config.loaders.part import Part
from gateway.pure.kyverno.cluster_rules import RuleException
from gateway.pure.kyverno.resource_match import Filters
from gateway.pure.kyverno.wildcards import has_wildcards, name_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields

KIND: Final = "PolicyException"
_MAX_RULE_NAMES: Final = 1000
_OF_WORKER: Final = {
    "conditions": "are JMESPath, which the gateway cannot run: use match, or an exception of the gateway",
    "podSecurity": "is for rules with validate.podSecurity",
}
"""What only a worker evaluates, for the rules that it evaluates."""
_MAX_NAMES: Final = 5000
"""Names of rules of all policies together."""


def _short(text: str) -> str | None:
    return None if len(text) <= MAX_CHARS else f"found {len(text)} characters, expected at most {MAX_CHARS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exception(PlacedEntry):
    policy_name: str = required(Text(), "`NAME` of a ClusterPolicy, or `NAMESPACE/NAME` of a Policy")
    rule_names: tuple[str, ...] = required(
        Texts("list of names of rules", _short, (0, _MAX_RULE_NAMES)), "Names of rules, with wildcards"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec(Declared):
    background: bool = declare(Boolean(), "Not used: the gateway does not scan objects", default=True)
    match: AnyOrAllEntry = required(Group(AnyOrAllEntry), "The requests")
    exceptions: tuple[_Exception, ...] = required(Groups(_Exception, _MAX_RULE_NAMES), "Policies and rules")

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Accept what only a worker evaluates."""
        source.accept(*_OF_WORKER)
        return {}

    def check(self, source: Fields) -> None:
        """Report too many names."""
        if (count := sum(len(each.rule_names) for each in self.exceptions)) > _MAX_NAMES:
            source.problem("exceptions", f"found {count} names of rules, expected at most {_MAX_NAMES}")


@dataclass(frozen=True, slots=True, eq=False)
class ClusterException(Part):
    """One exception."""

    is_exception = True

    document: Document
    kind: str
    id: str
    policies: tuple[tuple[str, str], ...]
    """Path and name of each policy."""
    rules: tuple[tuple[str, tuple[str, ...]], ...]
    """Policies, each with names of its rules, which may have wildcards."""
    match: Filters
    content: bytes
    """JSON of its spec, with sorted keys."""
    of_worker: tuple[tuple[str, str], ...] = ()
    """Path and meaning of everything that the gateway cannot evaluate. With any, it is for rules of a worker
    only."""

    @property
    def needs_roles(self) -> bool:
        """See ``Part``."""
        return self.match.needs_roles


class ExceptionsOfRules:
    """The exceptions of one policy, by names of rules.

    Each pattern is compared once with each name, however many exceptions have it.
    """

    def __init__(self, policy: str, exceptions: Sequence[ClusterException]) -> None:
        self._exceptions = [RuleException(each.id, each.match, each.content) for each in exceptions]
        self._exact: dict[str, list[int]] = {}
        wild: dict[str, list[int]] = {}
        for number, each in enumerate(exceptions):
            patterns = (text for name, texts in each.rules if name == policy for text in texts)
            for text in dict.fromkeys(patterns):
                known = wild if has_wildcards(text) else self._exact
                known.setdefault(text, []).append(number)
        self._patterns = [(name_pattern(text), numbers) for text, numbers in wild.items()]

    def of(self, rule: str) -> tuple[RuleException, ...]:
        """Return those of the *rule*, in their order."""
        found = set(self._exact.get(rule, ()))
        for pattern, numbers in self._patterns:
            if pattern.fullmatch(rule):
                found.update(numbers)
        return tuple(self._exceptions[number] for number in sorted(found))


def read_exception(document: Document, fields: Fields) -> ClusterException:
    """Return the exception behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=True)
    fields.accept("status")
    source = fields.required_group("spec")
    fields.finish()
    spec = _Spec.read(source)
    is_right = not document.problems.found
    return ClusterException(
        document,
        KIND,
        f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name,
        tuple((each.source.at("policyName"), each.policy_name) for each in spec.exceptions),
        tuple((each.policy_name, each.rule_names) for each in spec.exceptions) if is_right else (),
        spec.match.filters if is_right else Filters("any", ()),
        spec_json(source.content),
        tuple((source.at(name), text) for name, text in _OF_WORKER.items() if source.has(name)),
    )

"""Kyverno's PolicyException of ``kyverno.io``, which leaves rules of ClusterPolicies and Policies out.

Source: github.com/kyverno/kyverno api/kyverno/v2/policy_exception_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gateway.config.kinds.declare import Boolean, Declared, Group, Groups, Text, Texts, declare, required
from gateway.config.kinds.matching import PlacedEntry
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.loaders.cluster_filters import MAX_CHARS, AnyOrAllEntry, Unsupported
from gateway.config.loaders.part import Part
from gateway.pure.kyverno.resource_match import Filters
from gateway.pure.kyverno.wildcards import Wildcard

if TYPE_CHECKING:
    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields

KIND: Final = "PolicyException"
_MAX_RULE_NAMES: Final = 1000


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
    conditions: None = declare(
        Unsupported("are JMESPath, which the gateway cannot run: use match, or an exception of the gateway"),
        "Not evaluated",
        default=None,
    )
    pod_security: None = declare(
        Unsupported("is for rules with validate.podSecurity, which the gateway cannot run"),
        "Not evaluated",
        default=None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ClusterException(Part):
    """One exception."""

    is_exception = True

    document: Document
    kind: str
    id: str
    policies: tuple[tuple[str, str], ...]
    """Path and name of each policy."""
    rules: tuple[tuple[str, tuple[Wildcard, ...]], ...]
    """Policies, each with names of its rules."""
    match: Filters
    content: bytes
    """JSON of its spec, with sorted keys."""

    def names(self, policy: str, rule: str) -> bool:
        """Whether it is about the *rule* of *policy*."""
        return any(
            name == policy and any(each.matches(rule) for each in patterns) for name, patterns in self.rules
        )


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
        tuple((each.policy_name, tuple(map(Wildcard, each.rule_names))) for each in spec.exceptions)
        if is_right
        else (),
        spec.match.filters if is_right else Filters("any", ()),
        orjson.dumps(source.content, option=orjson.OPT_SORT_KEYS),
    )

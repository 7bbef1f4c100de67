"""The rules of ``matchConstraints``, as Kyverno compares them with a request.

Source: github.com/kyverno/kyverno pkg/cel/matching/matcher.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.core.review import metadata_of
from gateway.pure.core.rules import rules_match

if TYPE_CHECKING:
    from gateway.pure.admission_policies.model import MatchResources, NamedRule
    from gateway.pure.core.review import AdmissionRequest


def included(match: MatchResources, request: AdmissionRequest) -> bool:
    """Whether the rules of *match* include *request*, and its exclusions do not."""
    if any(_matches(each, request) for each in match.excluded):
        return False
    return any(_matches(each, request) for each in match.named_rules)


def _matches(named: NamedRule, request: AdmissionRequest) -> bool:
    if not rules_match(named, request):
        return False
    if not named.names or request.name in named.names:
        return True
    # The API server makes up the name later: the beginning of it has to begin with a whole name of the rule.
    generated_from = metadata_of(request.object_outline).get("generateName")
    return (
        request.name == ""
        and isinstance(generated_from, str)
        and generated_from.startswith(tuple(named.names))
    )
